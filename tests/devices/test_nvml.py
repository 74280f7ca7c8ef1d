"""Reading a card's state: a driver that tells all, one that refuses, and none at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices.card import CardSpan, CardState, OtherProcess, disturbance
from gobrrr.devices.cuda import nvml

pynvml = pytest.importorskip("pynvml")
UUID = "11111111-2222-3333-4444-555555555555"
PROPERTIES = SimpleNamespace(uuid=UUID, pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
NOT_FOUND = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def process(pid: int, held_bytes: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=held_bytes)


class Driver:
    """pynvml as far as it is used, with constants and errors of the real one."""

    def __init__(self) -> None:
        self.processes = [process(os.getpid(), 900), process(77, 300)]
        self.refused: set[str] = set()
        self.handles = {f"GPU-{UUID}": "card"}
        self.parts: dict[str, str] = {}
        self.answers: dict[str, Callable[..., Any]] = {
            "DeviceGetHandleByUUID": lambda uuid: self._handle(uuid),
            "DeviceGetHandleByPciBusId": lambda at: self._handle(at),
            "DeviceGetDeviceHandleFromMigDeviceHandle": self._whole,
            "DeviceGetUUID": lambda h: "GPU-8f2c",
            "DeviceGetClockInfo": lambda h, kind: {1: 1410, 2: 2619}[kind],
            "DeviceGetMaxClockInfo": lambda h, kind: {1: 1980, 2: 2619}[kind],
            "DeviceGetPowerUsage": lambda h: 698_500,
            "DeviceGetEnforcedPowerLimit": lambda h: 700_000,
            "DeviceGetTemperature": lambda h, sensor: 61,
            "DeviceGetCurrentClocksEventReasons": lambda h: 0x4 | 0x20,
            "DeviceGetViolationStatus": lambda h, policy: SimpleNamespace(violationTime=policy + 5),
            "DeviceGetTotalEnergyConsumption": lambda h: 123_456_789,
            "DeviceGetCurrPcieLinkGeneration": lambda h: 5,
            "DeviceGetMaxPcieLinkGeneration": lambda h: 5,
            "DeviceGetCurrPcieLinkWidth": lambda h: 8,
            "DeviceGetMaxPcieLinkWidth": lambda h: 16,
            "DeviceGetMigMode": lambda h: [1 if self.parts else 0, 0],
            "DeviceGetComputeRunningProcesses": lambda h: self.processes,
            "DeviceGetProcessUtilization": lambda h, since: [
                SimpleNamespace(pid=77, smUtil=23), SimpleNamespace(pid=77, smUtil=11)
            ],
            "DeviceGetSamples": lambda h, kind, since: (
                1, [SimpleNamespace(sampleValue=SimpleNamespace(uiVal=mhz)) for mhz in (1400, 1500)]
            ),
        }  # fmt: skip

    def _handle(self, key: str) -> str:
        if key not in self.handles:
            raise NOT_FOUND
        return self.handles[key]

    def _whole(self, handle: str) -> str:
        if handle not in self.parts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self.parts[handle]

    def __getattr__(self, name: str) -> Any:
        asked = name.removeprefix("nvml")
        if not name.startswith("nvmlD"):
            return getattr(pynvml, name)
        if asked in self.refused:
            return self._refuse
        if asked not in self.answers:
            raise AttributeError(name)
        return self.answers[asked]

    def _refuse(self, *given: Any) -> Any:
        raise NOT_SUPPORTED


def state(driver: Driver, properties: Any = PROPERTIES) -> CardState:
    card = nvml.card_with(driver, properties)
    assert card is not None
    return card.state()


def test_every_field_is_read_and_decoded() -> None:
    found = state(Driver())
    assert (found.sm_mhz, found.sm_max_mhz, found.sm_mean_mhz) == (1410, 1980, 1450)
    assert (found.memory_mhz, found.memory_max_mhz) == (2619, 2619)
    assert (found.power_w, found.power_limit_w, found.temperature_c) == (698.5, 700, 61)
    assert found.reasons == ("power cap", "heat, by the driver")
    assert (found.power_held_ns, found.heat_held_ns) == (5, 6)
    assert found.energy_mj == 123_456_789
    assert found.others == found.computing == (OtherProcess(77, 300, 0.23),)
    assert (found.pcie_generation, found.pcie_max_generation) == (5, 5)
    assert (found.pcie_width, found.pcie_max_width, found.mig) == (8, 16, False)


def test_what_the_driver_refuses_is_unknown_and_the_rest_is_read() -> None:
    fields = {"DeviceGetClockInfo": 2, "DeviceGetMaxClockInfo": 2, "DeviceGetViolationStatus": 2,
              "DeviceGetProcessUtilization": 0}  # fmt: skip
    for name in Driver().answers:
        if "Handle" in name:
            continue
        driver = Driver()
        driver.refused.add(name)
        unknown = [f for f in CardState.__slots__ if getattr(state(driver), f) is None]
        assert len(unknown) == fields.get(name, 1), (name, unknown)
    # Whether the other process computed is not known then.
    driver = Driver()
    driver.refused.add("DeviceGetProcessUtilization")
    assert state(driver).others == (OtherProcess(77, 300, None),) and not state(driver).computing


def test_a_function_that_the_package_does_not_have_is_a_refusal() -> None:
    driver = Driver()
    del driver.answers["DeviceGetTotalEnergyConsumption"]
    del driver.answers["DeviceGetCurrentClocksEventReasons"]
    driver.answers["DeviceGetCurrentClocksThrottleReasons"] = lambda h: 1
    assert state(driver).energy_mj is None
    assert state(driver).reasons == ("idle",)


def test_time_held_where_the_older_function_is_gone() -> None:
    driver = Driver()
    driver.refused.add("DeviceGetViolationStatus")

    def values(handle: str, fields: list[int]) -> list[Any]:
        code = 0 if fields == [pynvml.NVML_FI_DEV_PERF_POLICY_POWER] else 3
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(ullVal=42))]

    driver.answers["DeviceGetFieldValues"] = values
    found = state(driver)
    assert (found.power_held_ns, found.heat_held_ns) == (42, None)


def test_a_card_is_found_by_its_uuid_and_else_by_its_bus() -> None:
    driver = Driver()
    driver.handles = {"00000000:1B:00.0": "card"}
    assert state(driver).sm_mhz == 1410
    driver.handles = {}
    assert nvml.card_with(driver, PROPERTIES) is None
    # An older torch says neither.
    assert nvml.card_with(Driver(), SimpleNamespace()) is None


def test_a_part_of_a_divided_card() -> None:
    driver = Driver()
    driver.handles, driver.parts = {f"MIG-{UUID}": "part"}, {"part": "card"}
    found = state(driver)
    assert found.mig and found.sm_mhz == 1410 and found.others == (OtherProcess(77, 300, 0.23),)
    # Known by its bus alone: the processes of other parts do not disturb this one.
    driver.handles = {"00000000:1B:00.0": "card"}
    assert state(driver).mig and state(driver).others is None


def test_a_container_that_counts_processes_differently() -> None:
    driver = Driver()
    driver.processes = [process(4001, 900)]
    assert state(driver).others == ()
    driver.processes = [process(4001, 900), process(77, 300)]
    # Which of the two is this one is a guess: that one computed is not.
    assert state(driver).others == (OtherProcess(77, 300, None),)
    driver.processes = [process(4001, None)]
    assert state(driver).others == ()
    driver.processes = []
    assert state(driver).others == ()


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "docker run --gpus all"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "sudo modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "sudo reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "NVIDIA_DRIVER_CAPABILITIES"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "fallen off its bus"),
        (pynvml.NVML_ERROR_UNKNOWN, "nvidia-smi says more"),
    ],
)
def test_why_nvml_does_not_answer(monkeypatch: pytest.MonkeyPatch, code: int, word: str) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert word in str(nvml.nvml_trouble())


def test_without_a_driver_nothing_is_raised() -> None:
    trouble = nvml.nvml_trouble()
    if trouble is None:
        pytest.skip("there is a driver")
    nvml.card_of.cache_clear()
    assert "\n" not in trouble and nvml.card_of(0) is None


def test_without_the_package_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml.card_of.cache_clear()
    assert nvml.nvml_trouble() == nvml.PACKAGE_MISSING and nvml.card_of(0) is None
    # A file of the program's own that is called so.
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    assert nvml.nvml_trouble() == nvml.PACKAGE_MISSING


def test_what_disturbs_a_measurement() -> None:
    def after(**fields: Any) -> str:
        start = CardState(at_ns=0, heat_held_ns=100)
        return disturbance(CardSpan(start, CardState(at_ns=1000, **fields), 0))

    assert after() == after(reasons=("power cap", "idle"), heat_held_ns=140) == ""
    assert "so hot" in after(heat_held_ns=200) and "so hot" in after(reasons=nvml.reasons_of(0x40))
    assert "power supply" in after(reasons=("power brake",))
    assert after(others=(OtherProcess(7, 10, None), OtherProcess(8, 10, 0.0))) == ""
    assert "pid 7" in after(others=(OtherProcess(7, 10, 0.2),))
