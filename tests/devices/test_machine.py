from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices import Ceiling, Ceilings, DeviceIdentity, ceilings_for_this_machine, machine
from gobrrr.devices.ceilings import BUSY
from gobrrr.measure.load import Load

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Measurements:
    """Stands in for measuring: counts, and gives a new number each time."""

    def __init__(self) -> None:
        self.count = 0
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(
        self, device: DeviceIdentity, threads: int, progress: machine.Progress
    ) -> Ceilings:
        self.count += 1
        self.started.set()
        progress(0, 1, "everything")
        assert self.go_on.wait(10)
        row = Ceiling("matrix.float32", float(self.count), "FLOP/s", "measured", "test")
        return Ceilings(device.name, {row.name: row}, (), ("as measured",))


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measurements:
    stand_in = Measurements()
    monkeypatch.setattr(machine, "_measure", stand_in)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return stand_in


def test_measured_once_and_then_read(measurements: Measurements) -> None:
    seen: list[tuple[int, int, str]] = []
    first = ceilings_for_this_machine(progress=lambda *update: seen.append(update))
    assert ceilings_for_this_machine() == first
    assert measurements.count == 1
    assert seen == [(0, 1, "everything")]


def test_refresh_measures_again(measurements: Measurements) -> None:
    ceilings_for_this_machine()
    assert ceilings_for_this_machine(refresh=True).value("matrix.float32") == 2.0
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0


def test_another_number_of_threads_is_another_machine(measurements: Measurements) -> None:
    ceilings_for_this_machine(threads=1)
    ceilings_for_this_machine(threads=2)
    assert measurements.count == 2


def test_another_compiler_is_measured_anew(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings_for_this_machine()
    monkeypatch.setattr(machine, "compiler", lambda: "/usr/bin/another")
    ceilings_for_this_machine()
    assert measurements.count == 2


def test_a_damaged_file_is_replaced(measurements: Measurements, tmp_path: Path) -> None:
    ceilings_for_this_machine()
    (file,) = (tmp_path / "cache" / "gobrrr").glob("*.json")
    file.write_bytes(file.read_bytes()[:40])
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0


def test_a_cache_that_cannot_be_written_gives_a_notice(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A file in the folder's place fails for root too.
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "occupied"))
    found = ceilings_for_this_machine()
    assert found.value("matrix.float32") == 1.0
    assert found.notices[0] == "as measured"
    assert "could not be cached" in found.notices[1]
    assert len(found.notices) == 2


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    # The XDG base directory specification: relative paths are invalid.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "/home/someone")
    assert machine.cache_folder().is_absolute()


def test_who_comes_second_waits_and_reads(measurements: Measurements) -> None:
    pytest.importorskip("fcntl")
    measurements.go_on.clear()
    results: list[Ceilings] = []
    waiting = threading.Event()

    def second() -> None:
        def progress(done: int, total: int, what: str) -> None:
            if "another gobrrr" in what:
                waiting.set()

        # Asking for a refresh is content with what was measured while it waited.
        results.append(ceilings_for_this_machine(refresh=True, progress=progress))

    one = threading.Thread(target=lambda: results.append(ceilings_for_this_machine()))
    one.start()
    assert measurements.started.wait(10)
    two = threading.Thread(target=second)
    two.start()
    assert waiting.wait(10)
    measurements.go_on.set()
    one.join(10)
    two.join(10)
    assert measurements.count == 1
    assert results[0] == results[1]


def test_ceilings_that_lack_what_had_no_memory_are_not_kept(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*given: Any) -> Ceilings:
        return replace(measurements(*given), short_of_memory=measurements.count == 1)

    monkeypatch.setattr(machine, "_measure", measured)
    first = ceilings_for_this_machine()
    assert "will be measured again next time" in first.notices[-1]
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0


def test_ceilings_of_a_card_that_was_shared_are_not_kept(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*given: Any) -> Ceilings:
        return replace(measurements(*given), disturbed="x" if measurements.count == 1 else "")

    monkeypatch.setattr(machine, "_measure", measured)
    assert "for now alone, because x," in ceilings_for_this_machine().notices[-1]
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0
    assert ceilings_for_this_machine().value("matrix.float32") == 2.0


def test_what_was_measured_on_a_busy_machine_does_not_stay(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def busy(device: DeviceIdentity, threads: int, progress: machine.Progress) -> Ceilings:
        found = measurements(device, threads, progress)
        return replace(found, notices=(f"{BUSY}: not at all idle",))

    monkeypatch.setattr(machine, "_measure", busy)
    assert ceilings_for_this_machine().busy
    # Other ranks of a job take it, and so does who asks again at once.
    ceilings_for_this_machine()
    assert measurements.count == 1
    (file,) = (tmp_path / "cache" / "gobrrr").rglob("*.json")
    old = time.time() - 2 * 3600
    os.utime(file, (old, old))
    ceilings_for_this_machine()
    assert measurements.count == 2
    # Of an idle machine the age does not matter.
    monkeypatch.setattr(machine, "_measure", measurements)
    ceilings_for_this_machine(refresh=True)
    os.utime(file, (old, old))
    ceilings_for_this_machine()
    assert measurements.count == 3


@pytest.mark.parametrize(("waited", "said"), [(0.6, True), (0.4, False)])
def test_a_machine_that_others_had_most_of_the_time_is_said_to_have_been_busy(
    waited: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(10.0, 1.0 - waited, waited, waited, 1)
    monkeypatch.setattr(machine, "LoadWatch", lambda: SimpleNamespace(so_far=lambda: load))
    measure = lambda *given: Ceilings("a processor", {}, ())  # noqa: E731
    monkeypatch.setattr(machine, "backend_of", lambda kind: SimpleNamespace(measure=measure))
    device = SimpleNamespace(kind="cpu")
    found = machine._measure(device, 1, lambda *told: None)  # type: ignore[arg-type]
    assert found.busy == said
