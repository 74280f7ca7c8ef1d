"""Score the kernel model on measured ops: by device and kind of op, fitted and unseen apart.

    PYTHONPATH=. python benchmarks/prediction_kernels/run.py --shared FOLDER --out RESULT.json

Each figure is of |predicted / measured - 1| over rows of at least ``SHORTEST_S``. Beside the model
stand a plain roofline and the same roofline with a factor and an offset refitted for the device and
kind (``a * roof + b``), both on the rows that the model's constants were fitted on.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser
from benchmarks.prediction_kernels.residuals import (
    CLASS_OF_KIND,
    FEWEST,
    Ratios,
    bands,
    bands_of_others,
    coverage,
    held,
    spread_between,
    with_rest,
    write_module,
)
from benchmarks.prediction_kernels.rows import Row, read_rows
from benchmarks.split import halves

from gobrrr.prediction.kernels.coefficients import BY_ARCHITECTURE, Coefficients, coefficients_of
from gobrrr.prediction.kernels.kernel_model import Flags, estimate_op, work_with_flags
from gobrrr.prediction.kernels.target import TargetDevice, target_device
from gobrrr.roofline.residency import residency_of_step
from gobrrr.roofline.roof import roof_of
from gobrrr.timeline.errors import InputError
from gobrrr.work import work_of

# Shorter rows are mostly launch, which these files hold in their own way.
SHORTEST_S = 20e-6
QUICK = "T4 add fp32"
# Kinds whose time is a straight line over bytes: the launch in eager rows is read off them.
STREAMS = frozenset({"add fp32", "mul fp32", "tanh fp32"})
# A board lowers its clock when its power has been too high for some time. Float32 rows repeat an
# op 25 times on a board that idled before: those that are over within this time ran at full clock
# (on the T4, whose clock falls most, products of under 1.5 ms reach 1.5 times the rate of others).
# Not so a convolution: with ``cudnn.benchmark`` all of its algorithms were timed just before.
REPEATS, BURST_S = 25, 40e-3
WARM = frozenset({"conv fp32"})


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with what the model and the roof say of it, in seconds; ``None``: not modelled."""

    row: Row
    predicted_s: float | None
    roof_s: float | None
    because: str
    flops: float


def predict(row: Row, device: TargetDevice, coefficients: Coefficients | None = None) -> Scored:
    """The row's calls one after the other, as they repeat."""
    c = coefficients or coefficients_of(device.sheet)
    if row.eager and row.kind not in WARM and c.float32_energy_j is not None:
        burst = replace(c, float32_energy_j=None)
        short = _predict(row, device, burst)
        if short.predicted_s is None or short.predicted_s * REPEATS <= BURST_S:
            return short
    return _predict(row, device, c)


def _predict(row: Row, device: TargetDevice, c: Coefficients) -> Scored:
    flags = Flags(tf32_matmul=False, tf32_convolution=row.kind.startswith("program"))
    left_bytes = max(0, device.cache_bytes - row.others_bytes)
    _, cold = residency_of_step(row.calls, None, left_bytes)
    total = roof = flops = 0.0
    because = []
    for call, cold_bytes in zip(row.calls, cold):
        work = work_of(call)
        if work is None:
            return Scored(row, None, None, f"no formula for {call.name}", 0.0)
        found = estimate_op(call, work, device, flags=flags, cold_bytes=cold_bytes, coefficients=c)
        if found is None:
            return Scored(row, None, None, f"not modelled: {call.name}", 0.0)
        total += found.time_s
        plain = roof_of(work_with_flags(call, work, device, flags), device.ceilings)
        roof += plain.time_s if plain is not None else 0.0
        flops += work.flops or 0.0
        because.append(found.because)
    return Scored(row, total, roof, "; ".join(because[:3]), flops)


@dataclass(frozen=True, slots=True)
class Launch:
    """What two events around one eager call on an idle device show besides the kernels' time.

    The first event is stamped at once, the kernel starts ``before_s`` later, when the host has
    come to its launch, and the second event is stamped when the kernel ends, but not before the
    host has recorded it, ``floor_s`` after the first.
    """

    before_s: float = 0.0
    floor_s: float = 0.0

    def shown_s(self, kernels_s: float) -> float:
        """What the events show for kernels of this time."""
        return max(self.floor_s, self.before_s + kernels_s)


