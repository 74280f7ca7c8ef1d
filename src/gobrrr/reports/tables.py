"""The tables of a diagnosis as text cells, for any report that can draw rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TypeVar

from msgspec.structs import replace as replace_in_record

from gobrrr import reports
from gobrrr.diagnosis.schema import Diagnosis, GroupRow, OpRow
from gobrrr.reports.blocks import join_blocks
from gobrrr.reports.words import CLASS_MEANINGS, PHASE_SHORT, cause_label
from gobrrr.roofline.operator_limits import LIMITS
from gobrrr.timeline.names import FROM, op_name, plain_name, short_source
from gobrrr.timeline.quantities import TimeScale, count, percent, share, si, significant

_Item = TypeVar("_Item")
# What is left for a module's name in a terminal of 80 columns.
_ROOM_FOR_CLASS = 31


@dataclass(frozen=True, slots=True)
class Column:
    """A column: numbers are flush right; the one flexible column takes what width is left.

    ``path`` says that a cell which must be cut tells most at its end.
    """

    header: str
    number: bool = True
    flexible: bool = False
    path: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of one row; ``detail`` is a second line under it, over the whole width."""

    cells: tuple[str, ...]
    detail: str = ""
    regime: str = ""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table ready to draw. ``left_out`` rows did not fit into ``top``.

    ``second_line``: a row may take a second line, for details and for a name that was cut.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: int = 0
    second_line: bool = False


def time_scale(diagnosis: Diagnosis) -> TimeScale:
    """The unit of all per-step times of this diagnosis."""
    return TimeScale.of(max(diagnosis.step_s, diagnosis.accounted_s))


def op_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Ops by shapes: time, share, regime, share of the ceiling, intensity, achieved rate."""
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    sources = {op.source for op in diagnosis.ops[:top]}
    # A line that is every row's tells them not apart: it is told once.
    everywhere = short_source(next(iter(sources)) or "") if len(sources) == 1 else ""
    title = f"Ops, all at {everywhere}" if everywhere and len(diagnosis.ops) > 1 else "Ops"
    columns = (
        Column("op", number=False, flexible=True),
        Column("calls"),
        Column(scale.unit),
        Column("step"),
        Column("bound by", number=False),
        Column("of ceiling"),
        Column("FLOP/B"),
        Column("achieved"),
    )

    def row(op: OpRow) -> Row:
        cells = (
            op_name(op.name),
            count(op.count),
            scale.number(op.time_s),
            share(op.time_s, step_s),
            _bound_by(op),
            percent(op.roof_fraction),
            significant(op.intensity),
            _achieved(op),
        )
        return Row(cells, _where(op, lined=title == "Ops"), op.regime)

    return replace(_table(title, columns, diagnosis.ops, top, row), second_line=True)


def _bound_by(op: OpRow) -> str:
    """The level, or what decides where neither FLOPs nor bytes do."""
    return op.unit if op.unit in LIMITS else op.regime


def _achieved(op: OpRow) -> str:
    if op.regime == "compute" and op.flops_per_s is not None:
        return si(op.flops_per_s, "FLOP/s")
    return si(op.bytes_per_s, "B/s")


def _where(op: OpRow, *, lined: bool) -> str:
    parts = (
        plain_name(op.shapes),
        op.dtypes if op.dtypes != op.shapes else "",
        plain_name(op.module or ""),
        PHASE_SHORT.get(op.phase or "", ""),
        short_source(op.source or "") if lined else "",
    )
    return " · ".join(part for part in parts if part)


def _group_columns(first: str, unit: str) -> tuple[Column, ...]:
    return (
        Column(first, number=False, flexible=True, path=True),
        Column("phase", number=False),
        Column(unit),
        Column("step"),
        Column("compute"),
        Column("memory"),
        Column("overhead"),
    )


def _group_table(
    diagnosis: Diagnosis, title: str, first: str, groups: Sequence[GroupRow], top: int
) -> TextTable:
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s

    def row(group: GroupRow) -> Row:
        cells = (
            plain_name(group.name) or f"(no {first})",
            PHASE_SHORT.get(group.phase or "", group.phase or ""),
            scale.number(group.time_s),
            share(group.time_s, step_s),
            scale.number(group.compute_s),
            scale.number(group.memory_s),
            scale.number(group.overhead_s),
        )
        return Row(cells, regime=group.regime or "")

    return _table(title, _group_columns(first, scale.unit), groups, top, row)


def module_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Modules by path, backward time with the forward module that caused it; blocks joined.

    Phases where no module is known.
    """
    if not any(group.name for group in diagnosis.modules):
        return phase_table(diagnosis, top)
    rows = [_with_class(row) for row in join_blocks(diagnosis.modules)]
    return _group_table(diagnosis, "Modules", "module", rows, top)


