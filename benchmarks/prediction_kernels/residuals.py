"""Intervals from the residuals of the fitted half, and how often they hold the unseen half."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gobrrr.models import residuals as classes

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


def bands(fitted: Ratios) -> Bands:
    """By device and class: percentiles of measured over predicted; keys are (device, kind)."""
    found: Bands = defaultdict(dict)
    for (device, kind), values in by_class(fitted).items():
        if len(values) >= FEWEST:
            low, high = np.percentile(values, [LOW, HIGH])
            found[device][kind] = (round(float(low), 3), round(float(high), 3), len(values))
    return {device: dict(sorted(rows.items())) for device, rows in sorted(found.items())}


def by_class(ratios: Ratios) -> dict[tuple[str, str], list[float]]:
    """The ratios of (device, kind) by (device, class of op)."""
    merged: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (device, kind), values in ratios.items():
        if kind in CLASS_OF_KIND:
            merged[device, CLASS_OF_KIND[kind]] += values
    return merged


def coverage(found: Bands, unseen: Ratios) -> list[dict[str, object]]:
    """How often the intervals hold unseen rows, with those of the device and of its relatives."""
    rows: list[dict[str, object]] = []
    for (device, kind), values in sorted(by_class(unseen).items()):
        own = found.get(device, {}).get(kind)
        if own is None or not values:
            continue
        others = [rest[kind] for key, rest in found.items() if key != device and kind in rest]
        row: dict[str, object] = {
            "device": device, "class": kind, "rows": len(values), "low": own[0], "high": own[1],
            "holds": held(values, own[0], own[1]),
        }  # fmt: skip
        if others:
            low, high = min(low for low, _, _ in others), max(high for _, high, _ in others)
            row |= {
                "low_of_relatives": low, "high_of_relatives": high,
                "holds_of_relatives": held(values, low, high),
            }  # fmt: skip
        rows.append(row)
    return rows


def held(values: Sequence[float], low: float, high: float) -> float:
    """Share of the values from ``low`` to ``high``."""
    return round(float(np.mean([low <= value <= high for value in values])), 3)


def write_module(found: Bands, path: Path, source: str) -> None:
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
    path.write_text("\n".join([*lines, "}"]) + "\n")
