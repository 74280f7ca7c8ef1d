"""Predict what a step will cost on a device that need not be here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from gobrrr.attribution.cpu_run import Progress
from gobrrr.capture.capture_errors import WantedDataError, wants_data
from gobrrr.capture.op_graph import CaptureOptions, CaptureTarget, capture_op_graph
from gobrrr.capture.workload import Workload, as_workload, load_function
from gobrrr.devices.allocator import mapped_from_bytes
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.fusion_sources import add_predicted_fusion
from gobrrr.models.host_lane import TYPICAL_HOST, HostCosts, host_costs_of
from gobrrr.models.kernel_model import Flags
from gobrrr.models.target import HERE, TargetDevice, target_device, target_of_ceilings
from gobrrr.pipeline.environment import describe_environment
from gobrrr.pipeline.progress import shown
from gobrrr.prediction.bands import band_of
from gobrrr.prediction.capture_target import capture_target
from gobrrr.prediction.costs import cost_graph
from gobrrr.prediction.memory import memory_notice, refuse_too_large
from gobrrr.prediction.step import predicted_step
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.graph import OpGraph

_DTYPES = {"fp16": "float16", "half": "float16", "float16": "float16",
           "bf16": "bfloat16", "bfloat16": "bfloat16"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """How the step is to run on the device; see ``predict``."""

    compile: bool = False
    autocast: str | None = None
    inference_mode: bool = False
    channels_last: bool = False
    size_hint: int | None = None


@overload
def predict(
    workload: Any,
    device: str,
    *,
    compile: bool = ...,
    autocast: Any = ...,
    inference_mode: bool = ...,
    channels_last: bool = ...,
    size_hint: int | None = ...,
    name: str | None = ...,
    progress: Progress | bool | None = ...,
) -> Diagnosis: ...
@overload
def predict(
    workload: Any,
    device: Sequence[str],
    *,
    compile: bool = ...,
    autocast: Any = ...,
    inference_mode: bool = ...,
    channels_last: bool = ...,
    size_hint: int | None = ...,
    name: str | None = ...,
    progress: Progress | bool | None = ...,
) -> list[Diagnosis]: ...
def predict(
    workload: Any,
    device: str | Sequence[str],
    *,
    compile: bool = False,
    autocast: Any = None,
    inference_mode: bool = False,
    channels_last: bool = False,
    size_hint: int | None = None,
    name: str | None = None,
    progress: Progress | bool | None = None,
) -> Diagnosis | list[Diagnosis]:
    """Predict one step of a callable without arguments, ``(module, inputs)`` or a ``Workload``.

    Nothing is computed and no memory is taken: modules and inputs may be on the meta device.

    Args:
        workload: what ``gobrrr.diagnose`` takes.
        device: a name of the data-sheet table (``gobrrr devices`` lists it), or ``"cpu"`` for the
            processor here. Several names give a list of diagnoses.
        compile: what ``torch.compile`` would make of the model.
        autocast: a 16-bit ``torch.dtype`` or its name: the step under autocast.
        inference_mode: under ``torch.inference_mode()``; of a training workload the forward pass.
        channels_last: model and 4-d inputs in that memory format.
        size_hint: an example of the sizes that depend on data.
        name: of the step, for reports.
        progress: as of ``gobrrr.diagnose``: ``None`` tells on stderr what takes more than 2 s.

    Raises:
        InputError: an unknown device; an operator, dtype or size that cannot be captured; more
            memory than the device has (for a single device; in a list a notice says it).
        UserCodeError: the step raised.
    """
    work = as_workload(workload)
    options = PredictOptions(
        compile, dtype_name(autocast), inference_mode, channels_last, size_hint
    )
    title = name or _title(work)
    names = [device] if isinstance(device, str) else list(device)
    found = predict_made(lambda: work, names, options, name=title, progress=progress)
    if isinstance(device, str):
        refuse_too_large(found[0])
        return found[0]
    return found


def predict_function(
    target: str, devices: Sequence[str], options: PredictOptions, *, name: str
) -> list[Diagnosis]:
    """The same for ``file.py:function``, which is run inside the capture: it takes no memory.

    Where its set-up reads values that stand-ins do not have, it is run for real instead.

    Raises:
        InputError, UserCodeError: as ``predict``.
    """
    try:
        return predict_made(lambda: load_function(target), devices, options, name=name)
    except (UserCodeError, WantedDataError) as error:
        if not _wants_data(error):
            raise
    work = load_function(target)
    return predict_made(lambda: work, devices, options, name=name)


def predict_op(
    make: Callable[[], Any],
    devices: Sequence[str],
    options: PredictOptions,
    *,
    name: str,
    tf32: bool = False,
) -> list[Diagnosis]:
    """One op, made by ``make`` (``capture.op_text``), on several devices; ``tf32`` allows it."""
    with _tf32_allowed() if tf32 else contextlib.nullcontext():
        return predict_made(make, devices, options, name=name)


@contextlib.contextmanager
def _tf32_allowed() -> Iterator[None]:
    import torch

    matmul = torch.backends.cuda.matmul
    setting = "fp32_precision" if hasattr(matmul, "fp32_precision") else "allow_tf32"
    before = getattr(matmul, setting)
    setattr(matmul, setting, "tf32" if setting == "fp32_precision" else True)
    try:
        yield
    finally:
        setattr(matmul, setting, before)


def _wants_data(error: BaseException) -> bool:
    from torch._subclasses import fake_tensor

    kinds = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
    )
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, kinds) or wants_data(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def predict_made(
    make: Callable[[], Any],
    devices: Sequence[str],
    options: PredictOptions,
    *,
    name: str,
    progress: Progress | bool | None = None,
) -> list[Diagnosis]:
    """A diagnosis for each device; devices that programs cannot tell apart share one capture."""
    if options.size_hint is not None and options.size_hint < 0:
        raise InputError(f"a size hint is a number of elements, not {options.size_hint}")
    targets = [(_target(device)) for device in devices]
    graphs: dict[Any, OpGraph] = {}
    found: list[Diagnosis] = []
    captured = CaptureOptions(
        options.autocast, options.inference_mode, options.channels_last, options.size_hint
    )
    with shown(progress) as tell:
        for device, host in targets:
            seen = capture_target(device)
            key = _what_programs_see(seen)
            if key not in graphs:
                tell("following the step", 0, 0)
                graphs[key] = capture_op_graph(
                    make, seen, captured, lambda ops: tell(f"following the step, {ops:,} ops", 0, 0)
                )
            tell(f"costing {len(graphs[key].ops):,} ops", len(found), len(targets))
            found.append(diagnose_graph(graphs[key], device, host, options, name=name))
    return found


def diagnose_graph(
    graph: OpGraph, device: TargetDevice, host: HostCosts, options: PredictOptions, *, name: str
) -> Diagnosis:
    """A captured step on one device."""
    if not graph.ops:
        raise InputError("the step runs no operator: there is nothing to predict")
    costed = cost_graph(graph, device, flags=_flags(), compiled=options.compile)
    notices = [*graph.notices, *costed.notices]
    too_large = memory_notice(device.key, graph.peak_memory_bytes, device.memory_bytes)
    if too_large is not None:
        notices.insert(len(graph.notices), too_large)
    band = band_of(device, options.compile, costed.ops)
    source = {
        "kind": "prediction",
        "name": name,
        "device": device.key,
        "compile": options.compile,
        "autocast": options.autocast,
        "inference_mode": options.inference_mode,
        "channels_last": options.channels_last,
        "interval_from": None if band is None else band.source,
        # As many of the notices, the first, say what was not known.
        "assumptions": len(graph.notices),
    }
    step, of_host = predicted_step(
        costed.ops,
        device,
        host,
        compiled=options.compile,
        band=band,
        notices=notices,
        peak_memory_bytes=graph.peak_memory_bytes,
    )
    if of_host is not None:
        source |= {"lower_bound": of_host.lower_bound, "host_s": of_host.total_s}
    diagnosis = assemble(step, source=source, environment=describe_environment())
    if not options.compile:
        add_predicted_fusion(diagnosis, costed.ops, graph, device)
    return diagnosis


def dtype_name(dtype: Any) -> str | None:
    """``torch.float16`` or ``"fp16"`` -> ``"float16"``.

    Raises InputError for a dtype that autocast does not take.
    """
    if dtype is None:
        return None
    name = _DTYPES.get(str(dtype).removeprefix("torch."))
    if name is None:
        raise InputError(f"autocast takes fp16 or bf16, not {dtype}")
    return name


def _target(name: str) -> tuple[TargetDevice, HostCosts]:
    if name != HERE:
        return target_device(name), TYPICAL_HOST
    from gobrrr.pipeline.live import load_ceilings

    ceilings = load_ceilings(refresh=False, progress=lambda *_: None)
    here = replace(
        target_of_ceilings(ceilings, "cpu"), mapped_from_bytes=mapped_from_bytes(os.environ)
    )
    return here, host_costs_of(ceilings)


def _what_programs_see(target: CaptureTarget) -> Any:
    answers = target.answers
    seen = None if answers is None else (answers.type, answers.capability, answers.bfloat16)
    return seen, target.abilities


def _flags() -> Flags:
    from torch import backends

    return Flags(
        tf32_matmul=_allows_tf32(backends.cuda.matmul, backends.cuda.matmul),
        tf32_convolution=_allows_tf32(getattr(backends.cudnn, "conv", None), backends.cudnn),
    )


def _allows_tf32(setting: Any, legacy: Any) -> bool:
    """By ``fp32_precision``, which programs of either interface set; before it, ``allow_tf32``.

    PyTorch refuses to read ``allow_tf32`` once a program has set the other.
    """
    precision = getattr(setting, "fp32_precision", None)
    if precision is not None:
        return bool(precision == "tf32")
    return bool(legacy.allow_tf32)


def _title(work: Workload | Callable[[], Any]) -> str:
    if isinstance(work, Workload):
        return type(work.model).__name__
    return str(getattr(work, "__qualname__", type(work).__name__))
