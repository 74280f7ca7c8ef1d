"""``gobrrr trace``: recorded PyTorch profiler traces, diagnosed without torch."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from gobrrr.cli.parsing import add_report_options, output_path
from gobrrr.timeline.collector import uncollected

DESCRIPTION = """Diagnose what PyTorch's profiler recorded, on any machine, without a GPU or torch.

The trace may be gzipped. Shapes and stacks give FLOPs and source lines:
profile(activities=[CPU, CUDA], record_shapes=True, with_stack=True) and
export_chrome_trace("trace.json.gz")."""
EXAMPLES = """examples:
  gobrrr trace trace.json.gz
  gobrrr trace run/rank*.json.gz                     # ranks: who waits for whom
  gobrrr trace trace.json.gz --json d.json --by module,cause
  gobrrr trace trace.json.gz --ceilings h100.json
  gobrrr trace trace.json.gz --perfetto out.json.gz  # for ui.perfetto.dev
  gobrrr trace run/rank*.json.gz --perfetto all.json  # ranks on one clock
  gobrrr trace trace.json.gz --scrub clean.json.gz   # a copy safe to share
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr trace``."""
    parser.add_argument("traces", nargs="+", metavar="FILE", help="a trace; one file per rank")
    parser.add_argument(
        "--ceilings",
        metavar="FILE",
        help="ceilings of the traced device, from gobrrr ceilings --json run on it (default: "
        "its data sheet)",
    )
    group = parser.add_argument_group("copies of the trace (gzip if the name ends in .gz)")
    group.add_argument(
        "--perfetto",
        type=output_path,
        metavar="PATH",
        help="copy with steps, what binds kernels and causes of idle time as tracks; of several "
        "traces, the first steps of all ranks as one trace on one clock, with arrows for waiting",
    )
    group.add_argument(
        "--scrub",
        type=output_path,
        metavar="PATH",
        help="copy without metadata, environment, host names and addresses; alone, no report",
    )
    group.add_argument(
        "--scrub-paths", action="store_true", help="also remove folders from file names"
    )
    add_report_options(parser)


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Reads, diagnoses, writes, shows."""
    parsed = parser.parse_args(arguments)
    if parsed.scrub_paths and parsed.scrub is None:
        parser.error("--scrub-paths goes with --scrub PATH")
    if len(parsed.traces) > 1 and parsed.scrub:
        parser.error("--scrub takes one trace")
    if parsed.scrub is not None:
        from gobrrr.recordings.export import write_scrubbed

        write_scrubbed(parsed.traces[0], parsed.scrub, paths=parsed.scrub_paths)
        print(f"Saved: {parsed.scrub}")
        if not _report_wanted(parsed):
            return 0
    with uncollected():
        from gobrrr.cli.ceilings import read_ceilings
        from gobrrr.cli.output import show, write_files
        from gobrrr.pipeline.trace import diagnose_trace

    ceilings = None if parsed.ceilings is None else read_ceilings(parsed.ceilings)
    diagnosis = diagnose_trace(parsed.traces, ceilings=ceilings, perfetto=parsed.perfetto)
    options = {} if parsed.ceilings is None else {"--ceilings": parsed.ceilings}
    diagnosis.source |= {"command": files_given(parsed.traces), "options": options}
    write_files(diagnosis, parsed)
    copy = parsed.perfetto
    show(diagnosis, parsed, also=[f"{copy} (open it in https://ui.perfetto.dev)"] if copy else [])
    return 0


def files_given(paths: Sequence[str]) -> str:
    """The files as a shell takes them: by a pattern where a folder holds no others."""
    files = {Path(path) for path in paths}
    folders = {file.parent for file in files}
    endings = {"".join(file.suffixes[-2:]) for file in files}
    if len(files) > 1 and len(folders) == len(endings) == 1:
        folder, ending = folders.pop(), endings.pop()
        if set(folder.glob(f"*{ending}")) == files:
            return f"{shlex.quote(str(folder))}/*{ending}"
    return shlex.join(paths)


def _report_wanted(parsed: argparse.Namespace) -> bool:
    """Whether more was asked for than the copy."""
    from gobrrr import reports

    files = [getattr(parsed, form.option) for form in reports.FORMATS]
    return any((parsed.perfetto, parsed.ceilings, parsed.by, parsed.top, parsed.verbose, *files))