def launches(scored: Sequence[Scored]) -> dict[tuple[str, str], Launch]:
    """The launch in the eager rows of each device and kind, from the fitted half.

    ``floor_s`` of a kind: the median of its rows whose roof is next to nothing; that of small
    products where it has no such rows. ``before_s`` of a device: the intercept of time over bytes
    of long element-wise rows (their spread about the line is under 1 %); of a kind: that, and what
    its floor is above theirs, for a longer way of the host lengthens both.
    """
    floors: dict[tuple[str, str], list[float]] = defaultdict(list)
    long: dict[str, list[tuple[float, float]]] = defaultdict(list)
    kinds = set()
    for item in scored:
        row = item.row
        if not row.eager or item.roof_s is None or row.kind.startswith("program"):
            continue
        kinds.add((row.device, row.kind))
        # One card in two sizes of memory: the host was the same.
        device = row.device.replace("-80GB", "-40GB")
        if row.fitted and item.roof_s < 2e-6:
            floors[device, row.kind].append(row.measured_s)
        if row.fitted and row.kind in STREAMS and item.roof_s > 60e-6:
            long[device].append((item.roof_s, row.measured_s))
    floor = {key: median(times) for key, times in floors.items() if len(times) >= 5}
    result = {}
    for device, kind in kinds:
        host = device.replace("-80GB", "-40GB")
        streams = [floor[host, each] for each in STREAMS if (host, each) in floor]
        floor_s = floor.get((host, kind), floor.get((host, "bmm fp32")))
        if len(long[host]) < 10 or not streams or floor_s is None:
            continue
        before_s = max(0.0, refit(long[host])[1])
        result[device, kind] = Launch(max(0.0, before_s + floor_s - median(streams)), floor_s)
        if (host, kind) not in floor:
            # No short rows (convolutions): what is left of the rows when the kernels are gone, but
            # not less than a short product shows.
            pairs = [
                (item.predicted_s, item.row.measured_s)
                for item in scored
                if (item.row.device, item.row.kind) == (device, kind)
                and item.row.fitted and item.predicted_s is not None
            ]  # fmt: skip
            result[device, kind] = Launch(
                max(result[device, kind].before_s, refit(pairs)[1] if len(pairs) >= 50 else 0.0),
                floor_s,
            )
    return result


