"""Writing what was found: the files that were asked for, then the report."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
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


def show(diagnosis: Diagnosis, arguments: argparse.Namespace, stream: TextIO | None = None) -> None:
    """Prints the report to a stream (stdout), as it suits that stream."""
    stream = stream or sys.stdout
    options = options_for(stream, top=arguments.top, by=arguments.by)
    print_report(diagnosis, stream, options)
    written = [str(path) for _, path in _asked_for(arguments)]
    if written:
        # Not with ``print``, which a script may have replaced.
        stream.write(f"Saved: {', '.join(written)}\n")


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


def show_again(diagnosis: Diagnosis, stream: TextIO) -> None:
    """Prints the gist once more, after all that the script has printed since the report.

    A stream that the script has closed gets nothing.
    """
    flush_stdout()
    if takes_text(stream):
        stream.write(f"{_rule(stream)}\n{gist_text(diagnosis, options_for(stream))}")
        stream.flush()


def _rule(stream: TextIO) -> str:
    return "-" * (shutil.get_terminal_size().columns if stream.isatty() else 80)
