"""Score the kernel model on measured ops: by device and kind of op, fitted and unseen apart.

    python benchmarks/prediction_kernels/run.py --measured FOLDER --out RESULT.json

Each figure is of |predicted / measured - 1| over rows of at least ``SHORTEST_S``. Beside the model
stand a plain roofline and the same roofline with a factor and an offset refitted for the device and
kind (``a * roof + b``), both on the rows that the model's constants were fitted on.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from residuals import CLASS_OF_KIND, Bands, Ratios, bands, coverage, held, write_module
from rows import Row, read_rows

from gobrrr.models.coefficients import BY_ARCHITECTURE, Coefficients, coefficients_of
from gobrrr.models.kernel_model import Flags, estimate_op
from gobrrr.models.residency import cold_bytes_of_step
from gobrrr.models.target import TargetDevice, target_device
from gobrrr.timeline.errors import InputError
from gobrrr.work import work_of

# Shorter rows are mostly launch, which these files hold in their own way.
SHORTEST_S = 20e-6
# Kinds whose time is a straight line over bytes: the launch in eager rows is read off them.
STREAMS = frozenset({"add fp32", "mul fp32", "tanh fp32"})
# A board lowers its clock when its power has been too high for some time. Float32 rows repeat an
# op 25 times on a board that idled before: those that are over within this time ran at full clock
# (on the T4, whose clock falls most, products of under 1.5 ms reach 1.5 times the rate of others).
REPEATS, BURST_S = 25, 40e-3


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
    if row.eager and c.float32_energy_j is not None:
        burst = replace(c, float32_energy_j=None)
        short = _predict(row, device, burst)
        if short.predicted_s is None or short.predicted_s * REPEATS <= BURST_S:
            return short
    return _predict(row, device, c)


def _predict(row: Row, device: TargetDevice, c: Coefficients) -> Scored:
    flags = Flags(tf32_matmul=False, tf32_convolution=row.kind.startswith("program"))
    cold = cold_bytes_of_step(row.calls, max(0, device.cache_bytes - row.others_bytes))
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
        roof += found.roof.time_s
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


def table(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """One entry a device and kind of op."""
    known_launches = launches(scored)
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
        sides = {
            name: [i for i in known if i.row.fitted == (name == "fitted")]
            for name in ("fitted", "unseen")
        }
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
NEAREST = {
    ("A100-SXM-80GB", "linear bf16"): "Hopper", ("H100-SXM", "linear bf16"): "Ampere GA100",
    ("L40S", "linear bf16"): "Ampere GA100",
    **{
        (device, kind): architecture
        for kind in ("linear fp32", "bmm fp32", "conv fp32")
        for device, architecture in (
            ("P100-PCIe", "Pascal GP104"), ("P4", "Pascal GP100"), ("V100-PCIe", "Ampere GA100"),
            ("T4", "Volta"), ("A100-PCIe-40GB", "Volta"), ("A100-PCIe-80GB", "Volta"),
        )
    },
}  # fmt: skip


def left_out(scored: Sequence[Scored], intervals: Bands) -> list[dict[str, Any]]:
    """Unseen rows of each device with another architecture's constants, and that one's intervals.

    Its share of the memory's bandwidth stays its own.
    """
    known_launches = launches(scored)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in scored:
        row = item.row
        architecture = NEAREST.get((row.device, row.kind))
        launch = known_launches.get((row.device, row.kind), Launch())
        if architecture is None or row.fitted or row.measured_s - launch.floor_s < SHORTEST_S:
            continue
        device = target_device(row.device)
        own = coefficients_of(device.sheet)
        c = replace(BY_ARCHITECTURE[architecture], dram_fraction=own.dram_fraction)
        predicted_s = predict(row, device, c).predicted_s
        if predicted_s is not None:
            found[row.device, row.kind].append(launch.shown_s(predicted_s) / row.measured_s)
    rows = []
    for (device_key, kind), values in sorted(found.items()):
        name = CLASS_OF_KIND[kind]
        others = [rest[name] for key, rest in intervals.items() if key != device_key
                  and name in rest]  # fmt: skip
        low, high = min(low for low, _, _ in others), max(high for _, high, _ in others)
        rows.append({
            "device": device_key, "kind": kind, "constants_of": NEAREST[device_key, kind],
            **spread([(value, 1.0) for value in values]),
            "interval": [low, high], "holds": held([1 / value for value in values], low, high),
        })  # fmt: skip
    return rows


def ratios(scored: Sequence[Scored], *, fitted: bool) -> Ratios:
    """Measured over predicted of one half, by (device, kind)."""
    known_launches = launches(scored)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, default=Path("../shared/measured/kernels"))
    parser.add_argument("--only", default="", help="part of 'DEVICE KIND'")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--residuals", type=Path, help="module to write the intervals to")
    options = parser.parse_args()
    scored = score(options.measured, options.only)
    rows = table(scored)
    intervals = bands(ratios(scored, fitted=True))
    holds = coverage(intervals, ratios(scored, fitted=False))
    if options.residuals and options.out:
        write_module(intervals, options.residuals, f"benchmarks/results/{options.out.name}")
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
    if options.out:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        result = {
            "what": __doc__.splitlines()[0],
            "made": datetime.now(timezone.utc).date().isoformat(),
            "commit": commit,
            "versions": {"python": platform.python_version(), "numpy": np.__version__},
            "command": "python benchmarks/prediction_kernels/run.py --measured FOLDER --out FILE",
            "shortest_s": SHORTEST_S,
            "split": "halves by a hash of the (n, k) pair of bf16 linear layers, of the shape of "
            "other ops, of the number of a program; constants are fitted on the first",
            "table": rows,
            "intervals": holds,
            "left_out": left_out(scored, intervals),
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
