"""``gobrrr fix`` from end to end: a workload, a function, a script; fixes that build nothing.

What a trial measures is not asserted: the machine may be too busy to tell anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.fix_schema import FAILED, VERDICTS
from gobrrr.search.result import FixGateFailure

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FUNCTION = """
import torch
from torch import nn
import gobrrr

def make():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(12)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    return gobrrr.Workload(
        model, torch.randn(4, 16), loss=lambda y: y.square().mean(), optimizer=optimizer
    )
"""
SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(12)))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
x = torch.randn(4, 16)
for _ in range(100000):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def ceilings():
    from gobrrr.devices import Ceiling, Ceilings, MemoryLevel

    rates = {"matrix.float32": 10e12, "vector.float32": 5e12, "memory.dram.copy": 2e12}
    return Ceilings(
        "test device",
        {name: Ceiling(name, rate, "FLOP/s", "given", "test") for name, rate in rates.items()},
        (MemoryLevel("dram", None, ((0.0, 2e12),)),),
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment whose cache holds ceilings for this machine: none is measured here."""
    from gobrrr.devices import identify, save_ceilings
    from gobrrr.devices.machine import cache_path

    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        save_ceilings(ceilings(), cache_path(identify(), torch.__version__, 1))
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}


def run(environment, folder, *arguments):
    ended = subprocess.run(
        [sys.executable, "-m", "gobrrr", "fix", "--quiet", "--json", "d.json", "--only",
         "fused_optimizer", "--budget", "8s", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return ended, json.loads((Path(folder) / "d.json").read_text())


def check_outcome(saved):
    (finding,) = [f for f in saved["findings"] if f["fix"] == "fused_optimizer"]
    tried = finding["verification"]
    assert tried["verdict"] in VERDICTS
    assert tried["verdict"] != FAILED, tried["reason"]
    assert tried["before_s"] > 0
    assert tried["after_s"] > 0
    assert tried["numerics"]["compared"] > 10
    assert finding["prediction"]["expected_s"] > 0
    assert saved["fixes"]["null"]["median"] > 0


def test_a_function_is_fixed_in_processes_of_its_own(environment, tmp_path):
    (tmp_path / "bench.py").write_text(FUNCTION)
    ended, saved = run(environment, tmp_path, "bench.py:make")
    assert ended.returncode == 0, ended.stderr
    check_outcome(saved)
    assert "he program timed against itself" in ended.stdout


def test_a_script_is_fixed_unmodified_and_a_gate_can_fail(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    ended, saved = run(environment, tmp_path, "--require", "1000", "train.py")
    assert ended.returncode == 1, ended.stderr
    assert "no verified fix reaches 1000x" in ended.stderr
    check_outcome(saved)
    assert (tmp_path / "train.py").read_text() == SCRIPT


@pytest.mark.parametrize(
    ("source", "arguments", "code", "says"),
    [
        ("import sys\nsys.exit(7)\n", (), 3, "ended with exit code 7"),
        ("import argparse\nargparse.ArgumentParser().parse_args()\n", ("--no-such",), 3,
         "ended with exit code 2"),
        ("steps = int(input())\n", (), 3, "it reads standard input, which is closed here"),
        (SCRIPT.replace("100000", "2"), (), 2, "too few steps to diagnose. About 40 are enough."),
    ],
    ids=["exit", "usage", "input", "short"],
)  # fmt: skip
def test_what_cannot_be_diagnosed_has_an_exit_code_of_its_own(
    environment, tmp_path, source, arguments, code, says
):
    (tmp_path / "train.py").write_text(source)
    ended = subprocess.run(
        [sys.executable, "-m", "gobrrr", "fix", "--quiet", "train.py", *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    said = ended.stderr.strip().splitlines()[-1]
    assert said.startswith("gobrrr: ") and says in said
    # An option that another command has is no help here.
    assert "--warmup" not in said


def test_a_workload_is_tried_on_copies_and_left_as_it_was():
    namespace: dict[str, object] = {}
    exec(FUNCTION, namespace)
    work = namespace["make"]()
    before = [p.detach().clone() for p in work.model.parameters()]
    result = gobrrr.fix(
        work, only=["fused_optimizer", "glibc_tunables"], budget=3.0, ceilings=ceilings()
    )
    assert all(torch.equal(a, b) for a, b in zip(before, work.model.parameters()))
    assert not work.optimizer.state
    (finding,) = [f for f in result.findings if f.fix == "fused_optimizer"]
    assert finding.verification is not None
    assert finding.verification.verdict != FAILED, finding.verification.reason
    assert "glibc_tunables" in result.ruled_out
    assert (result.best is None) == (result.snippet == "")


def test_a_gate_of_the_python_function():
    x = torch.randn(64, 64)
    with pytest.raises(FixGateFailure, match="no verified fix reaches 1000x") as caught:
        gobrrr.fix(lambda: x @ x, only=["tf32"], budget=1.0, require=1000.0, ceilings=ceilings())
    assert caught.value.result.ruled_out == {"tf32": "it applies to GPUs only"}
