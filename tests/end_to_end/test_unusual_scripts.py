"""Scripts whose loops, hooks and processes are unusual run as they do without gobrrr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FEW = ("run", "--quiet", "--warmup", "2", "--steps", "4", "--json", "d.json")


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=240
    )


def diagnosed(folder: Path, source: str) -> dict[str, Any]:
    """What is found of a script that prints the same as without gobrrr."""
    (folder / "script.py").write_text(textwrap.dedent(source))
    alone = python(folder, "script.py")
    assert alone.returncode == 0 and alone.stdout, alone.stderr
    done = python(folder, "-m", "gobrrr", *FEW, "script.py")
    assert done.returncode == 0, done.stderr
    # Between its lines is the report.
    lines = iter(done.stdout.splitlines())
    assert all(line in lines for line in alone.stdout.splitlines())
    assert not done.stderr
    found: dict[str, Any] = json.loads((folder / "d.json").read_text())
    return found


def count(found: dict[str, Any], name: str) -> int:
    return sum(op["count"] for op in found["ops"] if op["name"] == name)


def test_blocks_that_run_again_in_the_backward_pass_end_no_step(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import torch
        from torch.utils.checkpoint import checkpoint
        torch.manual_seed(0)
        blocks = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(3)]
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList(blocks)
            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)
                return x
        net = Net()
        for _ in range(40):
            net(torch.ones(16, 64)).square().mean().backward()
            with torch.no_grad():
                for each in net.parameters():
                    each -= 0.1 * each.grad
                    each.grad = None
        print(net(torch.ones(1, 64)).sum().item())
        """,
    )
    assert count(found, "aten::addmm") == 6


def test_optimizers_that_step_in_the_backward_pass_end_no_step(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        optimizers = {each: torch.optim.SGD([each], 0.01) for each in net.parameters()}
        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()
        for each in optimizers:
            each.register_post_accumulate_grad_hook(update)
        for _ in range(40):
            net(torch.ones(16, 64)).square().mean().backward()
        print(net(torch.ones(1, 64)).sum().item())
        """,
    )
    assert count(found, "aten::addmm") == 2
    assert not any("profiler of its own" in notice for notice in found["notices"])


def test_forwards_that_end_with_an_exception_are_steps(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import torch
        class Found(Exception): pass
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        features = []
        def grab(module, args, result):
            features.append(result)
            raise Found
        net[1].register_forward_hook(grab)
        with torch.no_grad():
            for _ in range(60):
                try:
                    net(torch.ones(16, 64))
                except Found:
                    pass
        print(len(features))
        """,
    )
    assert count(found, "aten::addmm") == 1


