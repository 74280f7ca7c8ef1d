"""Several ranks beside each other, as a diagnosis says it."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.attribution.device import DeviceAttribution
from gobrrr.attribution.ranks import RankComparison
from gobrrr.diagnosis.records import device_time_record, seconds
from gobrrr.diagnosis.schema import RankRow
from gobrrr.diagnosis.verdict import split_of
from gobrrr.timeline.data import Timeline


def rank_rows(result: RankComparison, found: Sequence[DeviceAttribution]) -> list[RankRow]:
    """One row for each rank, in their order."""
    rows = []
    for rank, own in zip(result.ranks, found):
        leaves = {name: ns * 1e-9 for name, ns in rank.attribution.leaves_ns.items()}
        rows.append(
            RankRow(
                rank=rank.rank,
                step_s=rank.attribution.step_ns * 1e-9,
                split=split_of(leaves),
                leaves=leaves,
                device_time=device_time_record(own.device_time),
                wait_s=seconds(rank.wait_ns),
                why=rank.why or None,
            )
        )
    return rows


def pace_of(result: RankComparison) -> str:
    """The sentence of the verdict about the rank that sets the pace; empty if none does."""
    if result.slowest is None:
        return ""
    why = next(rank.why for rank in result.ranks if rank.rank == result.slowest)
    return f"The other ranks wait for rank {result.slowest}: it {why}."


def rank_notices(timelines: Sequence[Timeline], result: RankComparison, shown: int) -> list[str]:
    """What a reader of the diagnosis of one rank has to know of the others."""
    rank = result.ranks[shown].rank
    which = "that the others wait for" if result.slowest is not None else "with the longest step"
    notices = [f"All but the tables of ranks and collectives is of rank {rank}, the one {which}."]
    if all(timeline.world_size is None for timeline in timelines):
        notices.append(
            f"The traces do not say how many ranks their run has: the {len(timelines)} given are "
            "taken for all of them."
        )
    devices = sorted({timeline.device.name for timeline in timelines if timeline.device.name})
    if len(devices) > 1:
        notices.append(f"The ranks ran on different devices: {', '.join(devices)}.")
    return [*notices, *result.notices]
