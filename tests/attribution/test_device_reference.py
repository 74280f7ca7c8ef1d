"""Exact figures of recorded traces: unions of intervals computed elsewhere, in whole ns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.attribution.device.time import device_time
from gobrrr.recordings.traces import read_trace
from trace_writing import OURS, SHARED


def references() -> list[tuple[Path, dict[str, float]]]:
    found = {}
    for folder in (SHARED, OURS):
        path = folder / "reference.json"
        if path.exists():
            for name, figures in json.loads(path.read_text()).items():
                found[name] = (folder / f"{name}.json.gz", figures)
    return list(found.values())


@pytest.mark.parametrize(
    ("path", "expected"),
    [pytest.param(p, e, id=p.name.removesuffix(".json.gz")) for p, e in references()],
)
def test_device_time_to_the_nanosecond(path: Path, expected: dict[str, float]) -> None:
    timeline = read_trace(path)
    assert len(timeline.kernels) == expected["device_events"]
    got = device_time(timeline)
    assert got is not None
    for name in (
        "window", "busy", "compute_kernels", "collectives", "exposed_collectives",
        "exposed_copies",
    ):  # fmt: skip
        assert getattr(got, f"{name}_ns") == round(expected[f"{name}_ms"] * 1e6), name
    assert (
        got.compute_kernels_ns + got.exposed_collectives_ns + got.exposed_copies_ns == got.busy_ns
    )
    assert 100 * got.idle_ns / got.window_ns == pytest.approx(expected["idle_percent"], abs=1e-9)


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.name.removesuffix(".json.gz")) for p, _ in references()]
)
def test_windows_tile_and_hold_every_kernel(path: Path) -> None:
    timeline = read_trace(path)
    windows, kernels = timeline.steps, timeline.kernels
    assert (windows[1:, 0] == windows[:-1, 1]).all()
    assert windows[0, 0] <= kernels.start_ns.min()
    assert windows[-1, 1] == kernels.end_ns.max()
