"""Steps that a program puts into a graph of kernels: left alone, then its replays are the steps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.live.steps import MODULE, OPTIMIZER, REPLAY, StepWatcher, taken_over_by  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from simulated_device import Accelerator, SimulatedBackend, slow  # noqa: E402
from simulated_device import accelerator as simulated  # noqa: E402

pytestmark = pytest.mark.torch


class Graph:
    """Runs what it is told to when it is replayed."""

    def __init__(self, runs: Any = lambda: None) -> None:
        self._runs = runs

    def replay(self) -> str:
        self._runs()
        return "replayed"


class Seen:
    """The steps since their meaning last changed, and whether one is being captured."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.restarts = 0
        self.capturing = False
        self.watcher = StepWatcher(self)

    def __call__(self, source: str, restarted: bool) -> None:
        assert not self.capturing
        if restarted:
            self.restarts += 1
            self.sources.clear()
        self.sources.append(source)

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        self.capturing = True
        yield
        self.capturing = False


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    original = Graph.replay
    found = Seen()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    found.watcher.install()
    yield found
    found.watcher.remove()
    assert Graph.replay is original


def make_net() -> tuple[Any, Any]:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    return net, torch.optim.SGD(net.parameters())


def train(net: Any, optimizer: Any) -> None:
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def test_a_captured_training_step_is_none_and_its_replays_are(seen: Seen) -> None:
    net, optimizer = make_net()
    for _ in range(4):
        train(net, optimizer)
    assert seen.sources == [OPTIMIZER] * 3
    with seen.capture():
        train(net, optimizer)
    graph = Graph()
    for _ in range(12):
        assert graph.replay() == "replayed"
    # Four for the optimizer to be silent, and the cycle.
    assert set(seen.sources) == {REPLAY}
    assert len(seen.sources) >= 5
    assert seen.watcher.source == REPLAY and seen.watcher.replays_of_step() == 1


def test_captured_calls_and_blocks_are_no_steps(seen: Seen) -> None:
    import gobrrr

    net, _ = make_net()
    with seen.capture():
        for _ in range(6):
            net(torch.ones(2, 4))
            with gobrrr.step():
                pass
    assert seen.sources == []


def test_two_graphs_of_a_step_are_one_step(seen: Seen) -> None:
    forward, backward = Graph(), Graph()
    for _ in range(10):
        forward.replay()
        backward.replay()
    assert seen.watcher.replays_of_step() == 2
    assert 4 <= len(seen.sources) <= 8


def test_graphs_within_steps_of_an_optimizer_end_none(seen: Seen) -> None:
    net, optimizer = make_net()
    accumulated = Graph()
    for _ in range(8):
        for _ in range(6):
            accumulated.replay()
        train(net, optimizer)
    # Which took the steps for replays until the optimizer showed up.
    assert seen.sources == [OPTIMIZER] * len(seen.sources)
    assert len(seen.sources) >= 6 and seen.watcher.source == OPTIMIZER


def test_graphs_within_calls_of_a_module_end_none(seen: Seen) -> None:
    graph = Graph()

    class Graphed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            for _ in range(7):
                graph.replay()
            return x

    net = Graphed()
    for _ in range(8):
        net(torch.ones(2))
    assert set(seen.sources) == {MODULE}


def test_an_evaluation_between_replays_does_not_end_them(seen: Seen) -> None:
    net, _ = make_net()
    graph = Graph()
    for _ in range(3):
        for _ in range(10):
            graph.replay()
        with torch.no_grad():
            net(torch.ones(2, 4))
    assert set(seen.sources) == {REPLAY} and seen.restarts == 0


def test_what_replays_take_the_place_of() -> None:
    assert taken_over_by(REPLAY) == (MODULE, OPTIMIZER)
    assert taken_over_by(OPTIMIZER) == (MODULE, REPLAY)
    assert taken_over_by("") == ()


SCRIPT = """
import sys

import torch

gpu = sys.modules["the_gpu"]
net = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(4)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.ones(8, 8)


def train():
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


for _ in range(WARM):
    train()
graph = gpu.capture(train)
for _ in range(60):
    x.add_(0.0)
    graph.replay()
print("trained")
"""
US = 1000


# Of steps that have been timed before, recorded and profiled before, and none of these.
@pytest.mark.parametrize("warm", [3, 12, 15, 20, 40])
def test_a_script_whose_training_step_is_a_graph_is_diagnosed_by_its_replays(
    warm: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(table=slow(20 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    refuse_while_capturing(gpu)
    graphs: list[Any] = []
    capture = gpu.capture

    def kept(run: Any) -> Any:
        graphs.append(capture(run))
        return graphs[-1]

    monkeypatch.setattr(gpu, "capture", kept)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", simulated.Graph)
    monkeypatch.setitem(sys.modules, "the_gpu", gpu)
    (tmp_path / "train.py").write_text(SCRIPT.replace("WARM", str(warm)))
    monkeypatch.chdir(tmp_path)
    with gpu:
        ended = diagnose_script("train.py", [], steps=6)
    assert "trained" in capsys.readouterr().out
    assert ended.exit.code == 0 and ended.problem is None
    found = ended.diagnosis
    assert found is not None and found.device.kind == "cuda"
    said = found.step.what
    if warm == 40:
        # All was measured before there was a graph.
        assert "A step is one step of the optimizer (SGD `optimizer`)" in said
        return
    assert "A step is one replay of a CUDA graph" in said
    # Its kernels, and the one beside it.
    (told_ns,) = [sum(ns for _, _, ns in graph._kernels) for graph in graphs]
    assert found.step.time_s.median * 1e9 == pytest.approx(told_ns + 20 * US, rel=0.02)
    (beside,) = [row for row in found.ops if row.name == "aten::add_"]
    assert beside.count == 1 and beside.time_s == pytest.approx(20e-6)
    replayed_s = sum(row.time_s for row in found.ops) - beside.time_s
    assert replayed_s * 1e9 == pytest.approx(told_ns, rel=0.02)


def refuse_while_capturing(gpu: Accelerator) -> None:
    """Waits and events raise then, and the program with them."""
    for home, name in ((gpu, "synchronise"), (gpu.machine, "record_event")):
        original = getattr(home, name)

        def refuse(*given: Any, original: Any = original) -> Any:
            if gpu._captured is not None:
                raise RuntimeError("operation not permitted when stream is capturing")
            return original(*given)

        setattr(home, name, refuse)
