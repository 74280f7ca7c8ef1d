"""Hold the measured ceilings against likwid-bench, PyTorch's own operators, and themselves.

    PYTHONPATH=. python benchmarks/ceilings/run.py --out FILE

Three parts, each added to the file (``--part`` runs one of them alone, for machines that are quiet
for a minute at a time):

- ``likwid``: one round of likwid-bench and of gobrrr's loops in turns, at the same working sets.
  Needs ``likwid-bench`` (Debian package ``likwid``).
- ``torch``: one round of operators against the roof that the cached ceilings give them.
- ``repeat``: one full measurement of the ceilings.

Rounds add up over runs; the summary is made anew each time.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from typing import Any

from benchmarks.ceilings import against_likwid, against_operators
from benchmarks.ceilings.quiet import Pace, wait_until_quiet
from benchmarks.command import Record, parser

from gobrrr.devices import ceilings_for_this_machine, identify
from gobrrr.devices.machine import CEILINGS_VERSION

GOAL = 0.95
# With --quick: one short round of operators against cached ceilings.
QUICK_S = 3.0


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--part", choices=("likwid", "torch", "repeat"))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="S",
        help="wait up to S seconds for an idle machine before each quantity",
    )
    options.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no case of a round after so long"
    )
    given = options.parse_args()
    if given.quick:
        given.part, given.rounds, given.seconds = "torch", 1, QUICK_S
    record = Record("ceilings", given)
    result = _what_is_measured()
    if given.out and given.out.exists():
        before = json.loads(given.out.read_text())
        result = {key: before[key] for key in result}
    for part in (given.part,) if given.part else ("likwid", "torch", "repeat"):
        if part == "likwid" and shutil.which("likwid-bench") is None:
            print("likwid-bench is not installed: apt-get install likwid", file=sys.stderr)
            continue
        for _ in range(given.rounds):
            print(f"{part}: round {len(result[part]['rounds']) + 1}", file=sys.stderr, flush=True)
            pace = Pace(given.patience, time.monotonic() + given.seconds)
            result[part]["rounds"].append(_ROUNDS[part](pace))
            result[part]["summary"] = SUMMARIES[part](result[part]["rounds"])
            record.write(result)
    _show(result)


def _what_is_measured() -> dict[str, Any]:
    device = identify("cpu")
    return {
        "isa": list(device.isa),
        "caches": [
            {"level": c.level, "size_bytes": c.size_bytes, "shared_by": c.shared_by}
            for c in device.caches
        ],
        "ceilings_version": CEILINGS_VERSION,
        "likwid_bench_version": against_likwid.version(),
        "goal": f"at least {GOAL} of likwid-bench",
        **{part: {"rounds": [], "summary": {}} for part in ("likwid", "torch", "repeat")},
    }


def _repeat(pace: Pace) -> dict[str, float]:
    wait_until_quiet(pace.patience_s)
    found = ceilings_for_this_machine(refresh=True, kind="cpu")
    return {name: row.value for name, row in found.rows.items()}


def _spread(rounds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """How far the runs lie apart: (largest - smallest) / largest."""
    summary = {}
    for name in sorted({name for measured in rounds for name in measured}):
        values = [measured[name] for measured in rounds if name in measured]
        summary[name] = {
            "smallest": min(values),
            "largest": max(values),
            "spread": 1 - min(values) / max(values),
        }
    return summary


_ROUNDS = {
    "likwid": against_likwid.one_round,
    "torch": against_operators.one_round,
    "repeat": _repeat,
}
SUMMARIES = {
    "likwid": against_likwid.summarise_rounds,
    "torch": against_operators.summarise_rounds,
    "repeat": _spread,
}


def _show(result: dict[str, Any]) -> None:
    for name, row in result["likwid"]["summary"].items():
        mark = "" if row["ratio"] >= GOAL else "  below the goal"
        print(f"{name:36s} {row['ours']:11.4g} likwid {row['likwid']:11.4g} "
              f"ratio {row['ratio']:.3f}{mark}")  # fmt: skip
    for name, row in result["torch"]["summary"].items():
        print(f"{name:36s} {row['share_of_roof']:6.1%} of its roof ({row['roof_from']})")
    for name, row in result["repeat"]["summary"].items():
        print(f"{name:36s} {row['largest']:11.4g} spread {row['spread']:.1%}")


if __name__ == "__main__":
    main()
