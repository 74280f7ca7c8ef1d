"""Real scripts in processes of their own, run as a user would run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
# Stands once in a whole report, and not in the gist.
SPLIT = "\n  overhead "

NET = """
import sys, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
data = torch.randn(32, 64)
"""
TRAIN = (
    NET
    + """
optimizer = torch.optim.AdamW(net.parameters())
def train_step():
    optimizer.zero_grad()
    loss = net(data).square().mean()
    loss.backward()
    optimizer.step()
    return loss
"""
)
# Few steps in every phase: 2 + 2 + 2 * 2 + 8 + 3, and the one that shows where a step ends.
FEW = ("--quiet", "--warmup", "2", "--steps", "4")


def gobrrr(*arguments: str, cwd: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gobrrr", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def write(folder: Path, source: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(source))
    return name


def test_a_training_script_is_diagnosed_and_keeps_everything_that_is_its_own(
    tmp_path: Path,
) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
import atexit, os, pickle, threading, __main__
class Config: pass
assert __name__ == "__main__" and sys.argv == ["script.py", "--n", "40"]
assert sys.path[0] == os.getcwd() and __file__ == os.path.abspath("script.py")
atexit.register(lambda: print("at exit", pickle.loads(pickle.dumps(Config())).__class__.__name__))
for _ in range(int(sys.argv[2])):
    loss = train_step()
# As deep as in Python by itself.
def deep(n): return n and deep(n - 1)
assert deep(sys.getrecursionlimit() - 30) == 0
# As for a program that waits for all its threads.
assert threading.enumerate() == [threading.main_thread()]
print("trained", __main__.net is net)
sys.exit(0)
""",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, "--n", "40", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\ntrained True\n" in done.stdout
    assert done.stdout.endswith("at exit Config\n")
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["step"]["kind"] == "training step"
    assert found["step"]["time_s"]["n"] == 4
    assert sum(found["leaves"].values()) == pytest.approx(found["step"]["time_s"]["median"])
    # Two linear layers of 64 x 64 on 32 rows: 2 * 32 * 64 * 64 each, forward and both gradients,
    # without the gradient of the data: 2 * 3 - 1 = 5 products.
    matmuls = [op for op in found["ops"] if op["name"] in ("aten::addmm", "aten::mm")]
    assert sum(op["flops"] for op in matmuls) == 5 * 2 * 32 * 64 * 64
    assert sum(op["count"] for op in matmuls) == 5
    assert {op["phase"] for op in found["ops"]} >= {"forward", "backward", "optimizer"}
    assert any(row["name"] == "2" and row["phase"] == "backward" for row in found["modules"])
    assert any("script.py" in (op["source"] or "") for op in found["ops"])


