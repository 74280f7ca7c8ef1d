from __future__ import annotations

import pytest

from gobrrr.devices import Cache, Ceiling, DeviceIdentity
from gobrrr.devices.cpu import compute as cpu_compute
from gobrrr.devices.cpu import measure as cpu_measure
from gobrrr.devices.cpu import memory as cpu_memory
from gobrrr.devices.host_costs import page_fault
from gobrrr.devices.native import NoNativeKernelsError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DEVICE = DeviceIdentity("A CPU", "cpu", 1 << 30, 1, 1, (Cache(1, 1 << 15, 1), Cache(2, 1 << 20, 1)))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "PASSES", 1)
    monkeypatch.setattr(cpu_measure, "_GEMM_BUDGET_S", 0.05)
    monkeypatch.setattr(cpu_memory, "_TRIAL_S", 1e-4)
    monkeypatch.setattr(cpu_memory, "_TRIALS", 1)
    monkeypatch.setattr(cpu_memory, "_LEAST_DRAM_BYTES", 1 << 24)
    monkeypatch.setattr(cpu_compute, "_TRIAL_S", 1e-4)
    monkeypatch.setattr(cpu_compute, "_TRIALS", 1)


def without_compiler(cpus: object) -> None:
    raise NoNativeKernelsError("no C++ compiler (g++ or clang++) here")


def test_without_a_compiler_pytorch_shows_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "load_native_kernels", without_compiler)
    monkeypatch.setattr(cpu_measure, "_has_matrix_unit", lambda: False)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    updates: list[tuple[int, int, str]] = []
    found = cpu_measure.measure_cpu(DEVICE, 1, lambda *update: updates.append(update))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()

    assert found.notices[0].startswith("no C++ compiler")
    assert found.value("vector.float32") == found.value("matrix.float32")
    assert found.value("vector.float32.exp") is not None
    assert found.value("vector.int32") is None
    assert found.value("memory.dram.copy_nontemporal") is None
    assert found.value("memory.dram.copy.1thread") == found.value("memory.dram.copy")
    assert [level.name for level in found.levels] == ["l2", "dram"]
    assert [share for share, _ in found.levels[1].rates] == [0.0, 1 / 3, 0.5, 1.0]
    assert updates[0] == (0, 1, "compiling the C++ loops")
    assert updates[-1][0] == updates[-1][1]
    done = [update[0] for update in updates[1:]]
    assert done == sorted(done)


def test_the_programs_own_defaults_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "load_native_kernels", without_compiler)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        found = cpu_measure.measure_cpu(DEVICE, 1, lambda *_: None)
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)
    # On the meta device a copy of 16 MiB would take microseconds: 10 TB/s.
    copy = found.value("memory.dram.copy")
    assert copy is not None
    assert copy < 1e12


def test_a_matrix_unit_says_nothing_on_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_measure, "load_native_kernels", without_compiler)
    monkeypatch.setattr(cpu_measure, "_has_matrix_unit", lambda: True)
    found = cpu_measure.measure_cpu(DEVICE, 1, lambda *_: None)
    assert found.value("vector.float32") is None


def test_the_better_of_two_is_kept_costs_the_lower() -> None:
    rows: dict[str, Ceiling] = {}
    for name, value, unit in (
        ("rate", 2.0, "B/s"), ("rate", 3.0, "B/s"), ("rate", 1.0, "B/s"),
        ("cost", 2.0, "s"), ("cost", 1.0, "s"), ("cost", 3.0, "s"),
    ):  # fmt: skip
        cpu_measure._keep_best(rows, Ceiling(name, value, unit, "measured", ""))
    assert {name: row.value for name, row in rows.items()} == {"rate": 3.0, "cost": 1.0}


def test_a_busy_machine_is_named() -> None:
    steady = {"vector.float32": [100.0, 90.0, 95.0], "memory.dram.read": [30.0, 28.0]}
    assert list(cpu_measure._disturbed(steady)) == []
    # (100 - 60) / 100 = 40 %
    (notice,) = cpu_measure._disturbed({"vector.float32": [100.0, 60.0]})
    assert "the rate of float32 vector arithmetic varied by 40 %" in notice


def test_a_page_fault_takes_time() -> None:
    rows = page_fault()
    if not rows:
        pytest.skip("the system does not count page faults")
    cost, size = rows
    # From a tenth of a microsecond to a millisecond (a huge page).
    assert 1e-8 < cost.value < 1e-3
    assert 1024 <= size.value <= 64 << 20
