"""Saving and loading: whole files, honest numbers, versions."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr.diagnosis import schema, storage, writing
from gobrrr.diagnosis.schema import Diagnosis, UnmodelledOp
from gobrrr.timeline.errors import InputError


@pytest.fixture
def training(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


def test_round_trip_is_equal(training: Diagnosis, tmp_path: Path) -> None:
    path = training.save(tmp_path / "d.json")
    assert gobrrr.load(path) == training
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.json"]


def test_stable_part_of_the_contract(training: Diagnosis) -> None:
    written = json.loads(writing.encode(training))
    assert written["schema_version"] == 1
    assert set(written["step"]["time_s"]) == {"median", "mean", "low", "high", "n"}
    assert set(written["split"]) == {"compute_s", "memory_s", "overhead_s", "unmodelled_s"}
    assert {"environment", "source", "device", "leaves", "regime", "mfu", "speed_of_light_s",
            "coverage", "above_ceiling", "concurrent", "ops", "classes", "modules", "lines",
            "idle", "device_time", "batch_doubling", "ranks", "timeline",
            "findings"} <= set(written)  # fmt: skip
    assert {"name", "shapes", "dtypes", "count", "time_s", "flops", "bytes", "intensity", "regime",
            "roof_s", "module", "source", "phase"} <= set(written["ops"][0])  # fmt: skip


def test_nan_is_written_as_unknown(training: Diagnosis, tmp_path: Path) -> None:
    odd = replace(training, mfu=math.nan, speed_of_light_s=math.inf)
    text = odd.save(tmp_path / "d.json").read_text()
    written = json.loads(text, parse_constant=pytest.fail)
    assert written["mfu"] is None and written["speed_of_light_s"] is None


def test_numpy_scalars_are_numbers(training: Diagnosis) -> None:
    odd = replace(training, mfu=np.float64(0.25), speed_of_light_s=np.float32("nan"))
    again = storage.decode(writing.encode(odd))
    assert (again.mfu, again.speed_of_light_s) == (0.25, None)


def test_nan_where_a_number_is_required_is_refused(training: Diagnosis, tmp_path: Path) -> None:
    coverage = replace(
        training.coverage, unmodelled=[UnmodelledOp(op="aten::x", time_s=math.inf, reason=None)]
    )
    with pytest.raises(writing.UnsavableError, match=r"unmodelled\[\.*0?\.*\]\.time_s"):
        replace(training, coverage=coverage).save(tmp_path / "d.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(
    training: Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = training.save(tmp_path / "d.json")
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match=r"cannot write .*d\.json: No space left on device"):
        replace(training, verdict="new").save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.json"]


def test_mode_and_symlink_are_kept(training: Diagnosis, tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    training.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert gobrrr.load(target) == training


@pytest.mark.parametrize(
    ("where", "message"), [("missing/d.json", "No such file"), (".", "it is a folder")]
)
def test_unwritable_path(training: Diagnosis, tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        training.save(tmp_path / where)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"schema_version": 1, "env', "not complete JSON"),
        (b"\xff\xfe", "not complete JSON"),
        (b"[]", "not a gobrrr diagnosis"),
        (b'{"traceEvents": []}', "no schema_version"),
        (b'{"schema_version": 1}', "missing required field"),
        (b'{"schema_version": 2}', r"newer gobrrr \(schema 2, this one reads up to 1\)"),
        (b'{"schema_version": 0}', "no gobrrr ever wrote"),
        (b'{"schema_version": 1, "a": ' + b"[" * 100_000, "not complete JSON"),
    ],
)
def test_unreadable_content(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        gobrrr.load(path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing\.json: No such file"):
        gobrrr.load(tmp_path / "nothing.json")


def test_older_schema_is_migrated(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = json.loads((data / "training.json").read_bytes())
    fields["sentence"] = fields.pop("verdict")
    old = json.dumps(fields).encode()
    monkeypatch.setattr(storage, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(
        storage, "MIGRATIONS", {1: lambda d: {**d, "verdict": d["sentence"].upper()}}
    )
    assert storage.decode(old).verdict.startswith("COMPUTE-BOUND")
    assert storage.decode(old).schema_version == 2
    assert schema.SCHEMA_VERSION == 1


def test_unknown_fields_are_ignored(data: Path) -> None:
    newer = (data / "training.json").read_bytes().replace(b"{", b'{"later": [1],', 1)
    assert storage.decode(newer).regime == "compute"
