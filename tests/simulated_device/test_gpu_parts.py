"""What the parts of the GPU benchmark read: gobrrr's kernels, Nsight Compute's, a process's end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from benchmarks.gpu.parts import counters  # noqa: E402
from benchmarks.gpu.processes import Child  # noqa: E402
from benchmarks.gpu.scripts.counted_steps import PROGRAMS  # noqa: E402
from benchmarks.gpu.setting import Setting  # noqa: E402

from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.timeline.data import KernelKind  # noqa: E402
from simulated_device import NVIDIA, Accelerator, SimulatedBackend  # noqa: E402

pytestmark = pytest.mark.torch
COUNTED = """\
==PROF== Connected to process 12 (python)
"ID","Process ID","Kernel Name","Stream","Grid Size","dram__bytes_read.sum","sm__a.avg.pct"
"","","","","","byte","%"
"0","12","void fill<float, 4>(int, T1)","7","(8, 1, 1)","1,024","12.5"
"1","12","gemm","7","(1, 1, 1)","n/a","nan"
"""


def test_counted_rows() -> None:
    first, second = counters.counted_rows(COUNTED)
    assert first["name"] == "void fill<float, 4>(int, T1)" and first["grid"] == "(8, 1, 1)"
    assert first["dram__bytes_read.sum"] == 1024 and first["sm__a.avg.pct"] == 12.5
    assert second["dram__bytes_read.sum"] is None and second["sm__a.avg.pct"] is None


def test_kernels_of_one_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpu = Accelerator(NVIDIA)
    SimulatedBackend(gpu).install(monkeypatch)
    with gpu:
        step = PROGRAMS["transformer_float32"]("cpu", True)
        done = diagnose_work(step, Plan(None, 6), None, "layer", lambda *_: None)
        rows = counters.kernel_rows(done.analysis)
    kernels = [row for row in rows if row["kind"] == KernelKind.KERNEL]
    assert len(kernels) == pytest.approx(done.diagnosis.counters["kernels"], abs=1)
    products = [row for row in rows if row["work"] and row["work"]["matrix_flops"]]
    # Two products of 128 rows, 64 columns and 256 between them, forward and twice backward.
    linear = [row for row in products if row["work"]["matrix_flops"] == 2 * 128 * 64 * 256]
    assert len(linear) == 6
    assert all(row["roof"]["time_s"] > 0 and row["duration_ns"] > 0 for row in products)


def test_a_gated_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from benchmarks.gpu.scripts.step_clock import ready, step_done\n"
        "ready()\nfor _ in range(5): step_done()\nprint('done')\n"
    )
    setting = Setting("cpu", True, tmp_path)
    child = Child(
        (sys.executable, str(script)),
        tmp_path,
        setting,
        gated=True,
        clock=True,
        environment={"STEPS": "4"},
    )
    child.go()
    ended = child.end(60.0)
    assert ended["exit"] == 0 and ended["last_lines"] == ["done"] and not ended["gave_up"]
    assert len(ended["clock"]["steps_s"]) == 3 and ended["clock"]["free_s"] >= 0
    assert ended["wall_s"] > 0 and ended["peak_rss_bytes"] > 1e7
