"""A diagnosis -> terminal, JSON, Markdown. A report computes nothing: it shows what was found.

Nothing is imported here: the command line needs the names below for its help.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A file that a diagnosis can be written as: ``--<option> PATH``.

    ``module`` has ``render(diagnosis, *, top, by) -> bytes``: rows per table (``None``: its own
    choice) and names of tables (empty: its own choice).
    """

    option: str
    help: str
    module: str


FORMATS: tuple[Format, ...] = (
    Format("json", "write the diagnosis, to be read again", "gobrrr.reports.json"),
    Format(
        "html", "write a page with charts, in one file that opens offline", "gobrrr.reports.html"
    ),
    Format("markdown", "write a summary for a pull request", "gobrrr.reports.markdown"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table that ``--by`` shows.

    ``function`` of ``module`` takes ``(diagnosis, top)`` and gives a ``TextTable`` of text cells,
    so that every report can draw it.
    """

    name: str
    module: str
    function: str


# In the order of the help text.
TABLES: tuple[Table, ...] = (
    Table("op", "gobrrr.reports.tables", "op_table"),
    Table("module", "gobrrr.reports.tables", "module_table"),
    Table("line", "gobrrr.reports.tables", "line_table"),
    Table("class", "gobrrr.reports.tables", "class_table"),
    Table("phase", "gobrrr.reports.tables", "phase_table"),
    Table("cause", "gobrrr.reports.tables", "cause_table"),
    Table("batch", "gobrrr.reports.tables", "growth_table"),
)
