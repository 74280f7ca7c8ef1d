"""A sample of the sweep: no process dies, nothing hangs, and every answer is a right one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.models, pytest.mark.torch]
ROOT = Path(__file__).parents[2]
# They run beside each other: everything is predicted, and limits are of processor time.
PARTS = 2


def sweep(*arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, "benchmarks/breadth/run.py", *map(str, arguments)],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_sample_of_the_sweep(tmp_path: Path):
    parts = [tmp_path / f"part{i}.json" for i in range(PARTS)]
    children = [
        sweep("--sample", "--part", f"{i}/{PARTS}", "--out", part)
        for i, part in enumerate(parts, start=1)
    ]
    said = [child.communicate(timeout=1800)[1] for child in children]
    assert all(part.exists() for part in parts), "\n".join(said)[-2000:]
    assert all(json.loads(part.read_text())["complete"] for part in parts), "\n".join(said)[-2000:]
    out = tmp_path / "breadth.json"
    sweep("--merge", *parts, "--out", out).communicate(timeout=1800)
    found = json.loads(out.read_text())
    summary = found["summary"]
    assert found["complete"]
    assert (summary["died"], summary["timed_out"]) == (0, 0)
    misses = {row["name"]: row["misses"] for row in found["cases"] if row["misses"]}
    assert misses == {}
    assert summary["architectures"]["counted"] >= 10
    assert summary["programs"]["counted"] >= 15
    assert summary["odd_inputs"]["counted"] >= 10
