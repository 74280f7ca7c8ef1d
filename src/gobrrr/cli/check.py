"""``gobrrr check``: a gate on a saved diagnosis, for a CI job."""

from __future__ import annotations

import argparse

from gobrrr.diagnosis.gate import (
    DEFAULT_TIME_TOLERANCE,
    Limits,
    against_baseline,
    over_limits,
)
from gobrrr.diagnosis.storage import load
from gobrrr.timeline.errors import InputError

DESCRIPTION = """Check a diagnosis against a baseline, or against limits.

FLOPs, bytes, kernels and synchronisations per step are the same on any machine: any
growth is a breach. Times are compared on the baseline's device only, and only where
both have an interval and neither was measured on a busy machine. Exit code 1 and one
line per breach."""
EXAMPLES = """examples:
  gobrrr check d.json --baseline base.json
  gobrrr check d.json --baseline base.json --no-times --exact
  gobrrr check d.json --max kernels=400 --max synchronisations=0 \\
      --regime compute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr check``."""
    parser.add_argument("diagnosis", metavar="FILE", help="a file that --json wrote")
    group = parser.add_argument_group("baseline")
    group.add_argument("--baseline", metavar="FILE", help="a diagnosis to compare with")
    group.add_argument("--exact", action="store_true", help="counts may not shrink either")
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
    if parsed.baseline is None and limits == Limits():
        raise InputError(
            "nothing to check against: give --baseline, --max, --regime or --max-overhead"
        )
    diagnosis = load(parsed.diagnosis)
    breaches = over_limits(diagnosis, limits)
    if parsed.baseline is not None:
        result = against_baseline(
            diagnosis,
            load(parsed.baseline),
            exact=parsed.exact,
            times=not parsed.no_times,
            time_tolerance=parsed.time_tolerance,
        )
        breaches += result.breaches
        for note in result.notes:
            print(f"note: {note}")
    for breach in breaches:
        print(f"breach: {breach}")
    if breaches:
        return 1
    print(f"{parsed.diagnosis}: no breach")
    return 0


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
