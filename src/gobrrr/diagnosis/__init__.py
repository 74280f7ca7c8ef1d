"""The one savable object between measuring and reporting."""

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import load, save

__all__ = ["Diagnosis", "load", "save"]
