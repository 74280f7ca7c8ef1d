"""What a saved diagnosis says by itself, as facts: quick to import, and without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast, get_args

from gobrrr.diagnosis.facts import Facts, IdleFact, OpFact, RankFact
from gobrrr.diagnosis.remedies import is_compiled
from gobrrr.diagnosis.schema import Diagnosis, OpRow
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import OpClass, Work


def facts_of_record(diagnosis: Diagnosis, ops: Sequence[OpFact] | None = None) -> Facts:
    """What a diagnosis alone says, of a step that may have run elsewhere; needs no torch.

    ``ops``: as they were captured; otherwise the rows of the diagnosis.
    """
    phases = {row.phase for row in diagnosis.ops}
    return Facts(
        step_s=diagnosis.accounted_s,
        leaves=dict(diagnosis.leaves),
        ops=ops_of_rows(diagnosis.ops) if ops is None else tuple(ops),
        in_order=False,
        idle=tuple(IdleFact(row.cause, row.time_s, row.source, row.detail)
                   for row in diagnosis.idle),
        wall=diagnosis.wall,
        mean_s=diagnosis.step.time_s.mean if diagnosis.step.seen is None
        else diagnosis.step.seen.mean_s,
        varying=diagnosis.step.varying,
        ranks=tuple(RankFact(row.rank, row.step_s, row.wait_s) for row in diagnosis.ranks or ()),
        slowest_rank=None if diagnosis.job is None else diagnosis.job.slowest,
        uneven_s=None if diagnosis.job is None else diagnosis.job.uneven_s,
        slow_s=tuple(slow.time_s for slow in diagnosis.step.slow_steps),
        counters=dict(diagnosis.counters),
        ceilings={row.name: row.value for row in diagnosis.device.ceilings},
        device_kind=diagnosis.device.kind,
        device_name=diagnosis.device.name,
        memory_bytes=diagnosis.device.memory_bytes,
        trains="backward" in phases or "training" in diagnosis.step.kind,
        compiled=is_compiled(diagnosis),
        module_classes={row.name: row.module_class for row in diagnosis.modules
                        if row.module_class is not None},
    )  # fmt: skip


def ops_of_rows(rows: Iterable[OpRow]) -> tuple[OpFact, ...]:
    """Each row as one op that stands for its calls."""
    return tuple(
        OpFact(
            call=OpCall(row.name), work=_work_of_row(row), count=row.count, kernel_s=row.kernel_s,
            fixed_s=row.fixed_s, roof_s=row.roof_s, below_s=row.below_s,
            page_faults_s=row.page_faults_s, module=row.module or "", source=row.source or "",
            phase=row.phase or "",
        )
        for row in rows
    )  # fmt: skip


def _work_of_row(row: OpRow) -> Work | None:
    """What a row of the diagnosis says of its calls' work: how many bytes, not which."""
    if row.op_class not in get_args(OpClass):
        return None
    matrix = row.unit == "matrix"
    moved = None if row.bytes is None else round(row.bytes)
    return Work(
        matrix_flops=row.flops if matrix else 0.0, vector_flops=0.0 if matrix else row.flops,
        bytes_read=moved, bytes_written=None if moved is None else 0, unique_bytes=moved,
        compute_dtype=row.dtype or "", op_class=cast(OpClass, row.op_class),
    )  # fmt: skip
