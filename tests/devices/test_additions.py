"""A kind of device and a data sheet from outside: one file (this one) and one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr import devices
from gobrrr.cli import main
from gobrrr.devices import Ceiling, Ceilings, DeviceIdentity, backends, datasheets
from gobrrr.devices.ceilings import Progress
from trace_writing import WrittenTrace


class Abacus:
    KINDS = ("abacus",)
    IS_GPU = True

    def __init__(self) -> None:
        self.measured = 0

    def identify(self) -> DeviceIdentity | None:
        return DeviceIdentity("Abacus 9000", "abacus", 10**9, 12, None)

    def operator_threads(self, wanted: int | None) -> int:
        return 1

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        self.measured += 1
        progress(0, 1, "beads")
        row = Ceiling("matrix.float32", 3e9, "FLOP/s", "measured", "beads moved")
        level = Ceiling("memory.dram.copy", 2e9, "B/s", "measured", "rods copied")
        return Ceilings(device.name, {row.name: row, level.name: level}, ())

    def synchronise(self) -> None:
        pass


@pytest.mark.torch
def test_a_kind_of_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    abacus = Abacus()
    monkeypatch.setattr(backends, "BACKENDS", (abacus, *backends.BACKENDS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert devices.identify().kind == "abacus"
    assert devices.identify("cpu").kind == "cpu"
    for _ in range(2):
        assert main(["ceilings", "--quiet"]) == 0
        shown = capsys.readouterr().out
        assert "Abacus 9000" in shown and "3.00 GFLOP/s" in shown
    # The second time from the cache.
    assert abacus.measured == 1


def test_no_backend_for_a_kind() -> None:
    with pytest.raises(LookupError, match="abacus"):
        backends.backend_of("abacus")


SHEET = """
[ABACUS-9000]
name = "Abacus 9000"
vendor = "Abax"
architecture = "Beads"
kind = "cuda"
driver_names = ["ABAX 9000"]
source = "leaflet"
memory = "1 GB"
memory_bandwidth = "500 GB/s"
matrix.float32 = "3 TFLOP/s"
vector.float32 = "1 TFLOP/s"
"""


@pytest.fixture
def with_sheet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "abax.toml"
    table.write_text(SHEET)
    monkeypatch.setattr(datasheets, "TABLES", (*datasheets.TABLES, table))


def test_a_data_sheet(with_sheet: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "abacus 9000"]) == 0
    assert "500 GB/s" in capsys.readouterr().out
    trace = WrittenTrace()
    trace.top["deviceProperties"] = [{"id": 0, "name": "ABAX 9000"}]
    trace.kernel("gemm", 0, 50)
    saved = tmp_path / "diagnosis.json"
    assert main(["trace", str(trace.write(tmp_path)), "--json", str(saved)]) == 0
    rows = {row["name"]: row for row in json.loads(saved.read_bytes())["device"]["ceilings"]}
    assert rows["matrix.float32"]["value"] == 3e12
    assert rows["matrix.float32"]["source"] == "leaflet"
