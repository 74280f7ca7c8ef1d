"""What a step was taken to be, of programs that call modules before they train."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.live import training_signs  # noqa: E402
from gobrrr.live.measurements import Measurements, Plan  # noqa: E402
from gobrrr.live.script import load_script  # noqa: E402
from gobrrr.live.script_run import ScriptEnd, measure_script  # noqa: E402
from gobrrr.live.steps import StepWatcher  # noqa: E402
from gobrrr.live.training_signs import AwaitedTraining, OptimizersMade  # noqa: E402

HEAD = """
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    def calls(number, module=net):
        with torch.no_grad():
            for _ in range(number):
                module(torch.ones(2, 8))
    def train(number):
        for _ in range(number):
            net(torch.ones(2, 8)).sum().backward()
            optimizer.step()
"""
ROLLOUTS = (
    "optimizer = torch.optim.SGD(net.parameters(), 0.1)\nfor _ in range(4): calls(150); train(16)"
)
MADE_LATER = "calls(150)\noptimizer = torch.optim.Adam(net.parameters())\ntrain(60)"
FEW = "calls(150)\noptimizer = torch.optim.Adam(net.parameters())\ntrain(3)"
NEVER = "optimizer = torch.optim.Adam(net.parameters())\ncalls(150)"
DATA = """
class Data(torch.utils.data.Dataset):
    scale = nn.Linear(8, 8)
    def __len__(self): return 8 * 40
    @torch.no_grad()
    def __getitem__(self, i): return self.scale(torch.ones(8))
for batch in torch.utils.data.DataLoader(Data(), batch_size=8): calls(1)
"""
BY_HAND = """
scale, model = nn.Identity(), nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
with torch.no_grad():
    for _ in range(150):
        batch = torch.stack([scale(torch.ones(256)) for _ in range(24)])
        model(batch.repeat(8, 1))
"""
DELAYED = """
critic, actor = (torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1) for _ in range(2))
for turn in range(120):
    critic.step()
    if turn % 2 == 0:
        actor.step()
"""


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the programs here: other tests of this process may have compiled something."""
    monkeypatch.setattr(
        "gobrrr.live.watch.call_watch.compiler_counters", lambda: {"compiled_graphs": 0}
    )


@pytest.fixture(autouse=True)
def main_module_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])


def measured(
    text: str, folder: Path, *, stop: bool = False, step: str = ""
) -> tuple[ScriptEnd, Measurements | None]:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(HEAD) + text)
    found: list[Measurements] = []
    ended = measure_script(
        load_script(str(script)), [], Plan(2, 6, 4), lambda each, _: found.append(each),
        stop=stop, progress=lambda *_: None, step=step,
    )  # fmt: skip
    assert ended.exit.error is None
    assert torch.optim.Optimizer.__init__.__qualname__ == "Optimizer.__init__"
    assert len(found) <= 1
    return ended, found[0] if found else None


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize(
    ("text", "source", "said"),
    [
        (ROLLOUTS, "optimizer", "A step is one step of the optimizer (SGD `optimizer`); "),
        (MADE_LATER, "optimizer", "A step is one step of the optimizer (Adam `optimizer`); "),
        (FEW, "module", "; 3 optimizer steps came later."),
        (NEVER, "module", "A step is one call of Sequential `net`; 148 ran."),
        (DATA, "module", "A step is one call of Sequential `net`; 38 ran."),
        (BY_HAND, "module", "A step is one call of Sequential `model`; "),
        (DELAYED, "optimizer", "which is 2 turns of the loop at "),
    ],
)
def test_the_steps_that_train_are_the_steps_whatever_came_before(
    text: str, source: str, said: str, stop: bool, tmp_path: Path
) -> None:
    ended, found = measured(text, tmp_path, stop=stop)
    assert ended.problem is None and found is not None
    assert said in found.step_is
    assert (found.source == source) and found.all_plain_ns and found.profiled


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("optimizer", "one step of the optimizer"),
        ("call", "one call of Sequential `net`"),
        ("Sequential", "one call of Sequential `net`"),
        ("net", "one call of Sequential `net`"),
        ("Linear", "one call of Linear"),
        ("1", "one call of Linear"),
    ],
)
def test_the_user_says_what_a_step_is(step: str, said: str, tmp_path: Path) -> None:
    ended, found = measured(ROLLOUTS, tmp_path, step=step)
    assert ended.problem is None and found is not None
    assert found.step_is.startswith(f"A step is {said}")


def test_a_module_that_is_never_called_is_said_to_be_missing(tmp_path: Path) -> None:
    ended, found = measured(ROLLOUTS, tmp_path, step="Conv2d")
    assert found is None and ended.problem is not None
    assert "Conv2d" in ended.problem and "Sequential" in ended.problem


def test_an_optimizer_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests are a program that trains.
    monkeypatch.setattr(training_signs, "_functions_of_user", lambda: iter(()))
    now, made = [0.0], OptimizersMade()
    undo = made.watch()
    try:
        inferring = compile("model(x)", "serve.py", "exec")
        training = compile("def f():\n    loss.backward()", "train.py", "exec")

        def awaited(code: Any) -> AwaitedTraining:
            return AwaitedTraining(made, code, stops=True, clock=lambda: now[0])

        assert not awaited(inferring).goes_on()
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
        assert awaited(inferring).goes_on()
        del optimizer
        assert not awaited(inferring).goes_on()
        waits = awaited(training)
        assert waits.goes_on()
        now[0] = training_signs.STOPPING_WAITS_S + 1
        assert not waits.goes_on()
    finally:
        undo()


def test_modules_are_found_anew_where_an_optimizer_takes_over() -> None:
    from gobrrr.live.watch.call_watch import CallWatch

    calls, ended = CallWatch(), []
    watcher = StepWatcher(lambda source, restarted: ended.append(source), calls)
    watcher.install()
    features, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    try:
        for _ in range(8):
            features(torch.ones(2, 4))
        watcher.settle()
        optimizer = torch.optim.SGD(head.parameters(), 0.1)
        for _ in range(4):
            head(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert head in calls.roots().values()
        watcher.settle()
        assert torch.nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"
        assert len(head._forward_hooks) == 1
    finally:
        watcher.remove()
    assert not head._forward_hooks and not features._forward_hooks


def test_steps_that_come_after_the_diagnosis_are_said_to_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training_signs, "RUNNING_WAITS_S", 0.0)
    _, found = measured(MADE_LATER, tmp_path)
    assert found is not None and found.source == "module"
    assert "60 optimizer steps came after the diagnosis" in capsys.readouterr().err
    from torch.optim import optimizer as home

    assert not home._global_optimizer_post_hooks
