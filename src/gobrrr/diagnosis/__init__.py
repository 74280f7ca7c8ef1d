"""The one savable object between measuring and reporting."""

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import load

__all__ = ["Diagnosis", "load"]
