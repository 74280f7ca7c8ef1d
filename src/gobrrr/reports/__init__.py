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

# What ``--by`` accepts; ``gobrrr.reports.tables`` draws each.
TABLE_NAMES = ("op", "module", "line", "class", "phase", "cause", "batch")
