"""The exit code of a process whose GPU is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit
from types import SimpleNamespace
from gobrrr.devices import backends
from gobrrr.cli.lost_device import Ending

def lost():
    {answer}

backends.gpu_in_use = lambda: SimpleNamespace(synchronise=lost)
ending = Ending()
atexit.register(print, "the program's own end")
atexit.register(ending.without_device, 3)
raise SystemExit(7)
"""


@pytest.mark.parametrize(("answer", "code"), [("raise RuntimeError('CUDA error')", 3), ("pass", 7)])
def test_it_is_given_where_the_device_no_longer_answers(answer: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(answer=answer)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout == "the program's own end\n"
