"""The labelled cases: which rank is slow, in what, by how much; none in a fifth of them.

The key of a case is what was put in; what it cost is by the program's own clock, in its run.

    python benchmarks/ranks/cases.py        # writes cases.json, which others can run their tool on
"""

from __future__ import annotations

import json
from pathlib import Path

# The program's step on two cores that nobody else uses takes about this; a delay is a share of it.
NOMINAL_STEP_MS = 30.0
SHARES = (0.05, 0.10, 0.20, 0.40, 0.60)
PLACES = ("input", "forward", "backward", "optimizer", "python")


def cases() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []

    def add(fault: str, ranks: int, rank: int | None, delay_ms: float) -> None:
        found.append(
            {
                "name": f"{len(found):03d}-{fault}-{ranks}ranks",
                "fault": fault,
                "ranks": ranks,
                "rank": rank,
                "delay_ms": delay_ms,
            }
        )

    for i, place in enumerate(PLACES):
        for j, share in enumerate(SHARES):
            for ranks in (2, 4):
                # Every rank is the slow one at times, the first among them.
                add(place, ranks, (i + j) % ranks, share * NOMINAL_STEP_MS)
    for i, place in enumerate(PLACES):
        add(place, 2, (i + 1) % 2, 0.30 * NOMINAL_STEP_MS)
        add(place, 4, (i + 2) % 4, 0.50 * NOMINAL_STEP_MS)
    for i, share in enumerate((0.10, 0.20, 0.40, 0.60, 0.30)):
        add("sleep", 2 + 2 * (i % 2), i % 2, share * NOMINAL_STEP_MS)
    for i, share in enumerate((0.20, 0.40, 0.60, 0.30, 0.50, 0.60, 0.40)):
        add("gc", 2 + 2 * (i % 2), 1 - i % 2, share * NOMINAL_STEP_MS)
    for i, delay_ms in enumerate((2000, 3000, 4000, 6000, 2500, 5000, 8000, 3500)):
        add("late", 2 + 2 * (i % 2), (i // 2) % 2, float(delay_ms))
    for i in range(20):
        add("none", 2 if i < 12 else 4, None, 0.0)
    return found


if __name__ == "__main__":
    path = Path(__file__).parent / "cases.json"
    path.write_text(json.dumps(cases(), indent=1) + "\n")
    print(len(cases()), "cases")
