"""Ranks side by side, and their collectives, as text cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

from gobrrr.diagnosis.schema import CollectiveRow, Diagnosis, ExposedRow, RankRow, Split
from gobrrr.reports.tables import Column, Row, TextTable, time_scale
from gobrrr.reports.words import PARTS, PHASE_SHORT, Part
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import UNKNOWN, count, share, si, time_text

# Ranks that a table of leaves has a column each for; of more it shows the mean and the extremes.
_MOST_COLUMNS = 6
# A leaf that no rank spends this share of the step on is left out of that table.
_WORTH_A_ROW = 0.005


def rank_tables(diagnosis: Diagnosis, top: int) -> list[TextTable]:
    """All that is known of several ranks, as tables; those without rows are to be left out."""
    return [
        rank_table(diagnosis, top),
        leaf_table(diagnosis),
        exposed_table(diagnosis, top),
        collective_table(diagnosis, top),
    ]


def rank_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """One row per rank, by rank; if they do not all fit, the one diagnosed comes first."""
    scale, ranks = time_scale(diagnosis), list(diagnosis.ranks or ())
    if len(ranks) > top:
        shown = diagnosis.source.get("rank")
        ranks.sort(key=lambda row: (row.rank != shown, -row.step_s))
    unmodelled = any(row.split.unmodelled_s for row in ranks)
    columns = (
        Column("rank", number=False, flexible=True),
        Column("step"),
        Column("compute"),
        Column("memory"),
        Column("overhead"),
        *((Column("unmodelled"),) if unmodelled else ()),
        Column("waiting"),
    )

    def row(rank: RankRow) -> Row:
        split = rank.split
        times = [rank.step_s, split.compute_s, split.memory_s, split.overhead_s]
        times += [split.unmodelled_s] if unmodelled else []
        cells = (str(rank.rank), *(scale.number(t) for t in times), scale.number(rank.wait_s))
        return Row(cells, plain_name(rank.why or ""))

    def mean(split: Split) -> Row:
        times = [split.compute_s, split.memory_s, split.overhead_s]
        times += [split.unmodelled_s] if unmodelled else []
        waits = [rank.wait_s for rank in ranks if rank.wait_s is not None]
        wait = _mean(waits) if len(waits) == len(ranks) else None
        cells = (scale.number(t) for t in (sum(times), *times, wait))
        return Row(("mean", *cells))

    rows = tuple(row(rank) for rank in ranks[:top])
    if diagnosis.job is not None and diagnosis.job.mean is not None:
        rows = (*rows, mean(diagnosis.job.mean))
    title = f"Ranks, {scale.unit} per step"
    return TextTable(title, columns, rows, max(0, len(ranks) - top), second_line=True)


def _mean(values: Sequence[float]) -> float:
    # ``statistics`` takes longer to load than all tables to draw.
    return fsum(values) / len(values)


def leaf_table(diagnosis: Diagnosis) -> TextTable:
    """Where each rank's step goes, leaf by leaf: what one has more of than the others."""
    scale, ranks = time_scale(diagnosis), list(diagnosis.ranks or ())
    if diagnosis.job is None or len(ranks) < 2:
        return TextTable("", (), ())
    shown: list[tuple[str, Callable[[Sequence[float]], float]]]
    if len(ranks) <= _MOST_COLUMNS:
        shown = [(f"rank {rank.rank}", _nth(i)) for i, rank in enumerate(ranks)]
    else:
        shown = [("mean", _mean), ("least", min), ("most", max)]
        paced = [i for i, rank in enumerate(ranks) if rank.rank == diagnosis.job.slowest]
        shown += [(f"rank {ranks[i].rank}", _nth(i)) for i in paced]
    rows = []
    for level, parts in PARTS.items():
        for part in parts:
            times = [_time_of(part, rank) for rank in ranks]
            if max(times) >= _WORTH_A_ROW * diagnosis.accounted_s:
                name = part.label if part.label == level else f"{level}: {part.label}"
                rows.append(Row((name, *(scale.number(of(times)) for _, of in shown))))
    columns = (Column("part", number=False, flexible=True), *(Column(name) for name, _ in shown))
    return TextTable(f"Parts of the step by rank, {scale.unit}", columns, tuple(rows))


