"""Write docs/accuracy.md from the result file of ``run.py``.

python benchmarks/prediction_kernels/accuracy.py RESULT.json --out docs/accuracy.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEAD = """# How far predictions lie from measurements

Made by `python benchmarks/prediction_kernels/accuracy.py RESULT.json --out docs/accuracy.md`; not
to be edited. Of single ops and small programs; whole steps are in the result files of
`benchmarks/prediction` (H100, MI300X) and `benchmarks/prediction_timm` (RTX 4090).

Errors are of |predicted / measured - 1| over rows of at least 20 us, on rows that no constant was
fitted on ("unseen"; halves by a hash of the shape, fixed before anything was scored). They are
shapes that nobody fitted on devices that somebody did: for devices without any measurement see the
last table. *Bias* is the median of predicted / measured - 1: below zero is told too fast. *Roof* is
a plain roofline, *refitted* the same with a factor and an offset fitted for the device and kind.
"""
FITTED = """
## What was fitted

`models/coefficients.py` says for each architecture which numbers were fitted, and on what. Float32
and 16-bit products, float32 convolutions, attention on GA100 and the shares of bandwidth: on the
fitted half of these rows. The launch in eager rows is read off their fitted half as well; for
convolutions, which have no short rows, it is what is left when the kernels are gone (120 to 210 us:
some of it may be kernels).
"""
INTERVALS = """
## Intervals

A predicted step's interval is made of those of its classes of ops (`models/residuals.py`): from the
10th to the 90th percentile of measured over predicted on the fitted half. *Holds*: the share of
unseen rows in it; 75 to 85 % is meant. The last two columns are what a device would get that nobody
measured: the widest of the other devices, and how often that holds, with constants that were still
fitted on it; the last table is without them.
"""
LEFT_OUT = """
## Devices left out

The unseen rows of a device with the constants of another architecture, as if nobody had measured it
(its data sheet and its share of the memory's bandwidth stay), and how often the widest interval of
the others holds.

| device | kind | constants of | rows | median | 90th percentile | bias | holds |
|---|---|---|--:|--:|--:|--:|--:|
"""


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    lines = [HEAD]
    lines.append(f"Made {result['made']} at commit `{result['commit']}`.\n")
    lines.append("| device | kind | rows | median | 90th percentile | bias | roof | refitted |")
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|")
    entries = [entry for entry in result["table"] if entry["unseen"]["n"]]
    for entry in sorted(entries, key=lambda each: -each["unseen"]["median_error"]):
        unseen, roof = entry["unseen"], entry["roofline_unseen"]
        refitted = entry.get("refitted_roofline_unseen", {})
        lines.append(
            f"| {entry['device']} | {entry['kind']} | {unseen['n']} "
            f"| {_percent(unseen['median_error'])} | {_percent(unseen['p90_error'])} "
            f"| {_signed(unseen['median_signed'])} | {_percent(roof.get('median_error'))} "
            f"| {_percent(refitted.get('median_error'))} |"
        )
    lines.append(FITTED + INTERVALS)
    lines.append(
        "| device | class | unseen rows | interval | holds | of relatives | holds |\n"
        "|---|---|--:|--:|--:|--:|--:|"
    )
    for row in result["intervals"]:
        relatives = "-"
        if "low_of_relatives" in row:
            relatives = f"{row['low_of_relatives']:.2f} to {row['high_of_relatives']:.2f}"
        lines.append(
            f"| {row['device']} | {row['class']} | {row['rows']} "
            f"| {row['low']:.2f} to {row['high']:.2f} | {_percent(row['holds'])} "
            f"| {relatives} | {_percent(row.get('holds_of_relatives'))} |"
        )
    lines.append(LEFT_OUT.rstrip("\n"))
    for row in result["left_out"]:
        lines.append(
            f"| {row['device']} | {row['kind']} | {row['constants_of']} | {row['n']} "
            f"| {_percent(row['median_error'])} | {_percent(row['p90_error'])} "
            f"| {_signed(row['median_signed'])} | {_percent(row['holds'])} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/accuracy.md"))
    options = parser.parse_args()
    options.out.write_text(markdown(json.loads(options.result.read_text())))


if __name__ == "__main__":
    main()