def _with_class(row: GroupRow) -> GroupRow:
    """A module with its class, where both fit and the class says more than the path."""
    last = row.name.split(" ")[0].rpartition(".")[2]
    named = f"{row.name} ({row.module_class})"
    if not row.module_class or row.module_class == last or len(named) > _ROOM_FOR_CLASS:
        return row
    return replace_in_record(row, name=named)


def line_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Source lines of the user's program; a package's with the user's own that led to it."""
    lines = [replace_in_record(row, name=_line(row.name)) for row in diagnosis.lines]
    return _group_table(
        diagnosis,
        "Source lines: their ops, and the overhead that leads to these",
        "line",
        lines,
        top,
    )


def _line(source: str) -> str:
    """A line where there is room for one; of two both, shortened."""
    return short_source(source) if FROM in source else source


def phase_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Forward, backward, optimizer and the rest."""
    table = _group_table(diagnosis, "Phases", "phase", diagnosis.phases, top)
    # Their names are the phases: the second column would be empty.
    rows = tuple(replace(row, cells=(row.cells[0], *row.cells[2:])) for row in table.rows)
    return replace(table, columns=(table.columns[0], *table.columns[2:]), rows=rows)


def class_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Share of FLOPs and of time by op class.

    The three classes are those of Ivanov et al., "Data Movement Is All You Need" (MLSys 2021).
    """
    scale = time_scale(diagnosis)
    columns = (
        Column("class", number=False, flexible=True),
        Column("calls"),
        Column("FLOPs"),
        Column("of FLOPs"),
        Column(scale.unit),
        Column("of step"),
        Column("achieved"),
    )

    def row(group: GroupRow) -> Row:
        return Row(
            (
                CLASS_MEANINGS.get(group.name, plain_name(group.name)),
                count(group.count),
                si(group.flops),
                percent(group.flops_share, 1),
                scale.number(group.time_s),
                percent(group.time_share, 1),
                si(group.flops_per_s or None, "FLOP/s"),
            )
        )

    # A handful of classes, of which the small ones matter too: never cut.
    rows = len(diagnosis.classes)
    return _table("Share of FLOPs and of time by op class", columns, diagnosis.classes, rows, row)


def cause_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Overhead by cause and by the line that spends it."""
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    columns = (
        Column("overhead", number=False),
        Column(scale.unit),
        Column("step"),
        Column("where", number=False, flexible=True, path=True),
    )
    rows = [
        Row(
            (
                cause_label(idle.cause),
                scale.number(idle.time_s),
                share(idle.time_s, step_s),
                plain_name(" · ".join(filter(None, (_line(idle.source or ""), idle.detail)))),
            )
        )
        for idle in diagnosis.idle
    ]
    return _table("Overhead by cause", columns, rows, top, lambda row: row)


def growth_table(diagnosis: Diagnosis, top: int) -> TextTable:
    """Each op's growth when the batch doubled, beside what its work predicts."""
    scale = time_scale(diagnosis)
    columns = (
        Column("op", number=False, flexible=True),
        Column("1x"),
        Column("2x"),
        Column("expected"),
        Column("", number=False),
    )
    doubling = diagnosis.batch_doubling
    rows = [
        Row(
            (
                f"{op_name(row.name)} {plain_name(row.shapes)}",
                scale.number(row.time_s),
                scale.number(row.doubled_s),
                scale.number(row.expected_s),
                row.note or "",
            )
        )
        for row in (doubling.ops if doubling else ())
    ]
    title = f"Growth of each op with the batch, {scale.unit}"
    return _table(title, columns, rows, top, lambda row: row)


def _table(
    title: str,
    columns: tuple[Column, ...],
    items: Sequence[_Item],
    top: int,
    row: Callable[[_Item], Row],
) -> TextTable:
    shown = tuple(row(item) for item in items[:top])
    return TextTable(title, columns, shown, max(0, len(items) - top))


def tables_named(names: Sequence[str], diagnosis: Diagnosis, top: int) -> list[TextTable]:
    """Those of them that have rows, each once: modules are phases where none is known."""
    tables = {table.title: table for table in (table_named(n, diagnosis, top) for n in names)}
    return [table for table in tables.values() if table.rows]


def table_named(name: str, diagnosis: Diagnosis, top: int) -> TextTable:
    """One of ``reports.TABLES``, of at most ``top`` rows. Raises ``KeyError`` for another name."""
    entry = {table.name: table for table in reports.TABLES}[name]
    draw: Callable[[Diagnosis, int], TextTable] = getattr(
        import_module(entry.module), entry.function
    )
    return draw(diagnosis, top)
