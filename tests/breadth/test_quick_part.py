"""Two minutes of the sweep: no process dies, nothing hangs, and every answer is a right one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.models, pytest.mark.torch]
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_quick_part_of_the_sweep(tmp_path: Path):
    out = tmp_path / "breadth.json"
    command = [sys.executable, "benchmarks/breadth/run.py", "--quick", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800
    )
    assert out.exists(), done.stderr[-2000:]
    found = json.loads(out.read_text())
    summary = found["summary"]
    assert found["complete"]
    assert (summary["died"], summary["timed_out"]) == (0, 0)
    misses = {row["name"]: row["misses"] for row in found["cases"] if row["misses"]}
    assert misses == {}
    assert summary["architectures"]["counted"] >= 10
    assert summary["programs"]["counted"] >= 15
    assert summary["odd_inputs"]["counted"] >= 10
