"""A step of several ranks, as a diagnosis holds it for reports to draw."""

from __future__ import annotations

from gobrrr.diagnosis.schema import JobLanes, RankLane

MS = 1_000_000


def job(ranks: int = 2, calls: int = 1) -> JobLanes:
    """A step of 100 ms; all come to an all-reduce at 30 ms, the last rank at 70; it ends at 90."""
    last = ranks - 1
    return JobLanes(
        step="step 3",
        duration_ns=100 * MS,
        ranks=ranks,
        one_clock=True,
        clock_residual_s=25e-6,
        names=["all_reduce"],
        lanes=[
            RankLane(
                rank=rank,
                start_ns=0,
                end_ns=100 * MS,
                work_phase=["forward", "backward", "other"],
                work_start_ns=[0, 10 * MS, 91 * MS],
                work_duration_ns=[10 * MS, 15 * MS, 2 * MS],
                call_name=[0] * calls,
                call_start_ns=[(70 if rank == last else 30) * MS] * calls,
                call_duration_ns=[(20 if rank == last else 60) * MS] * calls,
                call_wait_ns=[0 if rank == last else 40 * MS] * calls,
                call_waits_for=[None if rank == last else last] * calls,
            )
            for rank in range(ranks)
        ],
    )
