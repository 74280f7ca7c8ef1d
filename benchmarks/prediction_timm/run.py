"""Predicted against measured step times of timm networks on an RTX 4090, eager and compiled.

Reports the errors of the model as shipped, on all families and on either half; then what a fit of
the factors below on one half of the families does for the other half, both ways, and for families
left out in folds. The shipped coefficients were chosen by looking at some of these networks, so the
fits from one half to the other are the fairer figure.

    PYTHONPATH=. python benchmarks/prediction_timm/run.py --cache FOLDER --out FILE

The cache is what ``capture.py`` and ``features.py`` have made of the networks (README.md).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser
from benchmarks.prediction_timm.families import side_of
from benchmarks.prediction_timm.features import NetworkRows, load_rows
from numpy.typing import NDArray

from gobrrr.prediction.kernels.efficiency import GENERIC
from gobrrr.prediction.kernels.target import target_device

Float64 = NDArray[np.float64]

EAGER = "rtx4090_timm_infer_amp_eager.csv"
COMPILED = "rtx4090_timm_infer_amp_compiled.csv"
CONTRACTIONS = (
    "product", "unaligned product", "convolution", "pointwise convolution", "first convolution",
    "grouped convolution", "depthwise", "attention",
)  # fmt: skip
# What a fit may multiply: time of arithmetic or of traffic, by kind of kernel.
FACTORS: dict[str, tuple[tuple[str, ...], str]] = {
    "matrix": (CONTRACTIONS, "compute"),
    "unaligned product": (("unaligned product",), "compute"),
    "convolution": (("convolution",), "compute"),
    "pointwise convolution": (("pointwise convolution",), "compute"),
    "grouped convolution": (("grouped convolution",), "compute"),
    "depthwise": (("depthwise",), "compute"),
    "depthwise traffic": (("depthwise",), "traffic"),
    "attention": (("attention",), "compute"),
    "conversion": (CONTRACTIONS, "conversion"),
    "walk": (("walk", "normalisation"), "traffic"),
    "generated": (("generated pointwise", "generated reduction"), "traffic"),
}
STEPS = ((0.7, 1.4), (0.87, 1.15), (0.95, 1.05))
# A factor must earn its distance from 1: this much of the mean logarithmic error per unit.
PRICE = 0.004
FOLDS = 8


@dataclass(frozen=True)
class Table:
    """All cases as columns: one case is a network run one way, one row a kernel of a case."""

    names: list[str]
    families: list[str]
    hows: list[str]
    measured_s: Float64
    case: NDArray[np.int64]
    kinds: list[str]
    kind: NDArray[np.int64]
    count: Float64
    compute_s: Float64
    traffic_s: Float64
    conversion_s: Float64
    time_s: Float64
    unknown: int

    def shipped_s(self) -> Float64:
        """Seconds of each case by the model as it is."""
        return np.bincount(self.case, self.time_s * self.count, len(self.names))

    def fitted_s(self, factors: Mapping[str, float]) -> Float64:
        """Seconds of each case with the sides of its kernels multiplied.

        What the larger side grows or shrinks by is added to the estimate.
        """
        sides = {
            "compute": np.ones(len(self.kinds)),
            "traffic": np.ones(len(self.kinds)),
            "conversion": np.ones(len(self.kinds)),
        }
        for name, value in factors.items():
            kinds, side = FACTORS[name]
            for i, kind in enumerate(self.kinds):
                if kind in kinds:
                    sides[side][i] *= value
        before = np.maximum(self.compute_s, self.traffic_s)
        after = np.maximum(
            self.compute_s * sides["compute"][self.kind],
            self.traffic_s * sides["traffic"][self.kind],
        )
        beside = self.conversion_s * (sides["conversion"][self.kind] - 1)
        time_s = self.time_s + after - before + beside
        return np.bincount(self.case, time_s * self.count, len(self.names))


def rows(folder: Path, name: str) -> dict[str, dict[str, str]]:
    """A measured file by network."""
    with (folder / name).open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def table_of(networks: Iterable[NetworkRows], measured: Path) -> Table:
    """Cases that were measured with the batch that they were captured with."""
    files = {"eager": rows(measured, EAGER), "compiled": rows(measured, COMPILED)}
    cases: list[tuple[str, str, str, float]] = []
    kinds: dict[str, int] = {}
    columns: list[tuple[float, ...]] = []
    unknown = 0
    for network in networks:
        for how, kernels in (("eager", network.eager), ("compiled", network.compiled)):
            found = files[how].get(network.name)
            if found is None or int(found["infer_batch_size"]) != network.batch:
                continue
            for k in kernels:
                if k.time_s is None:
                    unknown += 1
                    continue
                kind = kinds.setdefault(k.kind, len(kinds))
                columns.append(
                    (len(cases), kind, k.count, k.compute_s, k.traffic_s, k.conversion_s, k.time_s)
                )
            seconds = float(found["infer_step_time"]) * 1e-3
            cases.append((network.name, network.family, how, seconds))
    a = np.array(columns)
    return Table(
        [c[0] for c in cases], [c[1] for c in cases], [c[2] for c in cases],
        np.array([c[3] for c in cases]), a[:, 0].astype(int), list(kinds), a[:, 1].astype(int),
        *a[:, 2:].T, unknown,
    )  # fmt: skip


def fit(table: Table, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """Coordinate descent on the mean |log(predicted / measured)|, which outliers do not rule."""
    factors: dict[str, float] = {}
    goal = table.measured_s[chosen]

    def loss(tried: Mapping[str, float]) -> float:
        error = np.abs(np.log(table.fitted_s(tried)[chosen] / goal)).mean()
        return float(error) + PRICE * sum(abs(np.log(v)) for v in tried.values())

    best = loss(factors)
    for steps in STEPS:
        for name in FACTORS:
            for step in steps:
                tried = {**factors, name: factors.get(name, 1.0) * step}
                error = loss(tried)
                if error < best - 1e-6:
                    factors, best = tried, error
                    break
    return {name: round(value, 3) for name, value in factors.items()}


def summary(table: Table, predicted_s: Float64, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """Errors of some cases: eager, compiled, and the speedup of compiling."""
    result: dict[str, Any] = {}
    ratios: dict[str, dict[str, float]] = {"eager": {}, "compiled": {}}
    for i in np.flatnonzero(chosen):
        ratios[table.hows[i]][table.names[i]] = float(predicted_s[i] / table.measured_s[i])
    for how, found in ratios.items():
        if found:
            result[how] = errors(list(found.values()))
    both = [name for name in ratios["eager"] if name in ratios["compiled"]]
    if both:
        # (predicted eager / predicted compiled) / (measured eager / measured compiled)
        result["speedup"] = errors([ratios["eager"][n] / ratios["compiled"][n] for n in both])
    return result


def errors(ratios: Sequence[float]) -> dict[str, float]:
    """Median and 90th percentile of |ratio - 1|, share within 25 %, median ratio."""
    found = np.array(ratios)
    off = np.abs(found - 1)
    return {
        "n": len(found),
        "median_error": round(float(np.median(off)), 4),
        "p90_error": round(float(np.quantile(off, 0.9)), 4),
        "within_25_percent": round(float((off <= 0.25).mean()), 4),
        "median_ratio": round(float(np.median(found)), 4),
    }


def report_of(table: Table) -> dict[str, Any]:
    """All figures of the result file."""
    side = np.array([side_of(family) for family in table.families])
    everything = np.ones(len(side), bool)
    shipped = table.shipped_s()
    result: dict[str, Any] = {
        "networks": len(set(table.names)),
        "families": len(set(table.families)),
        "kernels_without_estimate": table.unknown,
        "shipped": summary(table, shipped, everything),
        "shipped_by_half": [summary(table, shipped, side == half) for half in (0, 1)],
        "fitted_on_one_half": [],
    }
    for half in (0, 1):
        factors = fit(table, side == half)
        predicted = table.fitted_s(factors)
        result["fitted_on_one_half"].append(
            {
                "factors": factors,
                "fit": summary(table, predicted, side == half),
                "held_out": summary(table, predicted, side != half),
            }
        )
    families = sorted(set(table.families))
    fold = np.array([families.index(family) % FOLDS for family in table.families])
    left_out = np.zeros(len(fold))
    for number in range(FOLDS):
        factors = fit(table, fold != number)
        left_out[fold == number] = table.fitted_s(factors)[fold == number]
    result["families_left_out"] = summary(table, left_out, everything)
    result["by_family"] = {
        family: {"side": side_of(family), **summary(table, shipped, _of(table, family))}
        for family in families
    }
    result["cases_ms"] = {
        how: {
            table.names[i]: [
                round(float(shipped[i]) * 1e3, 2), round(float(table.measured_s[i]) * 1e3, 2)
            ]
            for i in np.argsort(table.names) if table.hows[i] == how
        }
        for how in ("eager", "compiled")
    }  # fmt: skip
    return result


def _of(table: Table, family: str) -> NDArray[np.bool_]:
    return np.array([name == family for name in table.families])


def main() -> None:
    made = parser(__doc__, "measured")
    made.add_argument("--cache", type=Path, help="default: captures/timm in the folder of --shared")
    made.add_argument("--worst", type=int, default=20)
    options = made.parse_args()
    measured = needed(options.shared / EAGER, "measured step times").parent
    cache = options.cache or options.shared / "captures" / "timm"
    networks = load_rows(needed(cache, "captures of timm's networks (README.md: how to make them)"))
    record = Record("prediction_timm", options, "numpy", device="NVIDIA GeForce RTX 4090")
    table = table_of(networks, measured)
    device = target_device("RTX-4090")
    report: dict[str, Any] = {
        "what": "predicted / measured step time of timm networks, RTX 4090, fp16 autocast",
        "measured_by": "timm results (PyTorch 2.9.1, CUDA 12.8), Apache-2.0",
        "sample": "every fourth network of a family, at least one; branches folded as measured",
        "notices": list(device.notices),
        "convolutions": {k: getattr(GENERIC, k) for k in GENERIC.__dataclass_fields__},
        **report_of(table),
    }
    shipped = table.shipped_s() / table.measured_s
    for i in np.argsort(-np.abs(np.log(shipped)))[: options.worst]:
        mine = table.case == i
        parts = {
            kind: round(float((table.time_s * table.count)[mine & (table.kind == n)].sum() * 1e3))
            for n, kind in enumerate(table.kinds)
        }
        large = {k: v for k, v in parts.items() if v > 0.05 * sum(parts.values())}
        print(f"{shipped[i]:5.2f} {table.hows[i]:9s}{table.names[i]:38s}"
              f"{table.measured_s[i] * 1e3:8.1f} ms {large}")  # fmt: skip
    short = {k: v for k, v in report.items() if k not in ("cases_ms", "by_family")}
    print(json.dumps(short, indent=1))
    record.write(report)


if __name__ == "__main__":
    main()
