"""How far predictions lay from recorded savings: the factors in ``gobrrr/fixes/spread.py``.

    python benchmarks/fixes/spread.py benchmarks/results/fixes_<hardware>_<date>.json

Takes each trial of the **original** programs in the file with what was predicted of it, prints the
scores by class of fix and program, then the factors. The new programs score the intervals and are
no part of this. Nothing is run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.spread import FLOOR, Spread

# Trials with a time, of noisy ones too: there are few.
TIMED = ("faster", "same", "slower", "incomparable")
# Of 10 savings 8 are to lie inside.
TAIL = 0.1
# Fewer programs tell nothing of a class.
LEAST_PROGRAMS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    scores = scores_of(json.loads(arguments.results.read_text()))
    for (kind, program), found in sorted(scores.items()):
        print(f"{kind or 'none':14} {program:28} " + " ".join(f"{one:+.2f}" for one in found))
    for kind, spread in table(scores).items():
        print(f"{kind!r}: Spread({spread.below}, {spread.above}, {spread.programs}),")
    print(f"nothing supports: {widest(scores)}")


def scores_of(made: dict[str, Any]) -> dict[tuple[str, str], list[float]]:
    """Scores of the original programs' trials by class of fix and program."""
    kinds = {fix.name: fix.judged_with for fix in FIXES}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    # The first files had one set.
    for program in made["sets"]["original"] if "sets" in made else made["programs"]:
        for row in program.get("fixes", ()):
            timed = row["verdict"] in TIMED and row["saved"] is not None
            if timed and row["fix"] in kinds:
                found[kinds[row["fix"]], program["name"]].append(score(row))
    return dict(found)


def score(row: dict[str, Any]) -> float:
    """Times the fix's own reach, and the floor, that a saving lies above (below: negative)."""
    off = row["saved"] - row["expected"]
    edge = row["high"] if off > 0 else row["low"]
    return float(off / (abs(edge - row["expected"]) + FLOOR))


def table(scores: dict[tuple[str, str], list[float]]) -> dict[str, Spread]:
    """The factors of classes that enough programs tell of."""
    # Fixes of one class share a program's facts, and are wrong together: a program counts once.
    by_kind: dict[str, list[float]] = defaultdict(list)
    for (kind, _), found in scores.items():
        by_kind[kind].append(max(found, key=abs))
    return {
        kind: Spread(*factors(found), len(found))
        for kind, found in sorted(by_kind.items())
        if kind and len(found) >= LEAST_PROGRAMS
    }


def factors(scores: list[float]) -> tuple[float, float]:
    """Ends of the interval that 80 % of further scores lie in (split conformal: ranks of n + 1).

    Fewer than nine scores cannot tell of a tenth of them on either side: then one width for both,
    that of 80 % of their absolute values. Never below 0.
    """
    n = len(scores)
    ordered = sorted(scores)
    rank = math.floor(TAIL * (n + 1))
    if rank < 1:
        sizes = sorted(map(abs, scores))
        width = _rounded(sizes[min(math.ceil((1 - 2 * TAIL) * (n + 1)), n) - 1])
        return width, width
    return max(-_rounded(ordered[rank - 1]), 0.0), max(_rounded(ordered[-rank]), 0.0)


def widest(scores: dict[tuple[str, str], list[float]]) -> Spread:
    """The extremes of all trials."""
    everything = [one for found in scores.values() for one in found]
    return Spread(-_rounded(min(everything)), _rounded(max(everything)), 0)


def _rounded(score: float) -> float:
    return round(score, 2)


if __name__ == "__main__":
    main()