def _nth(index: int) -> Callable[[Sequence[float]], float]:
    return lambda times: times[index]


def _time_of(part: Part, rank: RankRow) -> float:
    leaves = (part.leaf, part.roof, part.below)
    return sum(rank.leaves.get(leaf, 0.0) for leaf in leaves if leaf)


def exposed_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Communication that nothing hides, by process group, phase and module that asked for it."""
    scale = time_scale(diagnosis)
    columns = (
        Column("exposed communication of", number=False, flexible=True, path=True),
        Column("phase", number=False),
        Column("group", number=False),
        Column(scale.unit),
        Column("step"),
        Column("waiting"),
    )

    def row(found: ExposedRow) -> Row:
        return Row(
            (
                plain_name(found.module) or "(no module)",
                PHASE_SHORT.get(found.phase, found.phase),
                plain_name(found.group or UNKNOWN),
                scale.number(found.time_s),
                share(found.time_s, diagnosis.accounted_s),
                scale.number(found.wait_s),
            )
        )

    rows = tuple(row(found) for found in diagnosis.exposed[:top])
    left_out = max(0, len(diagnosis.exposed) - top)
    return TextTable("Exposed communication", columns, rows, left_out)


def job_line(diagnosis: Diagnosis) -> str:
    """How the ranks were compared, for the end of a report; empty for a process on its own."""
    job = diagnosis.job
    if job is None:
        return ""
    ranks = len(diagnosis.ranks or ())
    hosts = "1 host" if job.hosts == 1 else f"{job.hosts} hosts"
    text = f"{ranks} of {job.world_size} ranks on {hosts}"
    if ranks > 1:
        same = job.same_steps
        text += ", compared over the same steps" if same else ", which measured different steps"
    if job.longest_rank is not None and job.longest is not None:
        text += f"; rank {job.longest_rank} is busy longest"
    if job.busier_s is not None:
        text += f", rank {job.slowest} by {time_text(job.busier_s)} longer than the others"
    if job.clock_residual_s is not None:
        apart = time_text(job.clock_residual_s)
        text += f"; the recorded ends of a collective differ by {apart} between ranks (median)"
    if job.clocks_apart:
        listed = ", ".join(map(str, job.clocks_apart))
        text += f"; clocks not compared with that of the first rank: {listed}"
    return f"{text}."


def collective_table(diagnosis: Diagnosis, top: int, *, wide: bool = False) -> TextTable:
    """Collectives by name, size and group; what is known per call on a second line.

    ``wide``: in columns of its own, for a page.
    """
    scale = time_scale(diagnosis)
    columns = (
        Column("collective", number=False, flexible=True),
        Column("size"),
        Column("of ranks"),
        Column("calls"),
        Column(scale.unit),
        Column("exposed"),
        Column("skew"),
        Column("bus"),
        *((Column("transfer"), Column("data"), Column("last rank")) if wide else ()),
    )

    def row(found: CollectiveRow) -> Row:
        cells = (
            plain_name(found.name),
            si(found.bytes, "B"),
            UNKNOWN if found.group_size is None else str(found.group_size),
            count(found.calls),
            scale.number(found.time_s),
            scale.number(found.exposed_s),
            time_text(found.skew_s),
            si(found.bus_bytes_per_s, "B/s"),
        )
        if not wide:
            return Row(cells, _per_call(found))
        last = UNKNOWN if found.last_rank is None else str(found.last_rank)
        transfer = time_text(found.transfer_s)
        return Row((*cells, transfer, si(found.algorithm_bytes_per_s, "B/s"), last))

    found = diagnosis.collectives
    rows = tuple(row(each) for each in found[:top])
    return TextTable("Collectives", columns, rows, max(0, len(found) - top), second_line=True)


def _per_call(found: CollectiveRow) -> str:
    parts = []
    if found.transfer_s is not None:
        parts.append(f"transfer {time_text(found.transfer_s)}")
    if found.algorithm_bytes_per_s is not None:
        parts.append(f"{si(found.algorithm_bytes_per_s, 'B/s')} of data")
    if found.last_rank is not None:
        parts.append(f"rank {found.last_rank} usually arrives last")
    return " · ".join(parts)
