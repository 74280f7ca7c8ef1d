"""Steps at whose ends nothing but a clock is read: how they begin, end and are interrupted."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.live.bare_steps import BareSteps  # noqa: E402
from gobrrr.live.measurements import Measurements, Plan  # noqa: E402
from gobrrr.live.script import load_script  # noqa: E402
from gobrrr.live.script_run import measure_script  # noqa: E402
from gobrrr.live.steps import MODULE, OPTIMIZER, StepWatcher  # noqa: E402
from gobrrr.live.watch.call_watch import CallWatch  # noqa: E402


class Loop:
    """A model that is trained step by step and watched; ``ended`` are the steps that were heard."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.ended: list[str] = []
        self.calls = CallWatch()
        self.watcher = StepWatcher(self._boundary, self.calls)

    def _boundary(self, source: str, restarted: bool) -> None:
        self.ended.append(source)
        if len(self.ended) == 3:
            self.watcher.settle()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()

    def infer(self, steps: int) -> None:
        with torch.no_grad():
            for _ in range(steps):
                self.model(torch.ones(2, 4))

    @property
    def hooks(self) -> int:
        return len(self.model._forward_hooks) + len(self.model._forward_pre_hooks)


@pytest.fixture
def nothing_compiled(monkeypatch):
    """Whatever this process compiled before."""
    monkeypatch.setattr(
        "gobrrr.live.watch.call_watch.compiler_counters", lambda: {"compiled_graphs": 0.0}
    )


@pytest.fixture
def loop(nothing_compiled):
    made = Loop()
    made.watcher.install()
    yield made
    made.watcher.remove()
    assert made.hooks == 0


def test_bare_steps_of_an_optimizer_have_no_hooks_and_are_counted(loop):
    loop.train(6)
    heard, hooks = len(loop.ended), loop.hooks
    bare = loop.watcher.begin_bare(5, 1.0)
    loop.train(5)
    assert hooks == 2 and loop.hooks == 0 and len(loop.ended) == heard
    # The end before the first of them is one more.
    loop.train(1)
    assert loop.hooks == 2 and len(loop.ended) == heard + 1
    block = bare.block()
    assert len(block.lengths_ns) == len(block.faults) == len(block.ended_ns) == 5
    assert all(length_ns > 0 for length_ns in block.lengths_ns) and not bare.surprised
    assert loop.watcher.optimizer_steps == 12


def test_bare_calls_end_with_the_hook_that_ends_them_alone(loop):
    loop.infer(8)
    heard, hooks = len(loop.ended), loop.hooks
    bare = loop.watcher.begin_bare(3, 1.0)
    loop.infer(1)
    # Only what ends a step is left of the two who watched.
    assert hooks == 2 and loop.hooks == 1
    loop.infer(3)
    assert loop.hooks == 2 and len(loop.ended) == heard + 1
    assert len(bare.block().lengths_ns) == 3 and loop.watcher.source == MODULE


def test_an_optimizer_s_step_among_bare_calls_is_heard_at_once(loop):
    loop.infer(8)
    bare = loop.watcher.begin_bare(50, 1.0)
    loop.infer(4)
    heard = len(loop.ended)
    loop.train(3)
    assert bare.surprised and len(loop.ended) > heard and loop.watcher.source == OPTIMIZER


def test_another_optimizer_ends_bare_steps(loop):
    loop.train(6)
    other = torch.optim.SGD(loop.model.parameters(), lr=0.1)
    bare = loop.watcher.begin_bare(50, 1.0)
    loop.train(4)
    other.step()
    assert bare.surprised and loop.hooks == 2 and len(bare.block().lengths_ns) == 3


def test_steps_of_two_optimizers_are_not_bare(loop):
    other = torch.optim.SGD(loop.model.parameters(), lr=0.1)
    for _ in range(6):
        loop.train(1)
        other.step()
    assert loop.watcher.begin_bare(5, 1.0) is None and loop.hooks == 2


def test_a_compiled_program_keeps_its_hooks(loop, monkeypatch):
    loop.train(6)
    monkeypatch.setattr(
        "gobrrr.live.watch.call_watch.compiler_counters", lambda: {"compiled_graphs": 1.0}
    )
    assert loop.watcher.begin_bare(5, 1.0) is None and loop.hooks == 2


def test_steps_in_another_thread_are_none_of_these():
    bare = BareSteps(5, 1.0, "optimizer")
    assert bare.goes_on("optimizer")
    went_on = []
    thread = threading.Thread(target=lambda: went_on.append(bare.goes_on("optimizer")))
    thread.start()
    thread.join()
    assert went_on == [False] and bare.surprised


def test_steps_that_have_grown_end_the_block():
    bare = BareSteps(50, 1e-9, "optimizer")
    assert not bare.goes_on("optimizer") and not bare.surprised


def measured_of(steps, tmp_path, plan):
    """A script of so many steps."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "net = torch.nn.Linear(8, 8)\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        f"for _ in range({steps}):\n"
        "    net(torch.ones(2, 8)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    found: list[Measurements] = []
    measure_script(
        load_script(str(tmp_path / "train.py")), [], plan,
        lambda measured, _: found.append(measured), lambda *phase: None, stop=True,
    )  # fmt: skip
    (measured,) = found
    return measured


def test_short_steps_of_a_script_are_bare_before_anything_is_attached_and_at_the_end(
    tmp_path, nothing_compiled
):
    measured = measured_of(3000, tmp_path, Plan())
    assert [len(block.lengths_ns) for block in measured.bare.values()] == [20, 100]
    assert len(measured.plain_ns[0]) == 0 and len(measured.plain_ns[1]) == 280


def test_who_asks_for_so_many_steps_has_so_many(tmp_path):
    measured = measured_of(300, tmp_path, Plan(steps=40))
    assert not measured.bare and len(measured.all_plain_ns) == 40


def test_a_script_that_ends_among_bare_steps_has_counted_them(tmp_path, nothing_compiled):
    # The first two say that these are the steps.
    said = measured_of(90, tmp_path, Plan()).step_is
    assert "88 ran" in said or "89 ran" in said
