from __future__ import annotations

import subprocess
import sys

import pytest

from gobrrr.measure.process_memory import free_memory_bytes, limited_memory, peak_memory_bytes

linux = pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")


@linux
def test_what_goes_beyond_the_limit_is_a_memory_error_and_the_limit_ends() -> None:
    with limited_memory(64 << 20):
        free = free_memory_bytes()
        assert free is not None
        assert free <= 64 << 20
        with pytest.raises(MemoryError):
            bytearray(512 << 20)
    assert len(bytearray(512 << 20)) == 512 << 20


@linux
def test_limits_within_limits_keep_the_lower_one() -> None:
    with limited_memory(64 << 20), limited_memory(1 << 40):
        free = free_memory_bytes()
    assert free is not None
    assert free <= 64 << 20


def test_the_peak_is_that_of_a_python_process() -> None:
    peak = peak_memory_bytes()
    assert peak is None or 4 << 20 < peak < 1 << 40


_USED_AGAIN = """
import resource
from gobrrr.measure.process_memory import keep_freed_memory

def faults_of(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        bytearray(8 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

told = keep_freed_memory()
faults_of(1)
print(told, faults_of(10))
"""


def test_freed_memory_is_used_again() -> None:
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", _USED_AGAIN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told, faults = done.stdout.split()
    if told == "False":
        pytest.skip("this C library cannot be told")
    # Asked for anew, 80 MiB are 20,480 pages.
    assert int(faults) < 1000
