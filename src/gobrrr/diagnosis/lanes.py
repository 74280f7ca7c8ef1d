"""One step of all ranks side by side on one clock, as columns that a report can draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gobrrr.attribution.collectives import Matched
from gobrrr.diagnosis.records import seconds
from gobrrr.diagnosis.schema import JobLanes, RankLane
from gobrrr.ranks.job_clocks import Clock
from gobrrr.ranks.rank_record import RankRecord

# What fits on a page, and what a page is not too large with: of all lanes together.
MOST_LANES = 64
MOST_CALLS = 800


def lanes_of(
    records: Sequence[RankRecord],
    matched: Sequence[Matched],
    clocks: Sequence[Clock],
    residual_ns: float | None,
    step_names: Sequence[Sequence[str]] | None = None,
) -> JobLanes | None:
    """The step of median length of those that all ranks have; by length, that of its longest rank.

    Args:
        records: of each rank.
        matched: of each rank, what was found of its ``calls``, row by row.
        clocks: of each rank.
        residual_ns: how far apart the ranks then saw the same collectives end.
        step_names: of each rank, a name for each of its steps by which they are the same; by
            default they are so by their number.

    Returns ``None`` where that cannot be drawn: one rank, clocks that nothing brings together, no
    step in common.
    """
    if len(records) < 2 or len({clock.of for clock in clocks}) > 1:
        return None
    shifts = [clock.ahead_ns for clock in clocks]
    if step_names is None:
        step_names = [[f"step {i + 1}" for i in range(len(record.steps))] for record in records]
    windows = [
        {name: (start - shift, end - shift) for name, (start, end) in zip(names, record.steps)}
        for record, names, shift in zip(records, step_names, shifts)
    ]
    common = [name for name in windows[0] if all(name in of for of in windows)]
    if not common:
        return None
    common.sort(key=lambda name: max(of[name][1] - of[name][0] for of in windows))
    step = common[(len(common) - 1) // 2]
    zero = min(of[step][0] for of in windows)
    end = max(of[step][1] for of in windows)
    names: dict[str, int] = {}
    ranks = [record.rank for record in records]
    drawn = _drawn(records, matched, [of[step] for of in windows], shifts)
    most = max(1, MOST_CALLS // len(drawn))
    lanes = [
        _lane(records[i], matched[i], ranks, windows[i][step], shifts[i], (zero, end), names, most)
        for i in drawn
    ]
    return JobLanes(
        step=step,
        duration_ns=end - zero,
        ranks=len(records),
        one_clock=len({record.host for record in records}) == 1,
        clock_residual_s=seconds(residual_ns),
        names=list(names),
        lanes=lanes,
    )


def _drawn(
    records: Sequence[RankRecord],
    matched: Sequence[Matched],
    windows: Sequence[tuple[int, int]],
    shifts: Sequence[int],
) -> list[int]:
    """The ranks to draw: if they are too many, those that wait longest and are waited for."""
    if len(records) <= MOST_LANES:
        return list(range(len(records)))
    involved: Counter[int] = Counter(dict.fromkeys(range(len(records)), 0))
    for i, (record, match) in enumerate(zip(records, matched)):
        for row in _calls_in(record, windows[i], shifts[i]):
            last = int(match.last[row])
            if last >= 0 and match.complete[row]:
                involved[i] += round(match.wait_ns[row])
                involved[last] += round(match.wait_ns[row])
    return sorted(i for i, _ in involved.most_common(MOST_LANES))


def _calls_in(record: RankRecord, window: tuple[int, int], shift: int) -> list[int]:
    return [
        row
        for row, call in enumerate(record.calls)
        if window[0] <= call.start_ns - shift < window[1]
    ]


def _lane(
    record: RankRecord,
    match: Matched,
    ranks: Sequence[int],
    window: tuple[int, int],
    shift: int,
    axis: tuple[int, int],
    names: dict[str, int],
    most: int,
) -> RankLane:
    zero, end = axis
    lane = RankLane(rank=record.rank, start_ns=window[0] - zero, end_ns=window[1] - zero)
    for phase, begun, until in record.stretches:
        if window[0] <= begun - shift < window[1]:
            lane.work_phase.append(phase)
            lane.work_start_ns.append(begun - shift - zero)
            lane.work_duration_ns.append(until - begun)
    rows = _calls_in(record, window, shift)
    longest = sorted(rows, key=lambda row: record.calls[row].start_ns - record.calls[row].end_ns)
    lane.left_out = max(0, len(rows) - most)
    for row in sorted(longest[:most], key=lambda row: record.calls[row].start_ns):
        call, last = record.calls[row], int(match.last[row])
        told = last >= 0 and bool(match.complete[row])
        wait_ns = round(match.wait_ns[row]) if told else None
        begin = call.start_ns - shift - zero
        name = record.collectives[call.which][0] or "collective"
        lane.call_name.append(names.setdefault(name, len(names)))
        lane.call_start_ns.append(begin)
        lane.call_duration_ns.append(max(0, min(call.end_ns - shift, end) - zero - begin))
        lane.call_wait_ns.append(wait_ns)
        lane.call_waits_for.append(ranks[last] if wait_ns and ranks[last] != record.rank else None)
    return lane