def test_a_module_that_was_called_can_be_scripted(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import torch, warnings
        warnings.simplefilter("ignore")
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
        with torch.no_grad():
            for _ in range(4):
                net(torch.ones(16, 64))
            scripted = torch.jit.script(net)
            for _ in range(60):
                result = scripted(torch.ones(16, 64))
        print(result.shape)
        """,
    )
    assert count(found, "aten::linear") + count(found, "aten::addmm") >= 1


def test_a_script_that_leaves_its_working_directory_finds_itself(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import inspect, os, sys, torch
        def step():
            net(torch.ones(16, 64))
        os.chdir("/")
        net = torch.nn.Linear(64, 64)
        for _ in range(40):
            step()
        print(__file__, sys.argv, sys.path[0], len(open(__file__).read()), inspect.getsource(step))
        """,
    )
    assert any(op["source"].endswith("script.py:4 in step") for op in found["ops"] if op["source"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_processes_that_a_script_forks_are_not_measured(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import atexit, os, torch
        atexit.register(lambda: print("ended"))
        # OpenMP's threads do not outlive a fork: what is parallel may wait for them for ever.
        torch.set_num_threads(1)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        def train(steps):
            for _ in range(steps):
                net(torch.ones(16, 64)).square().mean().backward()
                optimizer.step()
        train(3)
        # One leaves as processes of torch's do, one comes to the end of the script.
        for leaves in (True, False):
            child = os.fork()
            if not child:
                train(50)
                if leaves:
                    os._exit(0)
                break
            assert os.waitpid(child, 0)[1] == 0
        else:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                raise ValueError("in a fork")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            train(60)
            print("trained", flush=True)
        """,
    )
    assert count(found, "aten::addmm") == 2


def test_an_iteration_with_an_optimizer_for_each_task_is_one_step(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        """
        import copy, torch
        torch.manual_seed(0)
        net = torch.nn.Linear(16, 16)
        outer = torch.optim.Adam(net.parameters())
        for _ in range(60):
            outer.zero_grad()
            for task in range(3):
                own = copy.deepcopy(net)
                inner = torch.optim.SGD(own.parameters(), 0.01)
                for _ in range(2):
                    inner.zero_grad()
                    own(torch.ones(4, 16)).square().mean().backward()
                    inner.step()
                for mine, other in zip(net.parameters(), own.parameters()):
                    mine.grad = other.grad if mine.grad is None else mine.grad + other.grad
            outer.step()
        print(net(torch.ones(1, 16)).sum().item())
        """,
    )
    assert count(found, "aten::addmm") == 6


def test_modes_of_the_program_see_none_of_gobrrrs_own_work(tmp_path: Path) -> None:
    source = """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    class Seen(TorchDispatchMode):
        names = set()
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Seen.names.add(str(function))
            return function(*args, **(kwargs or {}))
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(40):
        with Seen():
            optimizer.zero_grad()
            net(torch.ones(16, 64)).square().mean().backward()
            optimizer.step()
    print(sorted(Seen.names))
    """
    assert count(diagnosed(tmp_path, source), "aten::addmm") == 1


OWN_HOOK = """
import sys
print(__loader__.name, __annotations__, __builtins__.len("abc"))
def told(kind, error, trace):
    print("hook:", kind.__name__, error, trace.tb_frame.f_code.co_filename == __file__, flush=True)
sys.excepthook = told
raise %s
"""


@pytest.mark.parametrize("raised", ["ValueError('x')", "KeyboardInterrupt('x')"])
def test_main_and_its_hook_for_errors_are_as_python_makes_them(tmp_path: Path, raised: str) -> None:
    (tmp_path / "script.py").write_text(OWN_HOOK % raised)
    said = {
        module: subprocess.run(
            [sys.executable, *module, "script.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=240,
        ).stdout
        for module in ((), ("-m", "gobrrr", "run", "--quiet"))
    }  # fmt: skip
    first = "__main__ {} 3\n" + f"hook: {raised.partition('(')[0]} x True\n"
    assert set(said.values()) == {first}


FINE_TUNES = """
import torch
from torch import nn
torch.manual_seed(0)
encoder, head = nn.Linear(64, 32), nn.Linear(32, 10)
first = torch.optim.SGD(encoder.parameters(), 1e-3)
for _ in range(40):
    encoder(torch.randn(16, 64)).square().mean().backward()
    first.step()
    first.zero_grad()
encoder.requires_grad_(False)
second = torch.optim.SGD(head.parameters(), 0.1)
for _ in range(100):
    with torch.no_grad():
        x = encoder(torch.randn(16, 64))
    nn.functional.cross_entropy(head(x), torch.randint(0, 10, (16,))).backward()
    second.step()
    second.zero_grad()
"""


def test_another_training_after_the_steps_evaluates_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FINE_TUNES)
    done = subprocess.run(
        [sys.executable, "-m", "gobrrr", "run", "--quiet", "--json", "d.json", "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wall = json.loads((tmp_path / "d.json").read_text())["wall"]
    assert wall is None or "evaluation" not in {part["name"] for part in wall["parts"]}


STEPS_OF = """
import torch
from torch import nn
net = nn.Linear(16, 16)
optimizer = torch.optim.%s(net.parameters(), 1e-3)
for _ in range(60):
    net(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("end")
"""


@pytest.mark.parametrize(("optimizer", "has_one"), [("Adam", True), ("RAdam", False)])
def test_whether_an_optimizer_has_a_fused_implementation_is_known(
    tmp_path: Path, optimizer: str, has_one: bool
) -> None:
    found = diagnosed(tmp_path, STEPS_OF % optimizer)
    assert found["step"]["fused_optimizer"] is has_one
