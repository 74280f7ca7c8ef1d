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
to be edited. It covers single ops and small programs; whole steps are in the result files of
`benchmarks/prediction` (H100, MI300X) and `benchmarks/prediction_timm` (RTX 4090).

Errors are |predicted / measured - 1| over rows of at least 20 µs that no constant was fitted on
("unseen"; halves by a hash of the shape, fixed before anything was scored). These are unseen
shapes on devices that constants were fitted on; for devices without any measurement see the last
table. *Bias* is the median of predicted / measured - 1: below zero, the prediction is too fast.
*Roofline* is the time at the ceilings, *refitted* the same with a factor and an offset fitted for
the device and kind. Kinds are ops with their dtype: *bmm* is a batched matrix product, *ln* a layer
norm, *conv* a convolution; *add* and *mul* are of two tensors, *addu* and *powu* of a tensor and a
number.

The unseen *programs* on the H100 are no longer blind: their times were read while rules of the
model were chosen, although no constant was solved from them.
"""
FITTED = """
## What was fitted

`prediction/kernels/coefficients.py` says for each architecture which numbers were fitted, and on
what. Float32 and 16-bit products, float32 convolutions, attention on GA100 and the shares of
bandwidth were fitted on the fitted half of these rows. So was the launch time of eager rows; for
convolutions, which have no short rows, it is the residual of the kernel model (98 to 177 µs: some
of it may be kernels).
"""
INTERVALS = """
## Intervals

The interval of a predicted step combines those of its classes of ops
(`prediction/kernels/residuals.py`): from the 10th to the 90th percentile of measured / predicted on
the fitted half; where rows are few, the spread between devices with borrowed constants widens it.
*Holds* is the share of unseen rows inside it; the target is 75 to 85 %. The last two columns are
for another device of a measured architecture: the interval that comes from the other chips (their
spread and the spread between them), and how often it holds, with constants still fitted on the
device itself; the last table is without them.
"""
LEFT_OUT = """
## Devices left out

The unseen rows of a device, predicted with all the constants of another architecture, as if the
device had not been measured: only its data sheet is its own. The interval is the one that a device
of an unmeasured architecture gets. It is computed from the other chips, each predicted with
another's constants, on the fitted half (the spread within a chip and the spread between chips; the
latter from this class and from all). {holds}

| device | kind | constants of | rows | median | 90th percentile | bias | interval | holds |
|---|---|---|--:|--:|--:|--:|--:|--:|
"""


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    lines = [HEAD]
    lines.append(f"Made {result.get('date') or result['made']} at commit `{result['commit']}`.\n")
    lines.append("| device | kind | rows | median | 90th percentile | bias | roofline | refitted |")
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
        "| device | class | unseen rows | interval | holds | from related chips | holds |\n"
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
    left_out = result["left_out"]
    mean = sum(row["holds"] for row in left_out) / len(left_out)
    said = (
        f"Over all rows of this table they hold {_percent(mean)} of the times; the target is "
        "75 to 85 %."
    )
    lines.append(LEFT_OUT.rstrip("\n").format(holds=said))
    for row in left_out:
        lines.append(
            f"| {row['device']} | {row['kind']} | {row['constants_of']} | {row['n']} "
            f"| {_percent(row['median_error'])} | {_percent(row['p90_error'])} "
            f"| {_signed(row['median_signed'])} "
            f"| {row['interval'][0]:.2f} to {row['interval'][1]:.2f} | {_percent(row['holds'])} |"
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
