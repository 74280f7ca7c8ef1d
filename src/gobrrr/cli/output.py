"""Writing what was found: the files that were asked for, then the report."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from gobrrr import reports
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import Format
from gobrrr.reports.terminal import options_for, print_report
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


def show(diagnosis: Diagnosis, arguments: argparse.Namespace) -> None:
    """Prints the report to stdout, as it suits that stream."""
    options = options_for(sys.stdout, top=arguments.top, by=arguments.by)
    print_report(diagnosis, sys.stdout, options)
    written = [str(path) for _, path in _asked_for(arguments)]
    if written:
        print(f"Saved: {', '.join(written)}")
