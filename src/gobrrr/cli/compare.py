"""``gobrrr compare``: two saved diagnoses or traces, what moved between them."""

from __future__ import annotations

import argparse
import sys

from gobrrr.cli.parsing import output_path, output_path_or_stdout, positive
from gobrrr.diagnosis.comparison import compare
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import is_diagnosis, load
from gobrrr.reports.compare import comparison_json, comparison_markdown, comparison_text
from gobrrr.reports.terminal import options_for
from gobrrr.timeline.files import write_output

DESCRIPTION = """Compare two diagnoses, or traces of PyTorch's profiler: part by part, op by op,
counter by counter."""
EXAMPLES = """examples:
  gobrrr compare before.json after.json
  gobrrr compare before.json after.json --html compared.html --top 20
  gobrrr compare before_trace.json.gz after_trace.json.gz
  gobrrr compare before.json after.json --markdown -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr compare``."""
    parser.add_argument("before", metavar="BEFORE", help="a file that --json wrote, or a trace")
    parser.add_argument("after", metavar="AFTER", help="another")
    group = parser.add_argument_group("report")
    group.add_argument("--json", type=output_path, metavar="PATH", help="write the comparison")
    group.add_argument("--html", type=output_path, metavar="PATH", help="write it as a page")
    group.add_argument(
        "--markdown",
        type=output_path_or_stdout,
        # ``None`` is standard output.
        default=argparse.SUPPRESS,
        metavar="PATH",
        help='write a summary for a pull request or a chat; "-" prints it instead of the report',
    )
    group.add_argument("--top", type=positive, metavar="N", help="rows per table (default 8)")


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Loads both, writes, shows. A difference is no failure: ``gobrrr check`` is the gate."""
    parsed = parser.parse_args(arguments)
    comparison = compare(_diagnosis(parsed.before), _diagnosis(parsed.after))
    saved = []
    if parsed.json is not None:
        saved.append(str(write_output(parsed.json, comparison_json(comparison))))
    if parsed.html is not None:
        from gobrrr.reports.html.comparison import comparison_html

        saved.append(str(write_output(parsed.html, comparison_html(comparison).encode())))
    if "markdown" in parsed:
        text = comparison_markdown(comparison, top=parsed.top or 10)
        if parsed.markdown is None:
            sys.stdout.write(text)
            return 0
        saved.append(str(write_output(parsed.markdown, text.encode())))
    sys.stdout.write(comparison_text(comparison, options_for(sys.stdout, top=parsed.top)))
    if saved:
        print(f"Saved: {', '.join(saved)}")
    return 0


def _diagnosis(path: str) -> Diagnosis:
    """Of a file that ``--json`` wrote, or of a trace. Raises InputError."""
    if is_diagnosis(path):
        return load(path)
    from gobrrr.pipeline.trace import diagnose_trace

    return diagnose_trace(path)
