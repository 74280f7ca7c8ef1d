"""Intervals from the residuals of the fitted half, and how often they hold the unseen half."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.kernels import residuals as classes

CLASS_OF_KIND = {
    "linear bf16": classes.PRODUCT_16,
    "linear fp32": classes.PRODUCT_32,
    "bmm fp32": classes.BATCHED_32,
    "conv fp32": classes.CONVOLUTION_32,
    "attention bf16": classes.ATTENTION,
    "ln fp32": classes.NORM,
    "softmax fp32": classes.SOFTMAX,
    **{
        f"{name} fp32": classes.STREAM
        for name in ("add", "mul", "addu", "gelu", "relu", "tanh", "powu")
    },
    "program, one op": classes.OTHER,
}
# A class with fewer rows has no interval of its own.
FEWEST = 10
LOW, HIGH = 10, 90

Ratios = Mapping[tuple[str, str], Sequence[float]]
Bands = dict[str, dict[str, tuple[float, float, int]]]


def bands(fitted: Ratios, spread: float = 0.0) -> Bands:
    """By device and class: percentiles of measured over predicted; keys are (device, kind).

    ``spread``: variance of the medians of devices whose constants are another's. Where rows are
    few, the constants were chosen to suit them, and other ops of the class are as far off as if
    they had not been: a share of that variance, which ends at ``FEW_ROWS``, counts as theirs.
    """
    found: Bands = defaultdict(dict)
    for (device, kind), values in by_class(fitted).items():
        if len(values) >= FEWEST:
            low, high = np.percentile(np.log(values), [LOW, HIGH])
            share = max(0.0, 1.0 - len(values) / FEW_ROWS)
            wide = np.hypot((high - low) / 2, EIGHT_OF_TEN * np.sqrt(spread * share))
            low, high = np.exp((low + high) / 2 - wide), np.exp((low + high) / 2 + wide)
            found[device][kind] = (round(float(low), 3), round(float(high), 3), len(values))
    return {device: dict(sorted(rows.items())) for device, rows in sorted(found.items())}


def by_class(ratios: Ratios) -> dict[tuple[str, str], list[float]]:
    """The ratios of (device, kind) by (device, class of op)."""
    merged: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (device, kind), values in ratios.items():
        if kind in CLASS_OF_KIND:
            merged[device, CLASS_OF_KIND[kind]] += values
    return merged


def coverage(found: Bands, fitted: Ratios, unseen: Ratios) -> list[dict[str, object]]:
    """How often the intervals hold unseen rows, with those of the device and of its relatives.

    ``found``: the devices' own, from ``fitted``.
    """
    rows: list[dict[str, object]] = []
    for (device, kind), values in sorted(by_class(unseen).items()):
        own = found.get(device, {}).get(kind)
        if own is None or not values:
            continue
        row: dict[str, object] = {
            "device": device, "class": kind, "rows": len(values), "low": own[0], "high": own[1],
            "holds": held(values, own[0], own[1]),
        }  # fmt: skip
        others = bands_of_others(fitted, without=device).get(kind)
        if others is not None:
            low, high, _ = others
            row |= {
                "low_of_relatives": low, "high_of_relatives": high,
                "holds_of_relatives": held(values, low, high),
            }  # fmt: skip
        rows.append(row)
    return rows


# Devices of one chip: they are left out together, for their constants are the same.
CHIPS = {
    "A100-SXM-80GB": "A100", "A100-PCIe-40GB": "A100", "A100-PCIe-80GB": "A100",
}  # fmt: skip
# Spreads of few devices are averaged with that of all classes, which counts as so many devices.
PRIOR_DEVICES = 3
# A class with so many rows speaks for itself.
FEW_ROWS = 50
# A band of 8 in 10 of a normal distribution reaches so many standard deviations to each side; where
# these are estimated from few devices, so many, by degrees of freedom (Student's distribution).
EIGHT_OF_TEN = 1.2816
_STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)


def bands_of_others(ratios: Ratios, without: str = "") -> dict[str, tuple[float, float, int]]:
    """By class of op: where 8 of 10 times lie on a device that was not measured.

    ``ratios``: measured over predicted by (device, kind): with the devices' own constants for a
    device of their architectures, each with another's for a device of none. ``without``: a device
    that is left out, with all of its chip. A band has its middle at the mean of the devices'
    medians (of logarithms), and two parts that add up as squares: the spread within a device, and
    that between devices, which is estimated from the few devices of the class and from all classes
    together. The third number: chips of the class.
    """
    chips = _by_chip(ratios, without)
    squares, freedom = _between(chips)
    if not freedom:
        return {}
    found = {}
    for kind, rows in chips.items():
        m = _medians(rows)
        own = float(((m - m.mean()) ** 2).sum())
        degrees = len(m) - 1 + PRIOR_DEVICES
        between = (own + PRIOR_DEVICES * squares / freedom) / degrees
        ends = [np.percentile(values, [LOW, HIGH]) for values in rows.values()]
        within = float(np.mean([(high - low) / 2 for low, high in ends]))
        reach = _STUDENT[min(degrees, len(_STUDENT)) - 1]
        half = float(np.hypot(reach * np.sqrt(between * (1 + 1 / len(m))), within))
        middle = float(m.mean())
        found[kind] = (
            round(float(np.exp(middle - half)), 3), round(float(np.exp(middle + half)), 3), len(m)
        )  # fmt: skip
    return dict(sorted(found.items()))


def with_rest(borrowed: Ratios, own: Ratios) -> Ratios:
    """The ratios with borrowed constants, and those of classes that nobody borrowed them for.

    Devices of such a class are few, and only the spread between others says how they differ.
    """
    classes = {CLASS_OF_KIND[kind] for _, kind in borrowed}
    rest = {key: found for key, found in own.items() if CLASS_OF_KIND.get(key[1]) not in classes}
    return {**rest, **borrowed}


def spread_between(ratios: Ratios) -> float:
    """Variance of the devices' medians (of logarithms) about those of their class; 0 of one."""
    squares, freedom = _between(_by_chip(ratios, ""))
    return squares / freedom if freedom else 0.0


