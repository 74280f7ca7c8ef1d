"""Ranks side by side, and their collectives, as text cells."""

from __future__ import annotations

from gobrrr.diagnosis.schema import CollectiveRow, Diagnosis, RankRow
from gobrrr.reports.tables import Column, Row, TextTable, time_scale
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import UNKNOWN, count, si, time_text


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

    rows = tuple(row(rank) for rank in ranks[:top])
    title = f"Ranks, {scale.unit} per step"
    return TextTable(title, columns, rows, max(0, len(ranks) - top), second_line=True)


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
        parts.append(f"rank {found.last_rank} mostly arrives last")
    return " · ".join(parts)
