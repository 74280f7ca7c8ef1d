"""A kind of device is one folder (this one) and one entry in ``BACKENDS``: all commands know it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.cli import main  # noqa: E402
from gobrrr.devices import backends  # noqa: E402
from gobrrr.devices.backend import (  # noqa: E402
    Backend,
    MemoryMeter,
    StepProfiler,
    StepTimer,
    Streams,
)
from gobrrr.verification.memory import device_peak_bytes  # noqa: E402
from simulated_device import NVIDIA, Accelerator, Kernel, SimulatedBackend  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
STEP = """
import torch
x = torch.ones(64, 64)

def make():
    return torch.nn.Linear(64, 64), x
"""


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_every_backend_has_the_whole_protocol() -> None:
    gpu = Accelerator()
    outside = SimulatedBackend(gpu)
    some = {"identify", "measure", "synchronise", "timer", "streams", "memory", "profiler"}
    assert some < members(Backend)
    for backend in (outside, *backends.BACKENDS):
        assert members(Backend) <= {name for name in dir(backend) if not name.startswith("_")}
    for protocol, part in (
        (StepTimer, outside.timer()), (StepProfiler, outside.profiler()),
        (Streams, outside.streams()), (MemoryMeter, outside.memory()),
    ):  # fmt: skip
        assert members(protocol) <= set(dir(part)), protocol


def test_commands_know_a_device_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(table=lambda op: (Kernel(NVIDIA.name_of(op), 50 * US),))
    before = backends.BACKENDS
    backend = SimulatedBackend(gpu).install(monkeypatch)
    assert (backend, *before) == backends.BACKENDS
    file, saved = tmp_path / "from_outside.py", tmp_path / "d.json"
    file.write_text(STEP)
    commands = (
        ["doctor"],
        ["ceilings", "--quiet"],
        ["run", f"{file}:make", "--steps", "4", "--quiet", "--json", str(saved)],
    )
    with gpu:
        for command in commands:
            assert main(command) == 0
            assert NVIDIA.device in capsys.readouterr().out, command
        x = torch.ones(1000)
        assert device_peak_bytes(lambda: x + 1) is not None
    found = gobrrr.load(saved)
    assert (found.device.name, found.device.kind) == (NVIDIA.device, "cuda")
    assert found.batch_doubling is not None
    named = [path for path in Path(gobrrr.__file__).parent.rglob("*.py")
             if "simulated_device" in path.read_text()]  # fmt: skip
    assert not named


def test_two_streams_run_beside_each_other_until_they_are_joined() -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=lambda op: (Kernel(NVIDIA.name_of(op), 100 * US),))
    streams = SimulatedBackend(gpu).streams()
    with gpu:
        torch.mm(x, x)
        with streams.beside():
            torch.mm(x, x)
        torch.mm(x, x)
        streams.join()
        torch.mm(x, x)
    first, side, beside, last = gpu.machine.ran
    assert first.stream == beside.stream == last.stream != side.stream
    assert side.start_ns >= first.end_ns and beside.start_ns < side.end_ns
    assert last.start_ns >= max(side.end_ns, beside.end_ns)