def _by_chip(ratios: Ratios, without: str) -> dict[str, dict[str, list[float]]]:
    """Logarithms by class and chip, of chips with enough rows."""
    chips: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (device, kind), values in by_class(ratios).items():
        chip = CHIPS.get(device, device)
        if chip != CHIPS.get(without, without) and len(values) >= FEWEST:
            chips[kind][chip] += list(np.log(values))
    return chips


def _medians(rows: Mapping[str, Sequence[float]]) -> NDArray[np.float64]:
    return np.array([float(np.median(values)) for values in rows.values()])


def _between(chips: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[float, int]:
    """Sum of squares of the chips' medians about their class's mean, and degrees of freedom."""
    middles = [_medians(rows) for rows in chips.values()]
    squares = sum(float(((m - m.mean()) ** 2).sum()) for m in middles)
    return squares, sum(len(m) - 1 for m in middles)


def held(values: Sequence[float], low: float, high: float) -> float:
    """Share of the values from ``low`` to ``high``."""
    return round(float(np.mean([low <= value <= high for value in values])), 3)


def write_module(
    found: Bands, related: dict[str, tuple[float, float, int]],
    borrowed: dict[str, tuple[float, float, int]], path: Path, source: str,
) -> None:  # fmt: skip
    """The intervals as the module that the model reads."""
    lines = [
        '"""Made by benchmarks/prediction_kernels/run.py --residuals: do not edit."""', "",
        f'SOURCE = "{source}"', "",
        "# Device -> class of op -> 10th and 90th percentile of measured over predicted, number of "
        "rows.", "MEASURED: dict[str, dict[str, tuple[float, float, int]]] = {",
    ]  # fmt: skip
    for device, rows in found.items():
        lines.append(f'    "{device}": {{')
        lines += [f'        "{kind}": {band},' for kind, band in rows.items()]
        lines.append("    },")
    lines += [
        "}", "# Class of op -> the same for another device of a measured architecture, number of "
        "chips.", "RELATED: dict[str, tuple[float, float, int]] = {",
    ]  # fmt: skip
    lines += [f'    "{kind}": {band},' for kind, band in related.items()]
    lines += [
        "}", "# Class of op -> the same for a device with another architecture's constants.",
        "BORROWED: dict[str, tuple[float, float, int]] = {",
    ]  # fmt: skip
    lines += [f'    "{kind}": {band},' for kind, band in borrowed.items()]
    path.write_text("\n".join([*lines, "}"]) + "\n")
