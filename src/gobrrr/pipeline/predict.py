"""Predict what a step will cost on a device that need not be here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.environment import describe_environment
from gobrrr.diagnosis.fusion.sources import add_predicted_fusion
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.measure.progress import Progress, shown
from gobrrr.prediction.any_step import Refused, step_on
from gobrrr.prediction.capture_target import capture_target, what_programs_see
from gobrrr.prediction.mesh.mesh import refuse_processor
from gobrrr.prediction.options import PredictKeywords, PredictOptions, dtype_name, mesh_options
from gobrrr.prediction.script_graph import ScriptProgram, capture_graph
from gobrrr.prediction.step.energy import energy_record
from gobrrr.prediction.step.memory import refuse_too_large
from gobrrr.prediction.step.targets import predicted_target
from gobrrr.prediction.step.torch_flags import tf32_allowed
from gobrrr.symbolic.capture_errors import WantedDataError, data_were_wanted
from gobrrr.timeline.errors import UserCodeError
from gobrrr.timeline.graph import OpGraph
from gobrrr.timeline.workload import as_workload, load_function, title_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def predict(workload: Any, device: str, **options: Unpack[PredictKeywords]) -> Diagnosis: ...
@overload
def predict(
    workload: Any, device: Sequence[str], **options: Unpack[PredictKeywords]
) -> list[Diagnosis]: ...
def predict(
    workload: Any,
    device: str | Sequence[str],
    *,
    compile: bool | str = False,
    autocast: Any = None,
    inference_mode: bool = False,
    channels_last: bool = False,
    size_hint: int | None = None,
    mesh: str | None = None,
    hosts: int = 1,
    link: str | None = None,
    microbatches: int | None = None,
    schedule: str | None = None,
    host_overhead: float | None = None,
    name: str | None = None,
    progress: Progress | bool | None = None,
) -> Diagnosis | list[Diagnosis]:
    """Predict one step of a callable without arguments, ``(module, inputs)`` or a ``Workload``.

    Nothing is computed and no memory is taken: modules and inputs may be on the meta device.

    Args:
        workload: what ``gobrrr.diagnose`` takes.
        device: a name that ``gobrrr devices`` lists, or ``"cpu"``: the processor here; or a list.
        compile: what ``torch.compile`` would make of it; ``"reduce-overhead"``: in that mode.
        autocast: a 16-bit ``torch.dtype`` or its name: the step under autocast.
        inference_mode: under ``torch.inference_mode()``; of a training workload the forward pass.
        channels_last: model and 4-d inputs in that memory format.
        size_hint: an example of the sizes that depend on data.
        mesh: ``"dp=8"`` (DDP), ``"fsdp=8,tp=2"`` (FSDP2, tensor parallelism): first rank's step.
        hosts: that the mesh is spread over evenly.
        link: what a host sends to others, ``"400Gb"`` or ``"8x400Gb"`` per second; with the time of
            a message beyond NCCL's own for a hop, ``"400Gb,20us"``.
        microbatches: of a pipeline's step, each the workload's batch; four a stage by default.
        schedule: of a pipeline, ``"1f1b"``, ``"gpipe"`` or ``"interleaved"``.
        host_overhead: the program's host time over the one assumed (measured: 0.9 to 3).
        name: of the step, for reports.
        progress: as of ``gobrrr.diagnose``: ``None`` tells on stderr what takes more than 2 s.

    Raises:
        InputError: an unknown device; an operator, dtype or size that cannot be captured; more
            memory than the device has (for a single device; in a list a notice says it).
        UserCodeError: the step raised.
    """
    work = as_workload(workload)
    wished = mesh_options(
        mesh, hosts, link, compiled=compile, microbatches=microbatches, schedule=schedule
    )
    options = PredictOptions(
        compile, dtype_name(autocast), inference_mode, channels_last, size_hint, mesh=wished,
        host_overhead=host_overhead,
    )  # fmt: skip
    title = name or title_of(work)
    names = [device] if isinstance(device, str) else list(device)
    found = predict_made(lambda: work, names, options, name=title, progress=progress)
    if isinstance(device, str):
        refuse_too_large(found[0])
        return found[0]
    return found


def predict_function(
    target: str, devices: Sequence[str], options: PredictOptions, *, name: str,
    refused: Refused | None = None,
) -> list[Diagnosis]:  # fmt: skip
    """The same for ``file.py:function``, which is run inside the capture: it takes no memory.

    Where its set-up reads values that stand-ins do not have, it is run for real instead.

    Raises:
        InputError, UserCodeError: as ``predict``.
    """
    predicted = partial(predict_made, devices=devices, options=options, name=name, refused=refused)
    try:
        return predicted(lambda: load_function(target))
    except (UserCodeError, WantedDataError) as error:
        if not data_were_wanted(error):
            raise
    work = load_function(target)
    return predicted(lambda: work)


def predict_made(
    make: Callable[[], Any] | ScriptProgram,
    devices: Sequence[str],
    options: PredictOptions,
    *,
    name: str,
    progress: Progress | bool | None = None,
    refused: Refused | None = None,
) -> list[Diagnosis]:
    """A diagnosis for each device; devices that programs cannot tell apart share one capture.

    ``refused`` takes those without a path for a dtype; without it the first of them raises.
    """
    captured = options.for_capture()
    for name_of_device in devices if options.mesh is not None else ():
        refuse_processor(name_of_device)
    targets = [predicted_target(device, options.host_overhead) for device in devices]
    graphs: dict[Any, OpGraph] = {}
    found: list[Diagnosis] = []
    tf32 = tf32_allowed() if options.tf32 else contextlib.nullcontext()
    with tf32, shown(progress) as tell:
        for device, host in targets:
            seen = capture_target(device)
            key = what_programs_see(seen)
            if key not in graphs:
                tell("capturing the step", 0, 0)
                graphs[key] = capture_graph(
                    make, seen, captured, lambda ops: tell(f"capturing the step, {ops:,} ops", 0, 0)
                )
            tell(f"predicting {len(graphs[key].ops):,} ops", len(found), len(targets))
            done = step_on(graphs[key], device, host, options, name=name, refused=refused)
            if done is None:
                continue
            step, ops, source = done
            diagnosis = assemble(step, source=source, environment=describe_environment())
            # Of a model that several devices share, one device's energy is not that of its tokens.
            if options.mesh is None or options.mesh.mesh.tp == options.mesh.mesh.pp == 1:
                diagnosis.energy = energy_record(ops, diagnosis.step_s, device)
            if not options.compile and options.mesh is None:
                add_predicted_fusion(diagnosis, ops, graphs[key], device)
            found.append(diagnosis)
    return found
