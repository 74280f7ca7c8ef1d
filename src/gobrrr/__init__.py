"""gobrrr: where a PyTorch step's time goes, what would help, and proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gobrrr.capture.steps import step as step
    from gobrrr.capture.trace import read_trace as read_trace
    from gobrrr.capture.workload import Workload as Workload
    from gobrrr.diagnosis.schema import Diagnosis as Diagnosis
    from gobrrr.diagnosis.storage import load as load
    from gobrrr.pipeline.live import diagnose as diagnose
    from gobrrr.timeline.errors import GateFailure as GateFailure
    from gobrrr.timeline.errors import GobrrrError as GobrrrError
    from gobrrr.timeline.errors import InputError as InputError
    from gobrrr.timeline.errors import UserCodeError as UserCodeError

__version__ = "0.1.0"

# Public name -> where it is defined. Imported on first use (PEP 562), so that ``import gobrrr`` and
# ``gobrrr --help`` load neither torch nor numpy.
_HOMES: dict[str, str] = {
    "Diagnosis": "gobrrr.diagnosis.schema",
    "Workload": "gobrrr.capture.workload",
    "diagnose": "gobrrr.pipeline.live",
    "read_trace": "gobrrr.capture.trace",
    "step": "gobrrr.capture.steps",
    "load": "gobrrr.diagnosis.storage",
    "GateFailure": "gobrrr.timeline.errors",
    "GobrrrError": "gobrrr.timeline.errors",
    "InputError": "gobrrr.timeline.errors",
    "UserCodeError": "gobrrr.timeline.errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gobrrr' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
