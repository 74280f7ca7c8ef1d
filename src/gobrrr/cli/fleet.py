"""``gobrrr fleet``: the traces of many ranks as tables, and which rank delays the others."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gobrrr.cli.parsing import positive
from gobrrr.timeline.files import write_output

DESCRIPTION = """Diagnose the traces of many ranks: which rank delays the others, and why.

Each trace is converted to small Parquet tables in a folder; then the ranks of each run are
compared. A second call reads only new and changed files. Paths may be patterns, folders, or URLs
that fsspec supports (s3://, gs://). Needs pip install 'gobrrr[fleet]'."""
EXAMPLES = """examples:
  gobrrr fleet 'runs/2026-11-21/**/*.json.gz' --out fleet/
  gobrrr fleet runs/2026-11-21 --out fleet/ --ranks-per-host 8
  gobrrr fleet s3://bucket/run/ --engine ray --address auto
  gobrrr fleet --out fleet/                              # the verdict again
  gobrrr fleet --query "select host, cause, sum(s) from idle group by all
      order by 3 desc" fleet/                            # also --json, --csv
tables: steps, ops, idle, lines, collectives, ranks, files
"""
_MEGABYTE = 1 << 20
DEFAULT_OUT = Path("fleet")
PAGE = "fleet.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr fleet``."""
    parser.add_argument(
        "paths", nargs="*", metavar="GLOB", help="traces (with --query: the fleet folder)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"the fleet folder (default: {DEFAULT_OUT})"
    )
    naming = parser.add_argument_group("what the traces do not record")
    naming.add_argument("--run", metavar="NAME", help="name of the run (default: the folder's)")
    naming.add_argument(
        "--run-per-folder", action="store_true", help="the files of each folder are one run"
    )
    naming.add_argument(
        "--ranks-per-host",
        type=positive,
        metavar="N",
        help="how many ranks a host has, where paths do not name the hosts",
    )
    work = parser.add_argument_group("reading")
    work.add_argument(
        "--workers", type=positive, metavar="N", help="number of processes (default: one per core)"
    )
    work.add_argument(
        "--worker-memory",
        type=positive,
        default=1024,
        metavar="MB",
        help="memory for reading one trace; a larger trace is reported as an error (default 1024)",
    )
    work.add_argument("--again", action="store_true", help="read unchanged files again too")
    work.add_argument(
        "--engine", choices=("local", "ray"), default="local",
        help="processes on this machine, or tasks on a Ray cluster (default local)",
    )  # fmt: skip
    work.add_argument(
        "--address",
        metavar="ADDRESS",
        help="address of the Ray cluster, or auto (default: start one here)",
    )
    asking = parser.add_argument_group("queries")
    asking.add_argument(
        "--query", metavar="SQL", help="run one select statement on the tables, with DuckDB"
    )
    form = asking.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the answer as JSON")
    form.add_argument("--csv", action="store_true", help="print the answer as CSV")


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Maps, merges, shows; or answers a question."""
    parsed = parser.parse_args(arguments)
    _check(parser, parsed)
    from gobrrr.fleet.extras import package

    package("pyarrow", "gobrrr fleet")
    return _ask(parsed) if parsed.query is not None else _build(parsed)


def _check(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    if parsed.query is None:
        if parsed.json or parsed.csv:
            parser.error("--json and --csv go with --query")
        if not parsed.paths and parsed.out is None:
            parser.error("give traces, or --out with a folder that was made before")
    elif len(parsed.paths) > 1 or (parsed.paths and parsed.out is not None):
        parser.error("--query takes one fleet folder")
    if parsed.address is not None and parsed.engine != "ray":
        parser.error("--address goes with --engine ray")
    if parsed.out is not None and ":/" in str(parsed.out):
        parser.error(f"--out {parsed.out}: the folder has to be on this machine")
    if parsed.run is not None and parsed.run_per_folder:
        parser.error("--run and --run-per-folder exclude each other")


def _ask(parsed: argparse.Namespace) -> int:
    from gobrrr.fleet.extras import package

    package("duckdb", "gobrrr fleet --query")
    from gobrrr.fleet.query import ask
    from gobrrr.reports.fleet import answer_csv, answer_json, answer_text
    from gobrrr.reports.terminal import options_for

    folder = Path(parsed.paths[0]) if parsed.paths else parsed.out or DEFAULT_OUT
    answer = ask(folder, parsed.query)
    if parsed.json:
        text = answer_json(answer)
    elif parsed.csv:
        text = answer_csv(answer)
    else:
        text = answer_text(answer, options_for(sys.stdout))
    sys.stdout.write(text)
    return 0


def _build(parsed: argparse.Namespace) -> int:
    from gobrrr.fleet.build import FleetOptions, build_fleet
    from gobrrr.fleet.sources import Naming
    from gobrrr.measure.progress import shown
    from gobrrr.reports.fleet import fleet_text
    from gobrrr.reports.html.fleet import fleet_html
    from gobrrr.reports.terminal import options_for

    options = FleetOptions(
        naming=Naming(parsed.run, parsed.run_per_folder, parsed.ranks_per_host),
        workers=parsed.workers,
        worker_memory_bytes=parsed.worker_memory * _MEGABYTE,
        engine=parsed.engine,
        address=parsed.address,
        again=parsed.again,
    )
    out = parsed.out or DEFAULT_OUT
    with shown(None) as tell:
        verdict = build_fleet(parsed.paths, out, options, tell)
    page = write_output(out / PAGE, fleet_html(verdict).encode())
    sys.stdout.write(fleet_text(verdict, options_for(sys.stdout)))
    print(f"Saved: {out}, {page}")
    return 0
