"""What a step does, counted once and not timed: seconds instead of a diagnosis."""

from __future__ import annotations

from typing import Any

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.attribution.cpu.attributed import counted_reads
from gobrrr.attribution.recorded_work import works_of
from gobrrr.devices.backends import gpu_in_use, identify
from gobrrr.diagnosis.figures import FIGURES_VERSION, Figures, with_synchronisations
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.observe.snapshot import state_put_back
from gobrrr.timeline.errors import UserCodeError
from gobrrr.timeline.workload import Workload, as_workload, modules_of, reached_by, title_of


def count_step(target: Any, *, name: str | None = None, warmup: int = 1) -> Figures:
    """FLOPs, bytes, ops and reads of one value of one recorded step, after ``warmup`` others.

    ``target``: as ``gobrrr.diagnose`` takes it; its state is put back. Kernels, and what else a
    profiler counts, stay unknown; on a GPU synchronisations are.

    Raises InputError for a target that cannot be run, UserCodeError if a step raises.
    """
    work = as_workload(target)
    step = work.step if isinstance(work, Workload) else work
    recorder = OpRecorder(modules_of(work))
    with state_put_back(reached_by(work), []):
        try:
            for _ in range(warmup):
                step()
            with recorder:
                step()
        except Exception as error:
            raise UserCodeError(f"the step raised {type(error).__name__}: {error}") from error
    gpu = gpu_in_use()
    device = (None if gpu is None else gpu.identify()) or identify("cpu")
    known = [found for found in works_of(recorder.ops) if found is not None]
    counters = {
        "flops": float(sum(found.flops or 0.0 for found in known)),
        "bytes": float(sum(found.bytes_moved or 0 for found in known)),
        "ops": float(len(recorder.ops)),
        **counted_reads([(op, 1.0) for op in recorder.ops]),
    }
    lines: dict[str, float] = {}
    for op in recorder.ops:
        if op.call.name == READ_OF_ONE_VALUE and op.source and not op.by_library:
            lines[op.source] = lines.get(op.source, 0.0) + 1
    return Figures(
        figures_version=FIGURES_VERSION,
        name=name or title_of(work),
        device=device.name,
        kind=device.kind,
        counters=with_synchronisations(counters) if device.kind == "cpu" else counters,
        lines=lines,
    )
