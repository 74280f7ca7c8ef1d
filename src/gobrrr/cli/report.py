"""``gobrrr report``: a saved diagnosis, shown again."""

from __future__ import annotations

import argparse

from gobrrr.cli.output import show, write_files
from gobrrr.cli.parsing import add_report_options
from gobrrr.diagnosis.storage import load

DESCRIPTION = "Show a diagnosis that --json wrote. Nothing is measured again."
EXAMPLES = """examples:
  gobrrr report d.json
  gobrrr report d.json --by module,line --top 20
  gobrrr report d.json --markdown summary.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr report``."""
    parser.add_argument("diagnosis", metavar="FILE", help="a file that --json wrote")
    add_report_options(parser)


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Loads, writes, shows."""
    parsed = parser.parse_args(arguments)
    diagnosis = load(parsed.diagnosis)
    write_files(diagnosis, parsed)
    show(diagnosis, parsed, read_from=parsed.diagnosis)
    return 0
