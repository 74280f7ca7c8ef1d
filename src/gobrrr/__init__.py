"""gobrrr: where a PyTorch step's time goes, what would help, and proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gobrrr.devices.ceilings import Ceilings as Ceilings
    from gobrrr.devices.datasheet import ceilings_from_datasheet as ceilings_from_datasheet
    from gobrrr.devices.machine import ceilings_for_this_machine as ceilings_for_this_machine
    from gobrrr.devices.storage import ceilings_from_file as ceilings_from_file
    from gobrrr.diagnosis.schema import Diagnosis as Diagnosis
    from gobrrr.diagnosis.storage import load as load
    from gobrrr.live.steps import step as step
    from gobrrr.pipeline.fix import fix as fix
    from gobrrr.pipeline.live import diagnose as diagnose
    from gobrrr.pipeline.predict import predict as predict
    from gobrrr.pipeline.trace import diagnose_trace as diagnose_trace
    from gobrrr.prediction.meter import Meter as Meter
    from gobrrr.recordings.traces import read_trace as read_trace
    from gobrrr.search.result import FixResult as FixResult
    from gobrrr.timeline.errors import GateFailure as GateFailure
    from gobrrr.timeline.errors import GobrrrError as GobrrrError
    from gobrrr.timeline.errors import InputError as InputError
    from gobrrr.timeline.errors import UserCodeError as UserCodeError
    from gobrrr.timeline.ops import OpCall as OpCall
    from gobrrr.timeline.ops import TensorSpec as TensorSpec
    from gobrrr.timeline.workload import Workload as Workload
    from gobrrr.work.estimate import Work as Work
    from gobrrr.work.registry import register_work as register_work

__version__ = "0.1.0"

# Public name -> where it is defined. Imported on first use (PEP 562), so that ``import gobrrr`` and
# ``gobrrr --help`` load neither torch nor numpy.
_HOMES: dict[str, str] = {
    "diagnose": "gobrrr.pipeline.live",
    "fix": "gobrrr.pipeline.fix",
    "FixResult": "gobrrr.search.result",
    "Workload": "gobrrr.timeline.workload",
    "step": "gobrrr.live.steps",
    "diagnose_trace": "gobrrr.pipeline.trace",
    "predict": "gobrrr.pipeline.predict",
    "Meter": "gobrrr.prediction.meter",
    "read_trace": "gobrrr.recordings.traces",
    "Diagnosis": "gobrrr.diagnosis.schema",
    "load": "gobrrr.diagnosis.storage",
    "Ceilings": "gobrrr.devices.ceilings",
    "ceilings_for_this_machine": "gobrrr.devices.machine",
    "ceilings_from_datasheet": "gobrrr.devices.datasheet",
    "ceilings_from_file": "gobrrr.devices.storage",
    "register_work": "gobrrr.work.registry",
    "Work": "gobrrr.work.estimate",
    "OpCall": "gobrrr.timeline.ops",
    "TensorSpec": "gobrrr.timeline.ops",
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


def load_ipython_extension(shell: object) -> None:
    """What ``%load_ext gobrrr`` calls in IPython."""
    import_module("gobrrr.cli.magics").register(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
