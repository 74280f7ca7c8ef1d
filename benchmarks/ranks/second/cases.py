"""A second hundred of labelled cases: other models, and no rank that does more than the others.

The key of a case is what was put in, as in the first set. ``parallel`` says what holds the ranks
together: DDP or an all-reduce by hand (a convolutional network), or FSDP2 (a transformer).

    python benchmarks/ranks/second/cases.py        # writes cases.json

What is right and what is compared was written down before any case was run:

- *The rank*: ``slowest`` is the rank of the key; for a late start ``late_start`` is, and no rank is
  ``slowest``. Without a fault neither is named.
- *The cause*: the part of the step that the delay was put into.
- *The time lost*: within 10 % of what the delay takes on its rank by the program's own clock. A
  delay that computes counts by the processor time of its thread, a sleep by the wall. Where four
  ranks share two processors a delay's wall time also holds the others' turns, in which they do
  work that they would have to do anyway: the job does not lose it. The error against the wall
  clock stands beside it in the result, and decides nothing.
- *The steps*: only delays that began in a step that gobrrr timed (``step.ended_s`` and
  ``step.samples_s`` of the diagnosis; all processes of a host read one monotonic clock) count: the
  median of their sums per step. Pauses of the collector, which few steps have, count by the mean
  over all steps of the program from the first timed one to the last.
- A late start counts by the delay of the key.
"""

from __future__ import annotations

import json
from pathlib import Path

# A step on two cores that nobody else uses takes about this; a delay is a share of it.
NOMINAL_STEP_MS = {"ddp": 55.0, "hand": 55.0, "fsdp": 80.0}
PARALLEL = tuple(NOMINAL_STEP_MS)
PLACES = ("input", "forward", "backward", "optimizer", "python")
OF_TWO = (0.05, 0.10, 0.20, 0.30, 0.45, 0.60)
OF_FOUR = (0.08, 0.15, 0.35, 0.60)


def cases() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []

    def add(fault: str, ranks: int, rank: int | None, share: float = 0.0, ms: float = 0.0) -> None:
        parallel = PARALLEL[len(found) % len(PARALLEL)]
        found.append(
            {
                "name": f"{len(found):03d}-{fault}-{parallel}-{ranks}ranks",
                "fault": fault,
                "parallel": parallel,
                "ranks": ranks,
                "rank": rank,
                "delay_ms": round(ms or share * NOMINAL_STEP_MS[parallel], 3),
            }
        )

    def four(i: int) -> bool:
        # A third of them, in turn for each of the three ways in which the ranks are held together.
        return (i + i // 3) % 3 == 0

    for i, place in enumerate(PLACES):
        for ranks, shares in ((2, OF_TWO), (4, OF_FOUR)):
            for j, share in enumerate(shares):
                # Every rank is the slow one at times.
                add(place, ranks, (i + j) % ranks, share)
    for i, share in enumerate((0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.60)):
        ranks = 4 if four(i) else 2
        add("sleep", ranks, (i + 1) % ranks, share)
    for i, share in enumerate((0.05, 0.08, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50, 0.60)):
        ranks = 4 if four(i) else 2
        add("gc", ranks, i % ranks, share)
    for i, delay_ms in enumerate((2000, 2500, 3000, 3500, 4000, 4500, 5000, 6000)):
        ranks = 4 if four(i) else 2
        add("late", ranks, (i + 1) % ranks, ms=float(delay_ms))
    for i in range(24):
        add("none", 4 if four(i) else 2, None)
    return found


if __name__ == "__main__":
    path = Path(__file__).parent / "cases.json"
    path.write_text(json.dumps(cases(), indent=1) + "\n")
    print(len(cases()), "cases")