def spread(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Errors of (predicted, measured) pairs."""
    if not pairs:
        return {"n": 0}
    ratio = np.array([p / m for p, m in pairs])
    error = np.abs(ratio - 1)
    return {
        "n": len(pairs),
        "median_error": round(float(np.median(error)), 4),
        "p90_error": round(float(np.percentile(error, 90)), 4),
        "mean_error": round(float(error.mean()), 4),
        "median_signed": round(float(np.median(ratio) - 1), 4),
    }


def refit(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """``a`` and ``b`` of measured = a * roof + b, by least squares of relative errors."""
    roof = np.array([p for p, _ in pairs])
    measured = np.array([m for _, m in pairs])
    design = np.stack([roof / measured, 1 / measured], axis=1)
    (a, b), *_ = np.linalg.lstsq(design, np.ones(len(pairs)), rcond=None)
    return float(a), float(b)


def table(
    scored: Sequence[Scored], known_launches: dict[tuple[str, str], Launch]
) -> list[dict[str, Any]]:
    """One entry a device and kind of op."""
    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for item in scored:
        groups[item.row.device, item.row.kind].append(item)
    rows = []
    for (device, kind), items in sorted(groups.items()):
        launch = known_launches.get((device, kind), Launch())
        long = [i for i in items if i.row.measured_s - launch.floor_s >= SHORTEST_S]
        known = [i for i in long if i.predicted_s is not None]
        entry: dict[str, Any] = {
            "device": device, "kind": kind, "launch_us": round(launch.before_s * 1e6, 1),
            "rows": len(items), "not_modelled": len(long) - len(known),
        }  # fmt: skip
        sides = halves(known)
        for name, side in sides.items():
            entry[name] = spread(
                [(launch.shown_s(i.predicted_s or 0), i.row.measured_s) for i in side]
            )
        unseen = [(launch.shown_s(i.roof_s or 0), i.row.measured_s) for i in sides["unseen"]]
        entry["roofline_unseen"] = spread(unseen)
        if len(sides["fitted"]) >= 10:
            a, b = refit([((i.roof_s or 0), i.row.measured_s) for i in sides["fitted"]])
            entry["refitted_roofline_unseen"] = spread(
                [(a * (i.roof_s or 0) + b, i.row.measured_s) for i in sides["unseen"]]
            )
        worst = sorted(
            sides["unseen"],
            key=lambda i: -abs(log((launch.shown_s(i.predicted_s or 0)) / i.row.measured_s)),
        )
        entry["worst_unseen"] = [
            {
                "row": i.row.name, "measured_us": round(i.row.measured_s * 1e6, 1),
                "predicted_us": round(launch.shown_s(i.predicted_s or 0) * 1e6, 1),
                "because": i.because,
            }
            for i in worst[:3]
        ]  # fmt: skip
        rows.append(entry)
    return rows


# A device scored with the constants of another architecture, the nearest that was measured for its
# kind of op: what they would be if nobody had measured it.
NEAREST_16 = {
    "A100-SXM-80GB": "Hopper", "H100-SXM": "Ampere GA100", "L40S": "Ampere GA100",
}  # fmt: skip
NEAREST_32 = {
    "P100-PCIe": "Pascal GP104", "P4": "Pascal GP100", "V100-PCIe": "Ampere GA100", "T4": "Volta",
    "A100-PCIe-40GB": "Volta", "A100-PCIe-80GB": "Volta",
}  # fmt: skip


def nearest(row: Row) -> str | None:
    """The architecture whose constants a row's device gets when it is left out."""
    if row.kind == "linear bf16":
        return NEAREST_16.get(row.device)
    return NEAREST_32.get(row.device) if row.kind.endswith("fp32") else None


def with_borrowed(scored: Sequence[Scored]) -> list[Scored]:
    """The rows that have a nearest architecture, with all of its constants."""
    devices: dict[str, TargetDevice] = {}
    found = []
    for item in scored:
        architecture = nearest(item.row)
        if architecture is not None:
            device = devices.setdefault(item.row.device, target_device(item.row.device))
            found.append(predict(item.row, device, BY_ARCHITECTURE[architecture]))
    return found


def left_out(
    borrowed: Sequence[Scored], known_launches: dict[tuple[str, str], Launch]
) -> list[dict[str, Any]]:
    """Unseen rows of each device with another architecture's constants, and how often they hold.

    The interval is that of the other chips, each with constants of another, on the fitted half.
    """
    fitted = ratios(borrowed, known_launches, fitted=True)
    rows = []
    for (device, kind), values in sorted(ratios(borrowed, known_launches, fitted=False).items()):
        name = CLASS_OF_KIND[kind]
        band = bands_of_others(fitted, without=device).get(name)
        if band is None or len(values) < FEWEST:
            continue
        low, high, _ = band
        architecture = next(nearest(i.row) for i in borrowed if (i.row.device, i.row.kind)
                            == (device, kind))  # fmt: skip
        rows.append({
            "device": device, "kind": kind, "constants_of": architecture,
            **spread([(1 / value, 1.0) for value in values]),
            "interval": [low, high], "holds": held(values, low, high),
        })  # fmt: skip
    return rows


def ratios(
    scored: Sequence[Scored], known_launches: dict[tuple[str, str], Launch], *, fitted: bool
) -> Ratios:
    """Measured over predicted of one half, by (device, kind)."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in scored:
        row = item.row
        launch = known_launches.get((row.device, row.kind), Launch())
        if item.predicted_s is None or row.measured_s - launch.floor_s < SHORTEST_S:
            continue
        if row.fitted == fitted:
            found[row.device, row.kind].append(row.measured_s / launch.shown_s(item.predicted_s))
    return found


def score(folder: Path, only: str = "") -> list[Scored]:
    """All rows of the folder (of the kinds and devices that ``only`` occurs in)."""
    devices: dict[str, TargetDevice | None] = {}
    scored = []
    for row in read_rows(folder):
        if only and only not in f"{row.device} {row.kind}":
            continue
        if row.device not in devices:
            try:
                devices[row.device] = target_device(row.device)
            except InputError as error:
                print(error, file=sys.stderr)
                devices[row.device] = None
        device = devices[row.device]
        if device is not None:
            scored.append(predict(row, device))
    return scored


def summary(
    rows: Sequence[dict[str, Any]],
    holds: Sequence[dict[str, Any]],
    borrowed: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """The figures that README and docs quote; unseen rows alone."""

    def mean_held(entries: Sequence[dict[str, Any]]) -> float | None:
        return round(sum(e["holds"] for e in entries) / len(entries), 3) if entries else None

    return {
        "linear_bf16": {e["device"]: e["unseen"] for e in rows if e["kind"] == "linear bf16"},
        "intervals_hold": mean_held(holds),
        "intervals_hold_left_out": mean_held(borrowed),
    }


def nothing_scored(folder: Path, only: str) -> str:
    """Why there is no table: a folder of other things, or nothing that ``only`` occurs in."""
    if only and next(read_rows(folder), None) is not None:
        return f"no measured op in {folder} is of {only!r} (part of 'DEVICE KIND', as 'T4 conv')"
    return (
        f"no measured ops in {folder}: none of its files is named OP_DTYPE_DEVICE.csv or .csv.gz "
        "with a device of rows.py (bmm_fp32_t4.csv.gz)"
    )


def main() -> None:
    made = parser(__doc__, "measured/kernels")
    made.add_argument("--only", default="", help="part of 'DEVICE KIND'")
    made.add_argument("--residuals", type=Path, help="module to write the intervals to")
    options = made.parse_args()
    if options.quick:
        options.only = QUICK
    record = Record("prediction_kernels", options, "numpy", device="recorded ops")
    scored = score(needed(options.shared, "measured ops"), options.only)
    if not scored:
        sys.exit(nothing_scored(options.shared, options.only))
    known = launches(scored)
    rows = table(scored, known)
    borrowed = with_borrowed(scored)
    own, others = (ratios(each, known, fitted=True) for each in (scored, borrowed))
    intervals = bands(own, spread_between(others))
    holds = coverage(intervals, own, ratios(scored, known, fitted=False))
    if options.residuals and options.out:
        write_module(
            intervals, bands_of_others(own), bands_of_others(with_rest(others, own)),
            options.residuals,
            f"benchmarks/results/{options.out.name}",
        )  # fmt: skip
    for entry in rows:
        u, r, f = entry["unseen"], entry["roofline_unseen"], entry["fitted"]
        if not u["n"]:
            continue
        print(
            f"{entry['device']:15} {entry['kind']:18} n {u['n']:5}  "
            f"unseen {u['median_error']:6.1%} p90 {u['p90_error']:6.1%} "
            f"bias {u['median_signed']:+6.1%}"
            f"  fitted {f.get('median_error', float('nan')):6.1%}  roof {r['median_error']:6.1%}"
            f"  launch {entry['launch_us']} us  not modelled {entry['not_modelled']}"
        )
    devices_left_out = left_out(borrowed, known)
    devices = len({entry["device"] for entry in rows})
    record.write(
        {
            "device": f"recorded ops of {devices} devices",
            "summary": summary(rows, holds, devices_left_out),
            "shortest_s": SHORTEST_S,
            "split": "halves by a hash of the (n, k) pair of bf16 linear layers, of the shape of "
            "other ops, of the number of a program; constants are fitted on the first",
            "table": rows,
            "intervals": holds,
            "left_out": devices_left_out,
        }
    )


if __name__ == "__main__":
    main()
