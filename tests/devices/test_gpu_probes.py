"""What the doctor finds of a GPU: records, versions, the card, and why there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices.card import CardState, OtherProcess
from gobrrr.devices.cuda import probes
from gobrrr.devices.cuda.probes import KERNELS, DeviceRecord, card_findings, fault_of_records

LAUNCHES = [DeviceRecord(i, 1000 * i, 500) for i in range(1, KERNELS + 1)]
RAN = [DeviceRecord(i, 1000 * i + 700, 200) for i in range(1, KERNELS + 1)]


def test_records_that_are_whole() -> None:
    assert fault_of_records(LAUNCHES, RAN, "") is None


@pytest.mark.parametrize(
    ("launches", "kernels", "word"),
    [
        (LAUNCHES, [], "no kernel but launches: allow it"),
        ([], [], "no kernel: allow it"),
        (LAUNCHES, RAN[3:], "lost 3 of 20 kernels"),
        (LAUNCHES[1:], RAN, "which call launched"),
        (LAUNCHES, [RAN[0]._replace(start_ns=0), *RAN[1:]], "no times"),
        (LAUNCHES, [RAN[0]._replace(duration_ns=0), *RAN[1:]], "no times"),
        (LAUNCHES, [RAN[0]._replace(start_ns=400), *RAN[1:]], "0.6 µs before their launches"),
    ],
)
def test_records_that_are_not(launches: Any, kernels: Any, word: str) -> None:
    assert word in str(fault_of_records(launches, kernels, "allow it"))


def test_known_faults_of_cupti() -> None:
    faulty = [(12, 6, 80), (12, 8), (12, 9, 79), (13, 0, 85)]
    assert all("192021" in str(probes.known_fault(version)) for version in faulty)
    assert "nvidia-cuda-cupti>=13.1" in str(probes.known_fault((13, 0, 85)))
    assert "nvidia-cuda-cupti" not in str(probes.known_fault((12, 8, 90)))
    assert not any(map(probes.known_fault, [(11, 8), (12, 6, 68), (13, 1, 75), (13, 5)]))


def test_the_version_is_of_the_package_that_goes_with_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"nvidia-cuda-cupti": "13.1.75", "nvidia-cuda-cupti-cu12": "12.8.90"}

    def version(name: str) -> str:
        if name not in installed:
            raise probes.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(probes, "version", version)

    def asked(cuda: str) -> tuple[int, ...]:
        return probes.cupti_version(SimpleNamespace(version=SimpleNamespace(cuda=cuda)))

    assert (asked("12.8"), asked("13.0"), asked("11.8")) == ((12, 8, 90), (13, 1, 75), (11, 8))


def torch_with(cuda: str | None, *, refusal: str | None = None, **cuda_functions: Any) -> Any:
    def init() -> None:
        if refusal:
            raise RuntimeError(refusal)

    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda, hip=None),
        cuda=SimpleNamespace(is_available=lambda: False, init=init, **cuda_functions),
    )


def test_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probes, "WSL", False)
    why = probes.why_no_gpu
    assert why(torch_with(None), tmp_path) is None and why(torch_with("13.0"), tmp_path) is None
    monkeypatch.setattr(probes, "WSL", True)
    assert "wsl --update" in str(why(torch_with("13.0"), tmp_path))
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert "docker run --gpus all" in str(why(torch_with("13.0"), tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert "without CUDA" in str(why(torch_with(None), tmp_path))
    assert "unset CUDA_VISIBLE_DEVICES" in str(why(torch_with("13.0"), tmp_path))
    old = torch_with("13.0", refusal="The NVIDIA driver on your system is too old\nmore")
    assert "driver on your system is too old" in str(why(old, tmp_path))
    assert "\n" not in str(why(old, tmp_path))


def test_a_card_in_trouble() -> None:
    others = (OtherProcess(77, 3 * 10**9, 0.5), OtherProcess(78, None, None))
    found = list(card_findings(CardState(
        at_ns=0, sm_mhz=1410, sm_max_mhz=1980, power_w=698.5, power_limit_w=700, mig=True,
        reasons=("idle", "heat, by the driver"), others=others, pcie_width=8, pcie_max_width=16,
    )))  # fmt: skip
    text = {subject: finding for subject, finding, _ in reversed(found)}
    assert text["card"].startswith("SM 1410 of 1980 MHz, memory unknown MHz, 698 of 700 W")
    assert "width 8 of 16" in text["card"]
    assert text["clock"].startswith("held (heat, by the driver): nvidia-smi")
    assert text["other processes"].startswith("pid 77 holds 3.00 GB, computes 50 %: nvidia-smi")
    assert "whole card's" in text["MIG"]
    assert [works for subject, _, works in found if subject == "other processes"] == [False, None]
    assert [row[0] for row in card_findings(None)] == ["NVML"]
    calm = CardState(at_ns=0, reasons=(), others=())
    assert [row[0] for row in card_findings(calm)] == ["card"]


def test_probes_that_fail_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch_with("13.0", current_device=lambda: 0)
    gpu.cuda.is_available = lambda: True
    monkeypatch.setattr(probes, "nvml_trouble", lambda: None)

    def lost(index: int) -> Any:
        raise RuntimeError("lost")

    monkeypatch.setattr(probes, "card_of", lost)
    found = list(probes.gpu_checks(gpu))
    assert [subject for subject, _, works in found if works is False] == [
        "GPU profiler", "GPU events", "CUDA graph", "NVML"
    ]  # fmt: skip
    assert all("\n" not in finding for _, finding, _ in found)
    monkeypatch.setattr(probes, "nvml_trouble", lambda: "not installed")
    assert list(probes.gpu_checks(gpu))[-1] == ("NVML", "not installed", False)
