"""Is the regime of nine programs told right, each of which other tools call wrong?

    PYTHONPATH=. python benchmarks/regimes/run.py --out FILE

``programs.py`` says of each program what bounds it and why. Each is diagnosed live; the share of
the step that the right level holds stands beside the verdict. ``record.py`` keeps such runs as data
of the test suite.
"""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.command import Record, parser
from benchmarks.regimes.programs import PROGRAMS

import gobrrr
from gobrrr.attribution.leaves import top_levels
from gobrrr.devices import ceilings_for_this_machine

# With --quick: of either kind one that is quick, and few steps.
QUICK, QUICK_STEPS = ("relu_499", "matmuls_between_python"), 3


def examine(name: str, ceilings: Any, steps: int | None) -> dict[str, Any]:
    """One program: what it was said to be bound by, and what it is."""
    make, regime = PROGRAMS[name]
    options = {} if steps is None else {"steps": steps}
    found = gobrrr.diagnose(make(), batch_test=False, ceilings=ceilings, **options)
    levels = top_levels(found.leaves)
    return {
        "program": name,
        "regime": regime,
        "found": found.regime,
        "right": found.regime == regime,
        "close": found.close,
        "share_of_right_level": levels[regime] / found.accounted_s,
        "step_s": found.step_s,
        "split_s": levels,
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    record = Record("regimes", options)
    ceilings = ceilings_for_this_machine(threads=torch.get_num_threads(), kind="cpu")
    rows: list[dict[str, Any]] = []
    for name in QUICK if options.quick else PROGRAMS:
        rows.append(examine(name, ceilings, QUICK_STEPS if options.quick else None))
        last = rows[-1]
        mark = "right" if last["right"] else f"WRONG, it is {last['regime']}"
        found = last["found"] or "no verdict"
        print(f"{name:24} {found:10} {mark}  {last['share_of_right_level']:.0%}", flush=True)
        record.write({"summary": summary(rows), "rows": rows})


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many programs were told right."""
    return {"programs": len(rows), "right": sum(row["right"] for row in rows)}


if __name__ == "__main__":
    main()