def test_a_script_that_raises_keeps_its_traceback_and_gives_3(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN + "\nfor i in range(40):\n    train_step()\n    if i == 4: raise KeyError('mine')\n",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 3
    assert "KeyError: 'mine'" in done.stderr
    assert f'File "{tmp_path / "script.py"}"' in done.stderr
    assert "gobrrr/live" not in done.stderr
    assert not (tmp_path / "d.json").exists()


def test_an_exit_code_of_the_script_is_passed_on(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN + "\nfor i in range(40): train_step()\nsys.exit(5)\n")
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 5
    # Its time, not its regime: on a machine that other programs take it has none.
    assert json.loads((tmp_path / "d.json").read_text())["step"]["time_s"]["median"] > 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("print('no torch here')\n", "ran no step that gobrrr can detect"),
        (TRAIN + "\nfor i in range(6): train_step()\n", "too few steps to diagnose"),
        (
            NET
            + "\nimport torch.multiprocessing as mp\n"
            + "def work(rank):\n    for _ in range(40): net(data)\n"
            + "if __name__ == '__main__': mp.spawn(work, nprocs=1)\n",
            "gobrrr does not look into them. Have a launcher start them instead (torchrun --nproc",
        ),
    ],
)
def test_a_script_without_enough_steps_is_told_so_in_one_line(
    tmp_path: Path, source: str, says: str
) -> None:
    done = gobrrr("run", *FEW, write(tmp_path, source), cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert says in lines[0]


def test_stop_ends_the_script_once_it_is_diagnosed(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
import atexit
steps = 0
atexit.register(lambda: print("left after", steps < 60))
try:
    for _ in range(10_000):
        train_step()
        steps += 1
finally:
    print("cleaned up")
""",
    )
    done = gobrrr("run", *FEW, "--stop", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cleaned up\n" in done.stdout
    assert done.stdout.endswith("left after True\n")
    assert SPLIT in done.stdout


def test_decode_calls_of_an_inference_loop_are_steps(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        NET + "\nwith torch.inference_mode():\n    for _ in range(40): data = net(data)\n",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["step"]["kind"] == "step"
    assert sum(op["count"] for op in found["ops"] if op["name"] == "aten::addmm") == 2


def test_spawned_workers_find_the_main_module(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 1280
    def __getitem__(self, i): return torch.full((64,), float(i))
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=32, num_workers=1, multiprocessing_context="spawn")
    for data in loader:
        train_step()
    print("loaded")
""",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loaded\n" in done.stdout
    assert json.loads((tmp_path / "d.json").read_text())["leaves"]["overhead.data_loading"] > 0


def test_a_gan_is_one_step_of_two_optimizers(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        NET
        + """
other = nn.Linear(64, 64)
optimizers = [torch.optim.SGD(m.parameters(), lr=1e-3) for m in (net, other)]
for _ in range(40):
    for model, optimizer in zip((net, other), optimizers):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
""",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ops = json.loads((tmp_path / "d.json").read_text())["ops"]
    # Two layers of net and one of the other, once each per step.
    assert sum(op["count"] for op in ops if op["name"] == "aten::addmm") == 3


def test_branches_that_differ_between_steps_are_survived(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
import random
for i in range(60):
    train_step()
    if random.random() < 0.5:
        (data @ data.T).relu().sum()
    if i > 20: data = data * float("nan")
""",
    )
    done = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert sum(found["leaves"].values()) == pytest.approx(found["step"]["time_s"]["mean"])


def test_a_module_runs_as_python_m_runs_it(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    write(package, TRAIN + "\nfrom package import size\nprint(__spec__.name, size.ROWS)\n"
          "for _ in range(40): train_step()\n", "train.py")  # fmt: skip
    write(package, "ROWS = 32\n", "size.py")
    done = gobrrr("run", *FEW, "-m", "package.train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("package.train 32\n")


def test_a_function_is_diagnosed_with_the_batch_test(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        NET + "\nimport gobrrr\ndef make_step():\n    return gobrrr.Workload(net, data)\n",
    )
    done = gobrrr("run", f"{script}:make_step", "--quiet", "--json", "d.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["batch_doubling"]["work_ratio"] > 1
    assert found["batch_doubling"]["sentence"] in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere.py", "no such file"),
        ("broken.py", "broken.py:1 is not valid Python"),
        ("steps.py:missing", "has no function 'missing'"),
        ("steps.py:make_none", "make_none returns nothing"),
        ("steps.py:needs_arguments", "must be callable without arguments"),
        (".", "is a directory without a __main__.py"),
    ],
)
def test_bad_targets_are_one_sentence_and_2(tmp_path: Path, target: str, says: str) -> None:
    write(tmp_path, "def (:\n", "broken.py")
    write(tmp_path, "def make_none(): pass\ndef needs_arguments(a): return a\n", "steps.py")
    done = gobrrr("run", target, cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert says in lines[0]


def test_a_step_that_raises_gives_3(tmp_path: Path) -> None:
    script = write(tmp_path, "def make_step():\n    return lambda: 1 / 0\n")
    done = gobrrr("run", f"{script}:make_step", "--quiet", cwd=tmp_path)
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("safe", ["", "1"])
@pytest.mark.parametrize("target", ["script.py", "folder"])
def test_modules_are_looked_for_where_python_looks(tmp_path: Path, safe: str, target: str) -> None:
    script = "import sys; print(sys.path)"
    write(tmp_path, script)
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder", script, "__main__.py")
    paths = os.pathsep.join([str(tmp_path / "first"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": safe}
    plain, diagnosed = (
        subprocess.run(
            [sys.executable, *command, target],
            cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment,
        ).stdout
        for command in ([], ["-m", "gobrrr", "run", "--quiet"])
    )  # fmt: skip
    assert str(tmp_path / "first") in plain
    assert diagnosed == plain


@pytest.mark.parametrize("after_s", [0.0, 1.0, 4.0])
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, after_s: float) -> None:
    script = write(
        tmp_path,
        TRAIN + "\nprint('go', flush=True)\nimport time\nfor _ in range(10_000):\n"
        "    train_step(); time.sleep(0.05)\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "gobrrr", "run", "--json", "d.json", script],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A shell's background job ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in errors
    left = [path.name for path in tmp_path.iterdir() if path.name != "script.py"]
    # How far it was later depends on the machine. What was timed by then is kept, and whole.
    assert left == [] or (after_s > 0 and left == ["d.json"])
    if left:
        assert json.loads((tmp_path / "d.json").read_text())["step"]["time_s"]["n"] > 0


def test_a_compiled_script_is_compiled_as_without_gobrrr(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN.replace("data = ", "net = torch.compile(net, backend='aot_eager')\ndata = ")
        + """
for _ in range(40):
    train_step()
""",
    )
    ended = gobrrr("run", *FEW, "--json", "d.json", script, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    counters = json.loads((tmp_path / "d.json").read_text())["counters"]
    # The watcher's wrapper of Module.__call__ must not be traced: it would break the graph.
    assert counters["graph_breaks"] == 0
    assert counters["compiled_graphs"] == 1
    assert "Dynamo does not know" not in ended.stderr


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("import os; os._exit(0)", 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_a_script_that_ends_badly_has_had_its_report(
    tmp_path: Path, ending: str, code: int
) -> None:
    script = write(tmp_path, TRAIN + "\nfor _ in range(40): train_step()\n" + ending)
    done = gobrrr("run", *FEW, "--json", "d.json", "--html", "d.html", script, cwd=tmp_path)
    assert done.returncode == code
    assert " per step (" in done.stdout and SPLIT in done.stdout
    assert "Saved: d.json, d.html" in done.stdout
    assert json.loads((tmp_path / "d.json").read_text())["step"]["time_s"]["n"] > 0
    assert (tmp_path / "d.html").read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_what_was_timed_is_told_before_a_script_leaves_without_farewell(
    tmp_path: Path, ending: str, code: int
) -> None:
    script = write(
        tmp_path,
        TRAIN
        + f"""
import os, signal
for i in range(200):
    train_step()
    if i == 150:
        # Children leave as ever.
        for way in (lambda: os._exit(5), lambda: os.kill(os.getpid(), signal.SIGTERM)):
            child = os.fork()
            if child == 0: way()
            print("child", os.waitpid(child, 0)[1], flush=True)
{ending}
""",
    )
    options = ("--quiet", "--warmup", "2", "--steps", "5000")
    done = gobrrr("run", *options, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert 100 < found["step"]["time_s"]["n"] < 200
    assert any("The script ended during timing" in notice for notice in found["notices"])
    assert done.stdout.count(SPLIT) == 1
    assert f"child {5 << 8}\nchild {int(signal.SIGTERM)}\n" in done.stdout


def test_ctrl_c_while_steps_are_timed_keeps_what_was_timed(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
for i in range(100_000):
    if i == 200: raise KeyboardInterrupt
    train_step()
""",
    )
    options = ("--quiet", "--warmup", "2", "--steps", "5000")
    done = gobrrr("run", *options, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == -signal.SIGINT, done.stderr
    found = json.loads((tmp_path / "d.json").read_text())
    assert 100 < found["step"]["time_s"]["n"] < 200
    assert any("The script ended during timing" in notice for notice in found["notices"])
    assert SPLIT in done.stdout


def test_what_was_timed_is_told_of_a_script_that_raises(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
for i in range(100_000):
    if i == 200: raise KeyError("mine")
    train_step()
""",
    )
    options = ("--quiet", "--warmup", "2", "--steps", "5000")
    done = gobrrr("run", *options, "--json", "d.json", script, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "KeyError: 'mine'" in done.stderr
    assert done.stderr.endswith("gobrrr: script.py raised, see above\n")
    found = json.loads((tmp_path / "d.json").read_text())
    assert 100 < found["step"]["time_s"]["n"] < 200
    said = "The script ended with an error (KeyError) during timing"
    assert any(said in notice for notice in found["notices"])
    assert done.stdout.count(SPLIT) == 1


def test_files_are_written_where_they_were_asked_for_whatever_the_script_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    script = write(
        tmp_path,
        TRAIN
        + """
import builtins, os
plain = builtins.print
builtins.print = lambda *words, **how: plain("[log]", *words, **how)
os.chdir("elsewhere")
for _ in range(40):
    train_step()
raise KeyboardInterrupt
""",
    )
    done = gobrrr("run", *FEW, "--json", "out/d.json", script, cwd=tmp_path)
    assert done.returncode == -signal.SIGINT
    assert json.loads((tmp_path / "out" / "d.json").read_text())["step"]["kind"] == "training step"
    assert "\nSaved: out/d.json\n" in done.stdout
    # What gobrrr says is not the program's: it does not go through the program's own print.
    assert "[log]" not in done.stdout


def test_a_file_that_can_no_longer_be_written_is_not_called_saved(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    script = write(
        tmp_path,
        TRAIN
        + """
import os
os.rmdir("out")
for _ in range(40):
    train_step()
sys.exit(7)
""",
    )
    done = gobrrr("run", *FEW, "--json", "out/d.json", script, cwd=tmp_path)
    assert done.returncode == 7
    assert "Saved" not in done.stdout
    assert "cannot write" in done.stderr


def test_a_time_limit_of_the_program_reaches_it_wherever_it_ends(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TRAIN
        + """
import signal, time
class Over(Exception): pass
def over(number, frame): raise Over
train_step()
signal.signal(signal.SIGALRM, over)
heard = 0
for _ in range(100):
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        train_step()
        time.sleep(1)
    except Over:
        heard += 1
print("heard", heard)
""",
    )
    done = gobrrr("run", *FEW, script, cwd=tmp_path)
    heard = next(line for line in done.stdout.splitlines() if line.startswith("heard "))
    # (Some imports of torch's own do without what cannot be imported, for whatever reason.)
    assert int(heard.split()[1]) >= 97
    assert "bug in gobrrr" not in done.stderr
