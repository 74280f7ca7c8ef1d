"""``gobrrr ceilings``: what this machine can do, and how each figure was got."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import output_path, positive, require_torch
from gobrrr.cli.progress import Progress
from gobrrr.timeline.errors import InputError

if TYPE_CHECKING:
    from gobrrr.devices.ceilings import Ceilings

DESCRIPTION = """Measure this machine's ceilings: peak arithmetic by dtype, bandwidth by memory
level, fixed costs. It takes under a minute, and the result is cached in the user's cache
folder. Reports hold the time of each op against them."""
EXAMPLES = """examples:
  gobrrr ceilings
  gobrrr ceilings --refresh
  gobrrr ceilings --json h100.json       # for gobrrr trace --ceilings elsewhere
  gobrrr ceilings --from h100.json       # show such a file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr ceilings``."""
    parser.add_argument("--refresh", action="store_true", help="measure again")
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="number of threads of a torch op"
    )
    parser.add_argument("--json", type=output_path, metavar="PATH", help="write them to a file")
    parser.add_argument(
        "--from", dest="file", metavar="FILE", help="show the ceilings in FILE instead of measuring"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Measures or reads, writes, shows."""
    parsed = parser.parse_args(arguments)
    if parsed.file is not None:
        ceilings = read_ceilings(parsed.file)
    else:
        ceilings = _measured(parsed)
    if parsed.json is not None:
        from gobrrr.devices import save_ceilings

        try:
            save_ceilings(ceilings, parsed.json)
        except OSError as error:
            raise InputError(f"cannot write {parsed.json}: {error.strerror or error}") from error
    _show(ceilings)
    return 0


def read_ceilings(path: str) -> Ceilings:
    """Ceilings from a file that ``--json`` or a user wrote.

    Raises:
        InputError: it cannot be read, or holds no ceilings.
    """
    from gobrrr.devices import CeilingsFileError, ceilings_from_file

    try:
        return ceilings_from_file(Path(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except CeilingsFileError as error:
        raise InputError(str(error)) from error


def _measured(parsed: argparse.Namespace) -> Ceilings:
    require_torch("gobrrr ceilings")
    from gobrrr.devices import ceilings_for_this_machine

    progress = Progress(None if parsed.quiet else sys.stderr)
    try:
        return ceilings_for_this_machine(
            refresh=parsed.refresh,
            threads=parsed.threads,
            progress=lambda done, total, what: progress(f"ceilings: {what}", done, total),
        )
    finally:
        progress.end()


def _show(ceilings: Ceilings) -> None:
    from gobrrr.reports.plain_table import ceiling_lines
    from gobrrr.reports.terminal import options_for
    from gobrrr.timeline.names import plain_name

    columns = options_for(sys.stdout).width
    print(plain_name(ceilings.device))
    for line in ceiling_lines(
        ceilings.rows.values(), lambda row: f"{row.how}: {plain_name(row.source)}", width=columns
    ):
        print(line)
    for notice in ceilings.notices:
        print(textwrap.fill(f"! {plain_name(notice, 2000)}", columns, subsequent_indent="  "))
