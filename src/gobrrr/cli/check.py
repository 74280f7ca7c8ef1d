"""``gobrrr check``: a gate on a step's figures, for a CI job."""

from __future__ import annotations

import argparse
from pathlib import Path

from gobrrr.cli.parsing import function_target, output_path, require_torch, without_arguments
from gobrrr.diagnosis.figures import Figures, load_figures
from gobrrr.diagnosis.gate import (
    DEFAULT_TIME_TOLERANCE,
    DEFAULT_TOLERANCE,
    Limits,
    against_baseline,
    over_limits,
)
from gobrrr.timeline.errors import InputError

DESCRIPTION = """Check a step against a baseline, or against limits.

FLOPs, bytes, kernels and synchronisations per step are the same on any machine: growth
is a breach (of FLOPs and bytes beyond 0.5 %), less is said and passes. Times are compared
on the baseline's device only, and only where both have an interval and neither was
measured on a busy machine. Exit code 1 and one line per breach.

FILE.py:FUNCTION is run for two steps and not timed: FLOPs, bytes, ops and
synchronisations, in about two seconds."""
EXAMPLES = """examples:
  gobrrr check d.json --save-baseline base.json
  gobrrr check d.json --baseline base.json
  gobrrr check d.json --baseline base.json --only flops,bytes --tolerance 2
  gobrrr check bench.py:make_step --baseline base.json
  gobrrr check d.json --max kernels=400 --max synchronisations=0 \\
      --regime compute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr check``."""
    parser.add_argument(
        "diagnosis",
        metavar="FILE",
        help="a file that --json wrote, or FILE.py:FUNCTION: its counts alone",
    )
    group = parser.add_argument_group("baseline")
    group.add_argument(
        "--baseline",
        metavar="FILE",
        help="what to compare with: a file of --save-baseline, or a diagnosis",
    )
    group.add_argument(
        "--save-baseline",
        type=output_path,
        metavar="PATH",
        help="write the figures that a gate holds, a few lines to be kept with the code",
    )
    group.add_argument(
        "--only", type=_names, default=(), metavar="FIGURE,...",
        help="compare these alone: flops, bytes, ops, kernels, synchronisations, ..., or step",
    )  # fmt: skip
    group.add_argument("--exact", action="store_true", help="counts may not shrink either")
    group.add_argument(
        "--tolerance", type=_percent, default=DEFAULT_TOLERANCE, metavar="PERCENT",
        help="how much FLOPs and bytes may grow, in percent (default 0.5)",
    )  # fmt: skip
    group.add_argument("--no-times", action="store_true", help="compare counts only")
    group.add_argument(
        "--time-tolerance", type=_percent, default=DEFAULT_TIME_TOLERANCE, metavar="PERCENT",
        help="how much longer a step may take, in percent (default 10)",
    )  # fmt: skip
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max", type=_limit, action="append", default=[], metavar="COUNTER=N",
        help="at most N per step of a counter: kernels, synchronisations, flops, bytes or another "
        "(an unknown name lists all)",
    )  # fmt: skip
    group.add_argument("--regime", help="what must bound the step: compute, memory or overhead")
    group.add_argument(
        "--max-overhead",
        type=_percent_of_step,
        metavar="PERCENT",
        help="the most overhead, in percent of the step",
    )


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Prints the breaches; 1 if there are any."""
    parsed = parser.parse_args(arguments)
    limits = Limits(
        counters=dict(parsed.max), regime=parsed.regime, max_overhead=parsed.max_overhead
    )
    # What is wrong with a file is said before what is missing beside it; a function is run last.
    of_file = None
    if function_target(parsed.diagnosis) is None:
        of_file = _figures(parsed.diagnosis, limits)
    if parsed.baseline is None and parsed.save_baseline is None and limits == Limits():
        raise InputError(
            "nothing to check against: give --baseline, --max, --regime or --max-overhead "
            "(--save-baseline writes a baseline)"
        )
    if parsed.baseline is None and parsed.only:
        raise InputError("--only goes with --baseline")
    baseline = None if parsed.baseline is None else load_figures(parsed.baseline)
    figures = of_file or _figures(parsed.diagnosis, limits)
    breaches = over_limits(figures, limits)
    held = [*limits.counters]
    if baseline is not None:
        result = against_baseline(
            figures,
            baseline,
            exact=parsed.exact,
            times=not parsed.no_times,
            tolerance=parsed.tolerance,
            time_tolerance=parsed.time_tolerance,
            only=parsed.only,
        )
        breaches += result.breaches
        held += result.held
        for note in result.notes:
            print(f"note: {note}")
        for line in result.better:
            print(f"better: {line}")
        if result.better:
            print("note: --save-baseline makes these figures the limit")
    for breach in breaches:
        print(f"breach: {breach}")
    if not breaches and (baseline is not None or limits != Limits()):
        of = f" ({', '.join(dict.fromkeys(held))})" if held else ""
        print(f"{parsed.diagnosis}: no breach{of}")
    if parsed.save_baseline is not None:
        print(f"Saved: {figures.save(parsed.save_baseline)}")
    return 1 if breaches else 0


def _figures(target: str, limits: Limits) -> Figures:
    """Of a file, or of a function, which is run. Raises InputError."""
    if function_target(target) is None:
        if Path(target).suffix == ".py":
            raise InputError(
                f"{target} is a script: gobrrr run --stop --json d.json {target} diagnoses it, "
                "and gobrrr check d.json checks that"
            )
        return load_figures(target)
    if limits.regime is not None or limits.max_overhead is not None:
        raise InputError(
            "--regime and --max-overhead need a diagnosis (gobrrr run --json d.json "
            f"{target}): of {target} alone nothing is timed"
        )
    require_torch("gobrrr check of a function")
    from gobrrr.timeline.workload import load_function
    from gobrrr.verification.counts import count_step

    without_arguments(target)
    return count_step(load_function(target), name=Path(target).name)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


# More than ten times as long is a mistyped number.
_MOST_PERCENT = 1000


def _percent(text: str, most: int = _MOST_PERCENT) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to {most}")
    return value / 100


def _percent_of_step(text: str) -> float:
    return _percent(text, 100)


def _limit(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not (name and equals and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not COUNTER=N, like kernels=400")
    return name, value
