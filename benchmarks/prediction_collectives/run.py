"""Score the model of collectives on measured ones, fitted and unseen apart.

    PYTHONPATH=. python benchmarks/prediction_collectives/run.py --shared FOLDER --out RESULT.json

``--table src/gobrrr/prediction/mesh/collective_table.py`` remakes the model's constants from the
fitted half first. Beside the model stands a ring at the link's stated bandwidth without latency
(``2(n-1)/n * bytes / link``), and each device with the constants of the other, its own data sheet
aside: what a device gets that nobody measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser
from benchmarks.prediction_collectives.rows import FITTED_ON, Row, read_rows, size_class
from benchmarks.prediction_collectives.table import fit, write_module

from gobrrr.devices.datasheet import find_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.devices.links import device_link
from gobrrr.prediction.mesh import collectives
from gobrrr.prediction.mesh.collective_protocols import Collective, steps_of
from gobrrr.prediction.mesh.collectives import CollectiveTime, Group, collective_time

Answer = Callable[[Row], tuple[float, float, float]]


def sheet_of(row: Row) -> DeviceSheet:
    """The data sheet of the row's device."""
    sheet = find_datasheet(row.device)
    assert sheet is not None, row.device
    return sheet


def modelled(row: Row) -> CollectiveTime:
    """What the model says of a row."""
    kind = Collective(row.kind)
    return collective_time(kind, row.n_bytes, Group(row.ranks), sheet_of(row), dtype=row.dtype)


def model(row: Row) -> tuple[float, float, float]:
    """Seconds: expected, low, high."""
    found = modelled(row)
    return found.seconds, found.low_s, found.high_s


def plain_ring(row: Row) -> tuple[float, float, float]:
    """Bytes of the ring over the link's stated bandwidth."""
    link = device_link(sheet_of(row), row.ranks)
    assert link is not None
    seconds = row.n_bytes * steps_of(Collective(row.kind), row.ranks) / row.ranks / link.bytes_per_s
    return seconds, seconds, seconds


def alpha_beta(rows: Sequence[Row]) -> Answer:
    """A ring with a launch, a hop and a share of the link for each device, of the fitted half."""
    found = {}
    for device in {row.device for row in rows if row.fitted}:
        items = [row for row in rows if row.fitted and row.device == device]
        measured = np.array([row.measured_s for row in items])
        design = np.array([_ring_terms(row) for row in items]) / measured[:, None]
        found[device], *_ = np.linalg.lstsq(design, np.ones(len(items)), rcond=None)

    def answer(row: Row) -> tuple[float, float, float]:
        seconds = float(np.dot(found[row.device], _ring_terms(row)))
        return seconds, seconds, seconds

    return answer


def _ring_terms(row: Row) -> list[float]:
    return [1e-6, 1e-6 * steps_of(Collective(row.kind), row.ranks), plain_ring(row)[0]]


def other_constants(row: Row) -> tuple[float, float, float]:
    """The model as if the row's device had not been measured."""
    tables = collectives.COEFFICIENTS
    (other,) = (device for device in tables if device != row.device)
    kept, bands = tables[row.device], dict(collectives.BANDS)
    lent = {**tables[other]}
    lent.setdefault("NVLS", kept.get("NVLS", ()))
    try:
        tables[row.device] = lent
        collectives.BANDS.pop(row.device, None)
        return model(row)
    finally:
        tables[row.device] = kept
        collectives.BANDS.update(bands)


def figures(rows: Sequence[Row], answer: Answer) -> dict[str, Any]:
    """Errors of |predicted / measured - 1|, bias, and how often the interval holds."""
    if not rows:
        return {"n": 0}
    answers = [answer(row) for row in rows]
    ratio = np.array([found[0] / row.measured_s for found, row in zip(answers, rows)])
    held = [low <= row.measured_s <= high for (_, low, high), row in zip(answers, rows)]
    return {
        "n": len(rows),
        "median_error": round(float(np.median(abs(ratio - 1))), 4),
        "p90_error": round(float(np.percentile(abs(ratio - 1), 90)), 4),
        "bias": round(float(np.median(ratio) - 1), 4),
        "holds": round(float(np.mean(held)), 3),
    }


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """An entry for each device, kind, number of ranks and class of size: unseen rows."""
    groups: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.fitted:
            groups[row.device, row.kind, row.ranks, size_class(row.n_bytes)].append(row)
    return [
        {
            "device": device, "kind": kind, "ranks": ranks, "size": size,
            **figures(items, model), "plain_ring": figures(items, plain_ring),
        }
        for (device, kind, ranks, size), items in sorted(groups.items())
    ]  # fmt: skip


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Fitted and unseen rows apart; devices as if nobody had measured them; the plain ring."""
    unseen = [row for row in rows if not row.fitted]
    sizes = sorted({size_class(row.n_bytes) for row in rows})
    devices = sorted({row.device for row in rows})
    # Devices that constants were fitted on: any other is left out as it is.
    measured = [row for row in unseen if row.device in FITTED_ON]
    return {
        "fitted": figures([row for row in rows if row.fitted], model),
        "unseen": figures(unseen, model),
        "unseen_by_size": {
            size: figures([row for row in unseen if size_class(row.n_bytes) == size], model)
            for size in sizes
        },
        "unseen_by_device": {
            device: figures([row for row in unseen if row.device == device], model)
            for device in devices
        },
        "plain_ring_unseen": figures(unseen, plain_ring),
        "plain_ring_unseen_by_size": {
            size: figures([row for row in unseen if size_class(row.n_bytes) == size], plain_ring)
            for size in sizes
        },
        "alpha_beta_unseen": figures(measured, alpha_beta(rows)),
        "device_left_out": {
            device: figures([row for row in measured if row.device == device], other_constants)
            for device in FITTED_ON
        },
        "device_left_out_by_size": {
            size: figures(
                [row for row in measured if size_class(row.n_bytes) == size], other_constants
            )
            for size in sizes
        },
    }


def worst(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """The ten unseen rows that are furthest off."""
    unseen = [(row, modelled(row)) for row in rows if not row.fitted]
    unseen.sort(key=lambda item: -abs(np.log(item[1].seconds / item[0].measured_s)))
    return [
        {
            "row": f"{row.device} {row.kind} {row.dtype} {row.ranks} x {row.n_bytes}",
            "measured_us": round(row.measured_s * 1e6, 1),
            "predicted_us": round(found.seconds * 1e6, 1), "because": found.arithmetic,
        }
        for row, found in unseen[:10]
    ]  # fmt: skip


def main() -> None:
    made = parser(__doc__, "measured/kernels")
    made.add_argument("--table", type=Path, help="module to write the fitted constants to")
    options = made.parse_args()
    record = Record(
        "prediction_collectives", options, "numpy", device="recorded collectives of A100 and H100"
    )
    rows = list(read_rows(needed(options.shared, "measured collectives")))
    if options.quick:
        rows = [row for row in rows if row.ranks == 2]
    if options.table is not None:
        write_module(*fit(rows), options.table)
        print(f"wrote {options.table}; run again to score it")
        return
    body = {"summary": summary(rows), "unseen": table(rows), "worst_unseen": worst(rows)}
    for name, entry in body["summary"].items():  # type: ignore[union-attr]
        print(name, entry)
    record.write(body)


if __name__ == "__main__":
    main()
