"""Fit the model's constants and its intervals on the fitted half of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.prediction_collectives.rows import Row

from gobrrr.devices.datasheet import find_datasheet
from gobrrr.prediction.mesh.collective_protocols import Collective, Protocol, Way, chosen, terms
from gobrrr.prediction.mesh.collectives import Group, way_of

Coefficients = dict[str, dict[str, tuple[float, ...]]]
Bands = dict[str, dict[str, tuple[float, float]]]
LOW, HIGH = 10, 90


def taken(row: Row) -> tuple[Protocol, Collective, Way]:
    """The protocol that NCCL takes for a row, and between whom."""
    sheet = find_datasheet(row.device)
    assert sheet is not None
    kind = Collective(row.kind)
    way, _ = way_of(Group(row.ranks), sheet, None)
    for protocol, end in chosen(kind, way, row.dtype != "int8"):
        if row.n_bytes <= end:
            return protocol, kind, way
    raise AssertionError("the last protocol ends at infinity")


def features(row: Row) -> list[float]:
    """The row's terms: counts in microseconds (one each), seconds on the link as microseconds."""
    protocol, kind, way = taken(row)
    *fixed, link_s = terms(protocol, kind, row.n_bytes, way)
    return [*fixed, link_s * 1e6]


def least_squares(rows: Sequence[Row]) -> tuple[float, ...]:
    """Coefficients that make relative errors least; one that would be negative is 0."""
    measured = np.array([row.measured_s * 1e6 for row in rows])
    design = np.array([features(row) for row in rows]) / measured[:, None]
    kept = list(range(design.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(design[:, kept], np.ones(len(rows)), rcond=None)
        if (found >= 0).all():
            break
        kept.pop(int(found.argmin()))
    whole = np.zeros(design.shape[1])
    whole[kept] = found
    return tuple(round(float(value), 3) for value in whole)


def fit(rows: Sequence[Row]) -> tuple[Coefficients, Bands, dict[str, tuple[float, float]]]:
    """Coefficients and bands by device and protocol; bands of devices that nobody measured.

    The last are of each device with the other's coefficients: from the lowest to the highest.
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.fitted:
            groups[row.device, taken(row)[0].name].append(row)
    coefficients: Coefficients = defaultdict(dict)
    for (device, protocol), items in sorted(groups.items()):
        coefficients[device][protocol] = least_squares(items)
    bands: Bands = defaultdict(dict)
    lent: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (device, protocol), items in sorted(groups.items()):
        bands[device][protocol] = band(items, coefficients[device][protocol])
        lent[protocol].append(bands[device][protocol])
        for other, table in coefficients.items():
            if other != device and protocol in table:
                lent[protocol].append(band(items, table[protocol]))
    unmeasured = {protocol: widest(found) for protocol, found in lent.items() if len(found) > 1}
    # A protocol that one device alone has: nothing says more of others than the widest.
    for protocol in lent:
        unmeasured.setdefault(protocol, widest(unmeasured.values()))
    return coefficients, bands, unmeasured


def widest(found: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """From the lowest low to the highest high."""
    lows, highs = zip(*found)
    return min(lows), max(highs)


def band(rows: Sequence[Row], coefficients: Sequence[float]) -> tuple[float, float]:
    """Percentiles of measured over predicted."""
    ratios = [row.measured_s * 1e6 / float(np.dot(features(row), coefficients)) for row in rows]
    low, high = np.percentile(ratios, [LOW, HIGH])
    return round(float(low), 3), round(float(high), 3)


def write_module(
    coefficients: Coefficients, bands: Bands, unmeasured: dict[str, tuple[float, float]], path: Path
) -> None:
    """The constants as the module that the model reads."""
    lines = [
        '"""Made by benchmarks/prediction_collectives/run.py --table: do not edit."""', "",
        "# Device -> protocol -> coefficients of ``collective_protocols.terms``: microseconds, and",
        "# the last one of the seconds on the link.",
        "COEFFICIENTS: dict[str, dict[str, tuple[float, ...]]] = {", *_entries(coefficients),
        "}", "# The same -> 10th and 90th percentile of measured over predicted.",
        "BANDS: dict[str, dict[str, tuple[float, float]]] = {", *_entries(bands),
        "}", "# Of a device with the other one's coefficients: what an unmeasured one is told.",
        "UNMEASURED: dict[str, tuple[float, float]] = {",
        *(f'    "{k}": {v},' for k, v in sorted(unmeasured.items())), "}",
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def _entries(tables: Mapping[str, Mapping[str, tuple[float, ...]]]) -> Iterator[str]:
    for device, rows in tables.items():
        yield f'    "{device}": {{'
        yield from (f'        "{key}": {values},' for key, values in rows.items())
        yield "    },"
