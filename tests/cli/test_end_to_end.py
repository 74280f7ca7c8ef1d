"""Real programs in processes of their own: what they print, how they end, what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gobrrr

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
# Stands once in a whole report, and not in the gist.
SPLIT = "\n  overhead "

TRAIN = """
import atexit, sys
import torch
from torch import nn

def main():
    print("argv", sys.argv[1:], __name__)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(int(sys.argv[1])):
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("weights", sum(p.double().sum().item() for p in model.parameters()))
    print("random", torch.rand(1).item(), "threads", torch.get_num_threads())
    print("hooks", len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks),
          len(nn.modules.module._global_forward_hooks), torch.is_grad_enabled())
    atexit.register(lambda: print("at exit", sys.modules["__main__"].main is main))
    sys.exit(5)

if __name__ == "__main__":
    main()
"""
RULE = "-" * 80 + "\n"
STEPS = ("--warmup", "2", "--steps", "6")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose cache holds ceilings for this machine: none is measured here."""
    from gobrrr.devices import Ceiling, Ceilings, MemoryLevel, identify, save_ceilings
    from gobrrr.devices.machine import cache_path

    folder = tmp_path_factory.mktemp("cache")
    rows = {"matrix.float32": 100e9, "vector.float32": 50e9, "vector.int64": 10e9}
    given = Ceilings(
        "test device",
        {name: Ceiling(name, rate, "FLOP/s", "given", "test") for name, rate in rows.items()},
        (MemoryLevel("dram", None, ((0.0, 20e9),)),),
    )
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        path = cache_path(identify(), torch.__version__, 1)
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
    save_ceilings(given, path)
    # One thread: two that wait for each other on a busy machine take a hundred times as long.
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}


def run(
    *arguments: str, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, cwd=folder, env=environment, timeout=300,
    )  # fmt: skip


def test_a_training_script_behaves_as_without_gobrrr(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    alone = run("train.py", "60", "--json", environment=environment, folder=tmp_path)
    done = run(
        "-m", "gobrrr", "run", *STEPS, "--json", "d.json", "train.py", "60", "--json",
        environment=environment, folder=tmp_path,
    )  # fmt: skip
    assert (alone.returncode, done.returncode) == (5, 5)
    # The report as soon as it is measured; around it all that the script prints, its weights and
    # random numbers among it; then the gist, then its atexit.
    before, report, after, rest = done.stdout.split(RULE)
    before_exit, at_exit = alone.stdout.split("at exit")
    assert before + after == before_exit
    assert report.startswith("train.py · training step")
    assert "Saved: d.json" in report
    assert rest.startswith("train.py · training step") and rest.endswith("at exit" + at_exit)
    assert " per step (" in rest and SPLIT in report and SPLIT not in rest

    diagnosis = gobrrr.load(tmp_path / "d.json")
    diagnosis.check()
    assert diagnosis.step.time_s.n == 6
    assert {row.name for row in diagnosis.phases} >= {"forward", "backward", "optimizer"}
    # 32 x 64 x 64 x 2 = 262144 FLOP, forward.
    addmm = next(op for op in diagnosis.ops if op.name == "aten::addmm" and "(64,64)" in op.shapes)
    assert addmm.count == 1 and addmm.flops is not None and addmm.flops >= 262144
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.json", "train.py"]
    # Progress is told on stderr, in whole lines, and nothing else is.
    assert all(line.startswith("gobrrr: ") for line in done.stderr.splitlines())


def test_a_module_that_is_stopped(environment: dict[str, str], tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(TRAIN)
    done = run(
        "-m", "gobrrr", "run", "--quiet", "--stop", *STEPS, "-m", "package.train", "100000000",
        environment=environment, folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("argv ['100000000'] __main__\n" + RULE)
    assert done.stderr == ""


def test_a_step_that_raises(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(TRAIN.replace("optimizer.zero_grad()", "raise KeyError('x')"))
    done = run(
        "-m", "gobrrr", "run", "--json", "d.json", "bad.py", "9",
        environment=environment, folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3
    assert "KeyError: 'x'" in done.stderr and 'bad.py", line' in done.stderr
    assert "gobrrr/" not in done.stderr.split("Traceback")[1].replace("gobrrr: ", "")
    assert not (tmp_path / "d.json").exists()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('no torch here')", "ran no step that gobrrr can detect"),
        ("def f(:", "nothing.py:1 is not valid Python"),
    ],
)
def test_a_script_without_steps(
    program: str, message: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "nothing.py").write_text(program)
    done = run("-m", "gobrrr", "run", "nothing.py", environment=environment, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and message in done.stderr


def test_a_function_with_the_batch_test(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(
        "import torch\ndef make_step():\n    return torch.nn.Linear(64, 64), torch.randn(32, 64)\n"
    )
    done = run(
        "-m", "gobrrr", "run", "bench.py:make_step", *STEPS, "--json", "d.json", "--quiet",
        environment=environment, folder=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    diagnosis = gobrrr.load(tmp_path / "d.json")
    assert diagnosis.batch_doubling is not None
    assert diagnosis.batch_doubling.sentence in " ".join(done.stdout.split())


def test_interrupt(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    process = subprocess.Popen(
        [sys.executable, "-m", "gobrrr", "run", "--warmup", "100000000", "--json", "d.json",
         "train.py", "100000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
        # A shell's background job ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    assert "warming up" in process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert err == "gobrrr: interrupted\n"
    assert not (tmp_path / "d.json").exists()
