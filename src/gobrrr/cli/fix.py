"""``gobrrr fix``: what would make this program faster, tried and proved."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import (
    add_report_options,
    given_options,
    memory_size,
    output_path,
    positive,
    require_torch,
)
from gobrrr.cli.progress import Progress
from gobrrr.cli.run import Target, command_line, split_target
from gobrrr.search.options import ALLOWED, fix_titles, names_of, refuse_bad_choice, seconds_of
from gobrrr.timeline.errors import GateFailure, InputError
from gobrrr.timeline.function_names import which_function
from gobrrr.verification.numerics import TOLERANCE

if TYPE_CHECKING:
    from gobrrr.search.result import FixResult

DESCRIPTION = """Predict what would make a PyTorch program faster, try it, and compare the results.

Each fix is tried in a separate process, alternating with the unchanged program;
outputs, losses and gradients are compared. The script itself is not changed.
gobrrr's options stand before the script; everything after it is the script's own."""
EXAMPLES = """examples:
  gobrrr fix train.py --epochs 3
  gobrrr fix bench.py:make_step
  gobrrr fix --only bf16_autocast,compile --tolerance 1e-3 train.py
  gobrrr fix --allow precision train.py
  gobrrr fix --require 1.2 --write fast_train.py train.py

exit codes: 0 searched, whatever was found; 1 --require was not reached;
2 bad usage or bad input; 3 the program itself raised, or left with an exit code
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr fix``."""
    parser.usage = (
        "gobrrr fix [options] SCRIPT [its arguments]\n"
        "       gobrrr fix [options] -m MODULE [its arguments]\n"
        "       gobrrr fix [options] FILE.py:FUNCTION [options]"
    )
    group = parser.add_argument_group("what to try")
    group.add_argument("--list", action="store_true", help="list all fixes and exit")
    group.add_argument("--only", type=_names, default=(), metavar="FIX,...", help="only these")
    group.add_argument("--exclude", type=_names, default=(), metavar="FIX,...", help="skip these")
    group.add_argument(
        "--allow", choices=ALLOWED, action="append", default=[],
        help="precision: the best set may compute in bf16, TF32 or, for float64, float32; by "
        "default such changes are tried, but listed apart with their error",
    )  # fmt: skip
    group.add_argument(
        "--tolerance", type=_tolerance, metavar="X",
        help="relative error that a fix may add to outputs, losses and gradients "
        f"(default {TOLERANCE:g})",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=seconds, metavar="TIME",
        help="time for all trials, such as 120s (default 5m); the diagnosis before them comes on "
        "top, and a trial that has begun is not cut short at once",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=memory_size, metavar="SIZE",
        help="memory of one trial, such as 8GiB (default: no limit)",
    )  # fmt: skip
    group.add_argument(
        "--threads", type=positive, metavar="N",
        help="torch.set_num_threads(N) in each process, such as 1 beside other programs",
    )  # fmt: skip
    group.add_argument(
        "--require", type=_speedup, metavar="X",
        help="exit code 1 unless a verified set of fixes is X times as fast",
    )  # fmt: skip
    group.add_argument(
        "--write", type=output_path, metavar="PATH",
        help="write the script with the winning changes; a diff is shown first",
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
    own, target = split_target(parser, arguments)
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
    # Before a search of minutes, and as it was when it was tried.
    source = "" if parsed.write is None else _text_of(Path(target.name))
    require_torch("gobrrr fix")
    progress = Progress(None if parsed.quiet else sys.stderr)
    try:
        return _fix(target, parsed, progress, source, given_options(parser, own))
    finally:
        progress.end()


def _fix(
    target: Target, parsed: argparse.Namespace, progress: Progress, source: str,
    given: dict[str, str],
) -> int:  # fmt: skip
    from gobrrr.cli.output import show, write_files
    from gobrrr.live.script_run import set_threads
    from gobrrr.pipeline.fix import BUDGET_S, fix_on, program_bench
    from gobrrr.search.options import Options
    from gobrrr.search.result import FixGateFailure
    from gobrrr.verification.messages import Target as Program

    options = Options(
        only=parsed.only, exclude=parsed.exclude, budget_s=parsed.budget or BUDGET_S,
        allow=tuple(parsed.allow), threads_given=parsed.threads is not None,
    )  # fmt: skip
    missed: GateFailure | None = None
    try:
        tolerance = TOLERANCE if parsed.tolerance is None else parsed.tolerance
        program = Program(
            target.kind, target.name, tuple(target.argv), memory_limit_bytes=parsed.memory_limit,
            threads=parsed.threads,
        )  # fmt: skip
        bench = program_bench(program, tolerance)
        # The ceilings that are measured here are of as many.
        set_threads(parsed.threads)
        result = fix_on(bench, options, parsed.require, progress)
    except FixGateFailure as failure:
        result, missed = failure.result, failure
    progress.end()
    result.diagnosis.source |= {"command": command_line(target), "options": given}
    write_files(result.diagnosis, parsed)
    show(result.diagnosis, parsed)
    if parsed.write is not None:
        _write(Path(target.name).name, source, parsed.write, result)
    if missed is not None:
        raise missed
    return 0


def _text_of(script: Path) -> str:
    """The script to rewrite. Raises InputError."""
    if script.is_dir():
        raise InputError(f"--write rewrites one file, and {script} is a directory")
    try:
        # Its line ends too.
        return script.read_bytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"--write rewrites scripts in UTF-8, and {script} is not") from None
    except FileNotFoundError:
        raise InputError(f"{script}: no such file") from None
    except OSError as error:
        raise InputError(f"{script} cannot be read: {error.strerror}") from None


def _write(script: str, source: str, path: Path, result: FixResult) -> None:
    from gobrrr.fixes.rewriting.rewrite import difference, rewrite
    from gobrrr.timeline.files import write_output

    if not result.best_fixes:
        print(f"{path} is not written: no fix was verified, so it would equal {script}.")
        return
    written = rewrite(
        source, result.best_fixes, result.speedup, result.modules,
        compiles_by_method=result.compiles_by_method, objects=result.objects,
    )  # fmt: skip
    print()
    if written.text is not None:
        print(difference(source, written.text, script, path.name), end="")
    for note in written.notes:
        print(note)
    if written.text is not None:
        write_output(path, written.text.encode())
        print(f"Saved: {path}")
