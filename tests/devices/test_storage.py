from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.devices import (
    Ceiling,
    Ceilings,
    CeilingsFileError,
    MemoryLevel,
    ceilings_from_file,
    save_ceilings,
    storage,
)

CEILINGS = Ceilings(
    "A CPU",
    {
        "matrix.float32": Ceiling("matrix.float32", 2e11, "FLOP/s", "measured", "512x512", 1.755e9),
        "page_fault": Ceiling("page_fault", 2.5e-7, "s", "measured", "64 MiB"),
    },
    (
        MemoryLevel("l2", 2097152, ((0.0, 2e11), (0.5, 1.5e11)), 3e11),
        MemoryLevel("dram", None, ((0.0, 3e10),)),
    ),
    ("a notice",),
)


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "c.json"
    save_ceilings(CEILINGS, path)
    assert ceilings_from_file(path) == CEILINGS
    assert [entry.name for entry in path.parent.iterdir()] == ["c.json"]


def test_a_users_file_needs_names_and_numbers_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    rows = {
        "matrix.float32": {"value": 1e13, "unit": "FLOP/s"},
        "memory.dram.copy": {"value": 5e11, "unit": "B/s"},
    }
    path.write_text(json.dumps({"device": "Mine", "rows": rows}))
    read = ceilings_from_file(path)
    assert read.rows["matrix.float32"] == Ceiling(
        "matrix.float32", 1e13, "FLOP/s", "given", "mine.json"
    )
    assert read.levels == (MemoryLevel("dram", None, ((0.5, 5e11),)),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not a ceilings file"),
        ("[]", "not a ceilings file"),
        ('{"device": "x"}', "rows"),
        ('{"device": "x", "rows": {"m": {"value": "fast", "unit": "B/s"}}}', "float"),
        ('{"device": "x", "rows": {"m": {"value": 0, "unit": "B/s"}}}', "not a positive number"),
        ('{"device": "x", "rows": {"m": {"value": -1, "unit": "B/s"}}}', "not a positive number"),
        ('{"device": "x", "rows": {}, "levels": [{"name": "l2", "rates": []}]}', "level l2"),
        ('{"device": "x", "rows": {"kernel.fixed": {"value": -1, "unit": "s"}}}', "at least 0"),
        ('{"device": "x", "rows": {}, "format": 99}', "format 99"),
        ('{"device": "x", "rows": {}, "extra": 1}', "extra"),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(CeilingsFileError, match=says) as error:
        ceilings_from_file(path)
    assert "bad.json" in str(error.value)


def _given(**values: float) -> dict[str, object]:
    rows = {name.replace("_", "."): value for name, value in values.items()}
    return {name: {"value": value, "unit": ""} for name, value in rows.items()}


@pytest.mark.parametrize(
    ("rows", "levels", "says"),
    [
        (
            _given(memory_l2_capacity=80e9, memory_dram_capacity=40e9),
            [],
            "memory.l2.capacity (80.0 GB) is not below memory.dram.capacity (40.0 GB)",
        ),
        (
            _given(memory_l2_read=1e12, memory_dram_read=2e12),
            [],
            "memory.l2.read (1.00 TB/s) is below memory.dram.read (2.00 TB/s)",
        ),
        (
            {},
            [
                {"name": "l3", "rates": [(0, 4e12)], "capacity_bytes": 50_000_000},
                {"name": "l2", "rates": [(0, 6e12)], "capacity_bytes": 5_000_000},
                {"name": "dram", "rates": [(0, 1e12)]},
            ],
            "level l3 (50.0 MB) is not smaller than level l2 (5.00 MB) after it",
        ),
        (
            {},
            [
                {"name": "l2", "rates": [(0, 1e12)], "capacity_bytes": 5_000_000},
                {"name": "dram", "rates": [(0, 2e12)]},
            ],
            "level l2 (1.00 TB/s) is slower than level dram (2.00 TB/s) after it",
        ),
        (
            {},
            [{"name": "l2", "rates": [(0, 1e12)]}, {"name": "dram", "rates": [(0, 1e12)]}],
            "level l2 has no capacity",
        ),
        (
            {},
            [{"name": "l2", "rates": [(0, 1e12)], "capacity_bytes": -5}],
            "level l2 holds -5 bytes",
        ),
    ],
)
def test_a_file_that_contradicts_itself_says_how(
    tmp_path: Path, rows: dict[str, object], levels: list[object], says: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"device": "Mine", "rows": rows, "levels": levels}))
    with pytest.raises(CeilingsFileError) as error:
        ceilings_from_file(path)
    assert str(error.value) == f"mine.json: {says}"


def test_measured_bandwidths_may_be_in_any_order(tmp_path: Path) -> None:
    # Noise, or a machine whose cache is as fast as its memory: measured is measured.
    path = tmp_path / "c.json"
    rows = {"memory.dram.read": Ceiling("memory.dram.read", 2e10, "B/s", "measured", "")}
    levels = (MemoryLevel("l3", 10**7, ((0.0, 1.9e10),)), MemoryLevel("dram", None, ((0.0, 2e10),)))
    save_ceilings(Ceilings("A CPU", rows, levels), path)
    assert ceilings_from_file(path).levels == levels


def test_a_write_that_fails_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    save_ceilings(CEILINGS, path)
    before = path.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_ceilings(Ceilings("other", {}, ()), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.json"]
