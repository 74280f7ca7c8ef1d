"""Writing what was found: the files that were asked for, then the report."""

from __future__ import annotations

import argparse
import sys

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import write_atomically
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.terminal import options_for, print_report


def write_files(diagnosis: Diagnosis, arguments: argparse.Namespace) -> None:
    """Writes ``--json`` and ``--markdown``.

    Raises:
        InputError: a file cannot be written.
        AccountingError: the leaves do not sum to the step.
    """
    if arguments.json is not None:
        diagnosis.save(arguments.json)
    if arguments.markdown is not None:
        by = {"by": arguments.by} if arguments.by else {}
        top = {"top": arguments.top} if arguments.top else {}
        text = report_markdown(diagnosis, **top, **by)
        write_atomically(arguments.markdown, text.encode())


def show(diagnosis: Diagnosis, arguments: argparse.Namespace) -> None:
    """Prints the report to stdout, as it suits that stream."""
    options = options_for(sys.stdout, top=arguments.top, by=arguments.by)
    print_report(diagnosis, sys.stdout, options)
    if arguments.json is not None:
        print(f"Saved: {arguments.json}")
