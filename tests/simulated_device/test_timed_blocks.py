"""Steps timed on a device: those of a full queue, and those that a user's program has alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live.bare_steps import BareSteps  # noqa: E402
from gobrrr.live.steps import StepWatcher  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.timeline.errors import GobrrrError  # noqa: E402
from simulated_device import (  # noqa: E402
    NVIDIA,
    Accelerator,
    HostCosts,
    SimulatedBackend,
    slow,
)
from simulated_device.backend import ceilings_of  # noqa: E402
from simulated_device.test_trouble import lose  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def nothing_compiled() -> dict[str, float]:
    """Whatever this process compiled before."""
    return {"compiled_graphs": 0.0}


@pytest.mark.parametrize("steps", [12, 16])
def test_a_step_that_fills_the_queue_is_not_told_beside_enough_others(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host takes half as long as the device, which waits for it as each block begins.
    x = torch.ones(32, 32)
    gpu = Accelerator(table=slow(1000 * US))
    SimulatedBackend(gpu).install(monkeypatch)

    def step() -> Any:
        gpu.python(500 * US)
        return torch.mm(x, x)

    with gpu:
        found = gobrrr.diagnose(step, steps=steps, progress=False)
    told = found.step.samples_s
    assert found.step.time_s.median == pytest.approx(1e-3, rel=1e-6)
    assert sum(length_s > 1.4e-3 for length_s in told) == (2 if steps == 12 else 0)
    assert len(told) == (12 if steps == 12 else 14)
    assert len(found.step.slow_steps) == (2 if steps == 12 else 0)


TRAINS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.ones(8, 16)
for _ in range(200):
    optimizer.zero_grad()
    model(data).mean().backward()
    optimizer.step()
"""


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.live.session.plain_steps_planned", lambda *_: (20, 30))
    # A simulated step takes longer on the real clock than on its own.
    monkeypatch.setattr("gobrrr.live.bare_steps._MUCH_LONGER", 1e6)


def told(
    watching: int,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str = TRAINS,
    **options: Any,
) -> Diagnosis:
    """Steps of a host that is slower than its device, and that gobrrr makes slower yet."""
    monkeypatch.setattr("gobrrr.live.watch.call_watch.compiler_counters", nothing_compiled)
    gpu = Accelerator(NVIDIA, HostCosts(watching=watching), slow(2 * US))
    gpu.lose = lambda: lose(gpu)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "the_gpu", gpu)
    SimulatedBackend(gpu).install(monkeypatch)
    ceilings = ceilings_of(gpu)
    monkeypatch.setattr("gobrrr.pipeline.measured.load_ceilings", lambda **_: ceilings)
    with gpu:
        if how == "script":
            (tmp_path / "train.py").write_text(script)
            monkeypatch.chdir(tmp_path)
            ended = diagnose_script("train.py", [], **options)
            assert ended.problem is None and ended.diagnosis is not None
            return ended.diagnosis
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
        x = torch.ones(4, 8)
        return gobrrr.diagnose(
            lambda: model(x), ceilings=ceilings, progress=False, batch_test=False, **options
        )


@pytest.mark.parametrize("how", ["script", "function"])
def test_the_step_told_is_that_which_nobody_watches(
    how: str, few_steps: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = told(0, how, monkeypatch, tmp_path)
    watched = told(20 * US, how, monkeypatch, tmp_path)
    for found in (alone, watched):
        assert found.device.kind == "cuda"
        assert not found.step.slow_steps and found.wall is not None and not found.wall.parts
    assert watched.step.time_s.median == pytest.approx(alone.step.time_s.median, rel=0.01)
    assert watched.step.time_s.n == len(watched.step.samples_s)
    assert sum(watched.leaves.values()) == pytest.approx(watched.step.time_s.median)
    assert "Watching what a step calls makes it" in " ".join(watched.notices)
    assert "Watching what a step calls makes it" not in " ".join(alone.notices)


@pytest.mark.parametrize("how", ["script", "function"])
def test_who_asks_for_so_many_steps_has_them_watched(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = told(0, how, monkeypatch, tmp_path, steps=12)
    watched = told(20 * US, how, monkeypatch, tmp_path, steps=12)
    # A call of a module, begun and ended, and a step's end.
    assert watched.step.time_s.median - alone.step.time_s.median == pytest.approx(60e-6, rel=0.01)
    assert watched.step.time_s.n == 12


EVENTFUL = """
import torch, the_gpu
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
other = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.ones(8, 16)
def train():
    optimizer.zero_grad()
    model(data).mean().backward()
    optimizer.step()
for number in range(200):
    train()
    if number == {when}:
        {what}
"""
SURPRISES = {
    "another optimizer": "other.step()",
    "an evaluation": "model.eval(); torch.no_grad()(model)(data); model.train()",
    "a capture": "the_gpu.capture(train)",
    "its end": "raise SystemExit",
    "a device that is gone": "the_gpu.lose()",
}


@pytest.mark.parametrize("when", [18, 70])
@pytest.mark.parametrize("what", SURPRISES)
def test_what_comes_among_steps_that_nobody_watches(
    what: str, when: int, few_steps: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[BareSteps | None] = []
    begin = StepWatcher.begin_bare

    def begins(watcher: StepWatcher, wanted: int, step_s: float) -> BareSteps | None:
        begun.append(begin(watcher, wanted, step_s))
        return begun[-1]

    monkeypatch.setattr(StepWatcher, "begin_bare", begins)
    script = EVENTFUL.format(when=when, what=SURPRISES[what])
    try:
        found = told(20 * US, "script", monkeypatch, tmp_path, script)
    except (GobrrrError, AssertionError):
        assert what in ("its end", "a device that is gone")
        return
    assert any(begun)
    alone = told(0, "script", monkeypatch, tmp_path, EVENTFUL.format(when=-1, what="pass"))
    assert found.step.time_s.median == pytest.approx(alone.step.time_s.median, rel=0.01)
    assert len(found.step.samples_s) == found.step.time_s.n
