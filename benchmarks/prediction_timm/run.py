"""Predicted against measured step times of timm networks on an RTX 4090, eager and compiled.

The coefficients named below are fitted on half of the families; the other half, and each family
by coefficients fitted without it, are reported beside them.

    python -m benchmarks.prediction_timm.run --measured FOLDER --cache FOLDER [--fit] --json FILE
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.prediction_timm.capture import COMPILED, EAGER, rows
from benchmarks.prediction_timm.families import side_of
from benchmarks.prediction_timm.tables import Kernel, Network, load_all

from gobrrr.models import efficiency
from gobrrr.models.coefficients import Coefficients, coefficients_of
from gobrrr.models.efficiency import ConvolutionEfficiency
from gobrrr.models.kernel_model import estimate_op
from gobrrr.models.target import TargetDevice, target_device

DEVICE = "RTX-4090"
# What is fitted, with the kinds of kernels that each acts on.
_ALL = ("product", "convolution", "attention", "walk")
FITTED: dict[str, tuple[str, ...]] = {
    "matrix_fraction": _ALL[:3],
    "dram_fraction": _ALL,
    "vector_fraction": ("walk", "attention"),
    "strided_fraction": ("walk", "convolution"),
    "index_instructions": ("walk", "convolution"),
    "overlap_loss": _ALL,
    "attention_fraction": ("attention",),
    "unaligned_fraction": ("product", "convolution"),
    "conv.channels_last": ("convolution",),
    "conv.pointwise": ("convolution",),
    "conv.few_channels": ("convolution",),
    "conv.grouped": ("convolution",),
    "conv.depthwise": ("convolution",),
    "conv.depthwise_last": ("convolution",),
    "conv.depthwise_stream": ("convolution",),
    "conv.depthwise_stream_last": ("convolution",),
    "conv.conversion": ("convolution",),
}
# Tried in turn, a round each.
FACTORS = ((0.7, 1.4), (0.85, 1.18), (0.94, 1.06))
# Only these may be above 1.
LARGEST = {"index_instructions": 200.0}
FOLDS = 8


@dataclass(frozen=True)
class Model:
    """Everything that is fitted."""

    c: Coefficients
    e: ConvolutionEfficiency

    def get(self, name: str) -> float:
        part, _, rest = name.rpartition(".")
        return float(getattr(self.e if part else self.c, rest))

    def put(self, name: str, value: float) -> Model:
        part, _, rest = name.rpartition(".")
        if part:
            return replace(self, e=replace(self.e, **{rest: value}))
        return replace(self, c=replace(self.c, **{rest: value}))

    def key(self, kind: str) -> tuple[float, ...]:
        return tuple(self.get(name) for name, kinds in FITTED.items() if kind in kinds)

    def values(self) -> dict[str, float]:
        return {name: self.get(name) for name in FITTED}


def kind_of(kernel: Kernel) -> str:
    name = kernel.call.name
    if "attention" in name:
        return "attention"
    if "conv" in name and "fused" not in name:
        return "convolution"
    if kernel.work is not None and kernel.work.matrix_flops:
        return "product"
    return "walk"


@dataclass(eq=False)
class Case:
    """One network, one way of running it."""

    network: Network
    how: str
    measured_s: float
    kernels: dict[str, tuple[Kernel, ...]]
    unknown: int = 0
    # Times by kind, for the coefficients that the kind depends on.
    known: dict[tuple[str, tuple[float, ...]], float] = field(default_factory=dict)

    def predicted_s(self, device: TargetDevice, model: Model) -> float:
        return sum(self.by_kind(device, model).values())

    def by_kind(self, device: TargetDevice, model: Model) -> dict[str, float]:
        found = {}
        efficiency.BY_ARCHITECTURE[device.architecture] = model.e
        for kind, kernels in self.kernels.items():
            key = (kind, model.key(kind))
            if key not in self.known:
                self.known[key] = sum(self._time(kernel, device, model.c) for kernel in kernels)
            found[kind] = self.known[key]
        return found

    def _time(self, kernel: Kernel, device: TargetDevice, c: Coefficients) -> float:
        if kernel.work is None:
            self.unknown += 1
            return 0.0
        found = estimate_op(kernel.call, kernel.work, device, coefficients=c)
        if found is None:
            self.unknown += 1
            return 0.0
        return (found.time_s + kernel.split * device.kernel_fixed_s) * kernel.count


def cases_of(networks: Iterable[Network], measured: Path) -> list[Case]:
    files = {"eager": rows(measured, EAGER), "compiled": rows(measured, COMPILED)}
    found = []
    for network in networks:
        for how, kernels in (("eager", network.eager), ("compiled", network.compiled)):
            row = files[how].get(network.name)
            if row is None or int(row["infer_batch_size"]) != network.batch:
                continue
            groups: dict[str, list[Kernel]] = defaultdict(list)
            for kernel in kernels:
                groups[kind_of(kernel)].append(kernel)
            measured_s = float(row["infer_step_time"]) * 1e-3
            found.append(Case(network, how, measured_s, {k: tuple(v) for k, v in groups.items()}))
    return found


def loss(cases: Sequence[Case], device: TargetDevice, model: Model) -> float:
    """Mean absolute logarithm of predicted over measured: a few outliers do not rule it."""
    return sum(
        abs(math.log(case.predicted_s(device, model) / case.measured_s)) for case in cases
    ) / len(cases)


def fit(
    cases: Sequence[Case],
    device: TargetDevice,
    start: Model,
    rounds: Sequence[tuple[float, ...]] = FACTORS,
) -> Model:
    """Coordinate descent over the fitted coefficients."""
    best, best_loss = start, loss(cases, device, start)
    for factors in rounds:
        for name in FITTED:
            for factor in factors:
                value = round(best.get(name) * factor, 3)
                if not 0.005 <= value <= LARGEST.get(name, 1.0):
                    continue
                tried = best.put(name, value)
                tried_loss = loss(cases, device, tried)
                if tried_loss < best_loss - 1e-5:
                    best, best_loss = tried, tried_loss
                    break
        print(f"loss {best_loss:.4f} with {best.values()}", flush=True)
    return best


def summary(cases: Sequence[Case], predict: Callable[[Case], float]) -> dict[str, Any]:
    """Errors of one set of cases: eager, compiled, and the speedup of compiling."""
    result: dict[str, Any] = {}
    ratios: dict[str, dict[str, float]] = {"eager": {}, "compiled": {}}
    for case in cases:
        ratios[case.how][case.network.name] = predict(case) / case.measured_s
    for how, found in ratios.items():
        if found:
            result[how] = errors(found.values())
    both = [name for name in ratios["eager"] if name in ratios["compiled"]]
    if both:
        # (predicted eager / predicted compiled) / (measured eager / measured compiled)
        result["speedup"] = errors(ratios["eager"][n] / ratios["compiled"][n] for n in both)
    return result


def errors(ratios: Iterable[float]) -> dict[str, float]:
    """Median and 90th percentile of |ratio - 1|, share within 25 %, median ratio."""
    found = sorted(ratios)
    off = sorted(abs(r - 1) for r in found)
    return {
        "n": len(found),
        "median_error": round(quantile(off, 0.5), 4),
        "p90_error": round(quantile(off, 0.9), 4),
        "within_25_percent": round(sum(e <= 0.25 for e in off) / len(off), 4),
        "median_ratio": round(quantile(found, 0.5), 4),
    }


def quantile(values: Sequence[float], q: float) -> float:
    """By linear interpolation; ``values`` ascend."""
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def some_of_each_family(cases: Sequence[Case], count: int) -> list[Case]:
    """At most ``count`` networks of each family: no family rules a fit by its size."""
    seen: dict[str, set[str]] = defaultdict(set)
    found = []
    for case in cases:
        names = seen[case.network.family]
        if case.network.name in names or len(names) < count:
            names.add(case.network.name)
            found.append(case)
    return found


def leave_out(
    cases: Sequence[Case], few: Sequence[Case], device: TargetDevice, start: Model
) -> dict[str, float]:
    """Each case's prediction by coefficients fitted without its family (families in folds)."""
    families = sorted({case.network.family for case in cases})
    fold = {family: i % FOLDS for i, family in enumerate(families)}
    found: dict[str, float] = {}
    for number in range(FOLDS):
        rest = [case for case in few if fold[case.network.family] != number]
        model = fit(rest, device, start, rounds=FACTORS[-1:])
        for case in cases:
            if fold[case.network.family] == number:
                found[f"{case.network.name} {case.how}"] = case.predicted_s(device, model)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--fit", action="store_true", help="fit, and report what was found")
    parser.add_argument("--rebuild", action="store_true", help="make the kernel tables anew")
    parser.add_argument("--most", type=int, help="networks of a family to look at")
    parser.add_argument("--fit-on", type=int, default=2, help="networks of a family to fit on")
    parser.add_argument("--worst", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = target_device(DEVICE)
    cases = cases_of(
        load_all(options.cache, most=options.most, rebuild=options.rebuild), options.measured
    )
    shipped = Model(coefficients_of(device.sheet, device.kind), efficiency.efficiency_of(device))
    report: dict[str, Any] = {
        "what": "predicted / measured step time, timm networks, RTX 4090, fp16 autocast",
        "measured_by": "timm results (PyTorch 2.9.1, CUDA 12.8), Apache-2.0",
        "versions": {"python": platform.python_version()},
        "networks": len({case.network.name for case in cases}),
        "families": len({case.network.family for case in cases}),
        "shipped": summary(cases, lambda case: case.predicted_s(device, shipped)),
        "shipped_coefficients": shipped.values(),
    }
    chosen = shipped
    halves: list[list[Case]] = [[], []]
    for case in cases:
        halves[side_of(case.network.family)].append(case)
    for title, half in (("shipped_fit_half", halves[0]), ("shipped_held_out_half", halves[1])):
        report[title] = summary(half, lambda case: case.predicted_s(device, shipped))
    if options.fit:
        few = some_of_each_family(cases, options.fit_on)
        chosen = fit([case for case in few if case in halves[0]], device, shipped)
        report["fitted_coefficients"] = chosen.values()
        report["fit_half"] = summary(halves[0], lambda case: case.predicted_s(device, chosen))
        report["held_out_half"] = summary(halves[1], lambda case: case.predicted_s(device, chosen))
        out = leave_out(cases, few, device, chosen)
        report["families_left_out"] = summary(
            cases, lambda case: out[f"{case.network.name} {case.how}"]
        )
    by_family: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_family[case.network.family].append(case)
    report["by_family"] = {
        family: {"side": side_of(family), **{
            how: {k: found[how][k] for k in ("n", "median_error", "median_ratio")}
            for how in found
        }}
        for family, members in sorted(by_family.items())
        if (found := summary(members, lambda case: case.predicted_s(device, chosen)))
    }  # fmt: skip
    report["cases"] = {
        how: {
            case.network.name: [
                round(case.predicted_s(device, chosen) * 1e3, 3), round(case.measured_s * 1e3, 3)
            ]
            for case in cases if case.how == how
        }
        for how in ("eager", "compiled")
    }  # fmt: skip
    cases.sort(key=lambda case: -abs(math.log(case.predicted_s(device, chosen) / case.measured_s)))
    for case in cases[: options.worst]:
        ratio = case.predicted_s(device, chosen) / case.measured_s
        kinds = {k: f"{v * 1e3:.1f}" for k, v in case.by_kind(device, chosen).items()}
        print(f"{ratio:5.2f} {case.how:9s} {case.network.name:45s} "
              f"{case.measured_s * 1e3:8.1f} ms {kinds} unknown {case.unknown}")  # fmt: skip
    text = json.dumps({k: v for k, v in report.items() if k != "cases"}, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
