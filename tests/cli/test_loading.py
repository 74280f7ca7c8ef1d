"""What a short command loads: reading a trace needs nothing of what records one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EVENTS = [
    {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "tid": 1},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 1, "tid": 1},
    {"cat": "kernel", "name": "gemm", "ts": 4, "dur": 9, "tid": 7},
]
LINKED = [{"ph": "X", "pid": 1, "args": {"correlation": 3}, **event} for event in EVENTS]


def test_a_trace_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": LINKED}))
    program = (
        "import sys; from gobrrr.cli import main; import gc\n"
        "code = main(sys.argv[1:])\n"
        "print(code, gc.isenabled(), *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "trace", str(tmp_path / "trace.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1].split()
    assert last[:2] == ["0", "True"], done.stderr
    unwanted = {
        "gobrrr.live.profiles.profile", "gobrrr.live.session", "gobrrr.reports.html", "statistics",
        "torch", "multiprocessing", "numpy.ma", "email", "jinja2",
    }  # fmt: skip
    assert unwanted & set(last) == set()
