"""Tests that pass only when run again are counted over a whole run, and few of them may."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_rerunfailures")

FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_of_a_clock(number):
    seen = Path(__file__).with_name(f"seen{{number}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError
"""


def run(folder: Path, count: int, *options: str) -> tuple[int, str]:
    """Exit status and output of a run in which so many tests need a second chance."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_clock.py").write_text(FAILS_ONCE.format(count=count))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--reruns", "1", *options],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_a_run_with_too_many_reruns_fails(tmp_path: Path, options: tuple[str, ...]) -> None:
    count = 4
    status, said = run(tmp_path, count, *options)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "at most 3 may be in one run" in said
    last = said.rstrip().splitlines()[-1]
    assert re.fullmatch(rf"=+ {count} passed, {count} rerun in [\d.]+s =+", last)


def test_a_few_reruns_are_let_pass(tmp_path: Path) -> None:
    status, said = run(tmp_path, 3)
    assert status == pytest.ExitCode.OK
    assert "The run fails" not in said
