"""``gobrrr trace``: recorded PyTorch profiler traces, diagnosed without torch."""

from __future__ import annotations

import argparse

from gobrrr.cli.parsing import add_report_options

DESCRIPTION = """Diagnose what PyTorch's profiler recorded, on any machine, without a GPU or torch.

Gzip or plain. Record shapes and stacks for the most: profile(activities=[CPU, CUDA],
record_shapes=True, with_stack=True) and export_chrome_trace("trace.json.gz")."""
EXAMPLES = """examples:
  gobrrr trace trace.json.gz
  gobrrr trace trace.json.gz --json d.json --by module,cause
  gobrrr trace trace.json.gz --ceilings h100.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr trace``."""
    parser.add_argument("traces", nargs="+", metavar="FILE", help="a trace; one file per rank")
    parser.add_argument(
        "--ceilings",
        metavar="FILE",
        help="of the device that was traced, written there by gobrrr ceilings --json "
        "(default: its data sheet)",
    )
    add_report_options(parser)


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Reads, diagnoses, writes, shows."""
    parsed = parser.parse_args(arguments)
    from gobrrr.cli.ceilings import read_ceilings
    from gobrrr.cli.output import show, write_files
    from gobrrr.pipeline.trace import diagnose_trace

    ceilings = None if parsed.ceilings is None else read_ceilings(parsed.ceilings)
    diagnosis = diagnose_trace(parsed.traces, ceilings=ceilings)
    write_files(diagnosis, parsed)
    show(diagnosis, parsed)
    return 0
