"""Writing what was found: the files that were asked for, then the report."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TextIO

from gobrrr import reports
from gobrrr.cli.streams import flush_stdout, takes_text
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import Format
from gobrrr.reports.terminal import gist_text, options_for, print_report
from gobrrr.timeline.files import write_output


def write_files(diagnosis: Diagnosis, arguments: argparse.Namespace) -> None:
    """Writes every file that was asked for (``--json PATH`` and the like).

    Raises:
        InputError: a file cannot be written.
        AccountingError: the leaves do not sum to the step.
    """
    for form, path in _asked_for(arguments):
        render = import_module(form.module).render
        write_output(path, render(diagnosis, top=arguments.top, by=arguments.by))


def _asked_for(arguments: argparse.Namespace) -> list[tuple[Format, Path]]:
    paths = ((form, getattr(arguments, form.option)) for form in reports.FORMATS)
    return [(form, path) for form, path in paths if path is not None]


def show(
    diagnosis: Diagnosis,
    arguments: argparse.Namespace,
    stream: TextIO | None = None,
    *,
    read_from: str = "",
    also: Sequence[str] = (),
) -> None:
    """Prints the report to a stream (stdout), as it suits that stream.

    ``read_from``: the file that holds the diagnosis already; empty: none. ``also``: other files
    that were written.
    """
    stream = stream or sys.stdout
    options = options_for(stream, top=arguments.top, by=arguments.by)
    saved_as = read_from if arguments.json is None else str(arguments.json)
    options = replace(
        options,
        verbose=arguments.verbose,
        saved=[*(str(path) for _, path in _asked_for(arguments)), *also],
        saved_as=saved_as,
        # What is rewritten follows the report.
        next=getattr(arguments, "write", None) is None,
    )
    print_report(diagnosis, stream, options)


def show_now(diagnosis: Diagnosis, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Prints the report between two rules while the script runs, which may never end well.

    A stream that the script has closed gets nothing: the script runs on.
    """
    if not takes_text(stream):
        return
    with contextlib.suppress(OSError, ValueError):
        stream.write(_rule(stream) + "\n")
        show(diagnosis, arguments, stream)
        stream.write(_rule(stream) + "\n")
        stream.flush()


def show_again(diagnosis: Diagnosis, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Prints the gist and the next command, after all that the script printed since the report.

    A stream that the script has closed gets nothing.
    """
    flush_stdout()
    if takes_text(stream):
        saved_as = "" if arguments.json is None else str(arguments.json)
        options = replace(options_for(stream), saved_as=saved_as)
        stream.write(f"{_rule(stream)}\n{gist_text(diagnosis, options)}")
        stream.flush()


def _rule(stream: TextIO) -> str:
    return "-" * (shutil.get_terminal_size().columns if stream.isatty() else 80)
