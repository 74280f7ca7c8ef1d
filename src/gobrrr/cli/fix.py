"""``gobrrr fix``: what would make this program faster, tried and proved."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.capture.function_names import which_function
from gobrrr.cli.parsing import add_report_options, output_path, require_torch
from gobrrr.cli.progress import Progress
from gobrrr.cli.run import Target, split_target
from gobrrr.search.options import fix_titles, names_of, refuse_bad_choice, seconds_of
from gobrrr.timeline.errors import GateFailure, InputError
from gobrrr.verification.numerics import TOLERANCE

if TYPE_CHECKING:
    from gobrrr.pipeline.fix import FixResult

DESCRIPTION = """Predict what would make a PyTorch program faster, try it, and prove it.

Each fix is tried in a process of its own, in turns with the program as it is; its
numbers are compared with the program's own. The script itself is not changed.
gobrrr's options stand before the script; everything after it is the script's own."""
EXAMPLES = """examples:
  gobrrr fix train.py --epochs 3
  gobrrr fix bench.py:make_step
  gobrrr fix --only bf16_autocast,compile --tolerance 1e-3 --budget 120s train.py
  gobrrr fix --require 1.2 --write fast_train.py train.py

exit codes: 0 searched, whatever was found; 1 --require was not reached;
2 bad usage or bad input; 3 the program itself raised, or left with an exit code
"""

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGT]i?B|B)?\Z")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr fix``."""
    parser.usage = (
        "gobrrr fix [options] SCRIPT [its arguments]\n"
        "       gobrrr fix [options] -m MODULE [its arguments]\n"
        "       gobrrr fix [options] FILE.py:FUNCTION [options]"
    )
    group = parser.add_argument_group("what to try")
    group.add_argument("--list", action="store_true", help="show the names of all fixes, and end")
    group.add_argument("--only", type=_names, default=(), metavar="FIX,...", help="these alone")
    group.add_argument("--exclude", type=_names, default=(), metavar="FIX,...", help="not these")
    group.add_argument(
        "--tolerance", type=_tolerance, metavar="X",
        help="relative error that a fix may add to outputs, losses and gradients "
        f"(default {TOLERANCE:g})",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=seconds, metavar="TIME", help="for all trials: 120s, 5m (default 5m)"
    )
    group.add_argument(
        "--memory-limit", type=size, metavar="SIZE", help="a trial may use: 8GiB (default: any)"
    )
    group.add_argument(
        "--require", type=_speedup, metavar="X",
        help="exit code 1 unless a verified set of fixes is X times as fast",
    )  # fmt: skip
    group.add_argument(
        "--write", type=output_path, metavar="PATH",
        help="write the script with the winning changes; the difference is shown first",
    )  # fmt: skip
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_report_options(parser)


def _names(text: str) -> tuple[str, ...]:
    try:
        return names_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """``120s``, ``5m``, ``2h`` or a number of seconds, for argparse."""
    try:
        return seconds_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size(text: str) -> int:
    """``8GiB``, ``500MB`` or a number of bytes, for argparse."""
    match = _SIZE.match(text)
    if match is None or float(match["number"]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8GiB")
    unit = match["unit"] or "B"
    base = 1024 if "i" in unit else 1000
    return int(float(match["number"]) * base ** _POWERS.get(unit[0], 0))


def _tolerance(text: str) -> float:
    return _positive_number(text, "a relative error such as 1e-2")


def _speedup(text: str) -> float:
    return _positive_number(text, "a speedup such as 1.2")


def _positive_number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Searches, reports, writes. Exit codes: ``EXAMPLES``."""
    takes_value = frozenset(
        flag for action in parser._actions if action.nargs is None for flag in action.option_strings
    )
    own, target = split_target(arguments, takes_value)
    parsed = parser.parse_args(own)
    if parsed.list:
        for name, title in fix_titles().items():
            print(f"{name:<24}  {title}")
        return 0
    if target is None:
        raise InputError("nothing to fix: gobrrr fix SCRIPT (see gobrrr fix --help)")
    if parsed.write is not None and target.kind != "script":
        raise InputError("--write rewrites scripts: give gobrrr fix --write PATH SCRIPT")
    if parsed.write is not None and parsed.write.resolve() == Path(target.name).resolve():
        raise InputError("--write would overwrite the script itself: give another path")
    refuse_bad_choice(parsed.only, parsed.exclude)
    path = target.name.removesuffix(":")
    if target.kind == "script" and path != target.name and Path(path).is_file():
        raise InputError(which_function(path))
    require_torch("gobrrr fix")
    progress = Progress(None if parsed.quiet else sys.stderr)
    try:
        return _fix(target, parsed, progress)
    finally:
        progress.end()


def _fix(target: Target, parsed: argparse.Namespace, progress: Progress) -> int:
    from gobrrr.cli.output import show, write_files
    from gobrrr.pipeline.fix import BUDGET_S, FixGateFailure, fix_on
    from gobrrr.pipeline.fix_benches import ProgramBench
    from gobrrr.search.options import Options
    from gobrrr.verification.messages import Target as Program

    options = Options(only=parsed.only, exclude=parsed.exclude, budget_s=parsed.budget or BUDGET_S)
    missed: GateFailure | None = None
    try:
        tolerance = TOLERANCE if parsed.tolerance is None else parsed.tolerance
        program = Program(
            target.kind, target.name, tuple(target.argv), memory_limit_bytes=parsed.memory_limit
        )
        bench = ProgramBench(program, tolerance)
        result = fix_on(bench, options, parsed.require, progress)
    except FixGateFailure as failure:
        result, missed = failure.result, failure
    progress.end()
    write_files(result.diagnosis, parsed)
    show(result.diagnosis, parsed)
    if parsed.write is not None:
        _write(Path(target.name), parsed.write, result)
    if missed is not None:
        raise missed
    return 0


def _write(script: Path, path: Path, result: FixResult) -> None:
    from gobrrr.fixes.rewrite import difference, rewrite
    from gobrrr.timeline.files import write_output

    if not result.best_fixes:
        print(f"Not written, {path} would be as {script.name} is: no fix was verified.")
        return
    source = script.read_text()
    written = rewrite(source, result.best_fixes, result.speedup)
    print()
    if written.text is not None:
        print(difference(source, written.text, script.name, path.name), end="")
    for note in written.notes:
        print(note)
    if written.text is not None:
        write_output(path, written.text.encode())
        print(f"Saved: {path}")
