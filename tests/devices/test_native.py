from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gobrrr.devices.native import NativeKernels, NoNativeKernelsError, compiler, load_native_kernels

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def kernels() -> NativeKernels:
    if compiler() is None:
        pytest.skip("no C++ compiler")
    return load_native_kernels([])


def test_exp_is_exp(kernels: NativeKernels) -> None:
    # float32 has 24 bits: one unit in the last place is 2**-23 = 1.2e-7 of the value.
    values = [step / 16 - 20 for step in range(640)]
    for given, found in zip(values, kernels.exp_values(values)):
        assert found == pytest.approx(math.exp(given), rel=4e-7)


@pytest.mark.parametrize("operation", ["multiply_add", "multiply", "add"])
def test_arithmetic_is_plausible(kernels: NativeKernels, operation: str) -> None:
    found = kernels.arithmetic("float32", operation, threads=1, seconds=1e-4, trials=2)  # type: ignore[arg-type]
    assert found is not None
    # A scalar core at 100 MHz to 4 units of 16 lanes at 10 GHz.
    assert 1e8 < found < 4 * 16 * 2 * 1e10


def test_a_dtype_the_cpu_does_not_compute_in_is_unknown(kernels: NativeKernels) -> None:
    assert kernels.exponentials("int8", threads=1, seconds=1e-4, trials=1) is None


@pytest.mark.parametrize("kind", ["read", "write", "copy", "triad", "update", "load"])
def test_streams_move_bytes(kernels: NativeKernels, kind: str) -> None:
    # A busy machine makes two threads wait for each other: only the unit can be checked.
    found = kernels.stream(kind, 1 << 16, threads=2, seconds=1e-4, trials=2)  # type: ignore[arg-type]
    assert found is not None
    assert 1e5 < found < 1e14


def test_no_room_for_the_arrays(kernels: NativeKernels) -> None:
    with pytest.raises(MemoryError, match="bandwidth test"):
        kernels.stream("read", 1 << 60, threads=1, seconds=1e-4, trials=1)


def test_no_compiler_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoNativeKernelsError, match="no C\\+\\+ compiler"):
        load_native_kernels([])


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("sh") is None:
        pytest.skip("no shell")
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'error: no such luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(
        NoNativeKernelsError, match=r"broken-c\+\+ does not compile .* no such luck"
    ):
        load_native_kernels([])


SLOW = """#!/bin/sh
sleep 300 &
echo $! > {folder}/started.new
mv {folder}/started.new {folder}/started
wait
"""


@pytest.mark.skipif(os.name != "posix", reason="signals and groups of processes")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_while_it_compiles_leaves_nothing(
    tmp_path: Path, by: signal.Signals
) -> None:
    slow, places = tmp_path / "slow-c++", tmp_path / "temporary"
    slow.write_text(SLOW.format(folder=tmp_path))
    slow.chmod(0o755)
    places.mkdir()
    program = "from gobrrr.devices.native import load_native_kernels as load\nload([])"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "CXX": str(slow), "TMPDIR": str(places)},
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    started = tmp_path / "started"
    while not started.exists() and process.poll() is None:
        time.sleep(0.01)
    assert [each.name.startswith("gobrrr-") for each in places.iterdir()] == [True]
    process.send_signal(by)
    assert process.wait(timeout=60) == -by
    assert not list(places.iterdir())
    # What the compiler has started has ended too, or is about to.
    deadline = time.monotonic() + 60
    while _runs(int(started.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(int(started.read_text()))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    # One that has ended and that nobody has waited for is still there.
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
