"""Which calls of modules are seen, and when."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_module_that_is_called_late_is_seen_where_the_program_has_it_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gobrrr.live.watch import call_watch
    from gobrrr.live.watch.call_watch import CallWatch

    # Another test of this process may have compiled something.
    monkeypatch.setattr(call_watch, "compiler_counters", lambda: {"compiled_graphs": 0})
    net, average = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 4)
    inner, x = net[0], torch.randn(2, 4)
    watch = CallWatch()
    watch.take(threading.get_ident())
    undo = watch.discover()
    net(x)
    watch.settle()
    undo()
    net(x)
    with torch.no_grad():
        average(x)
        average(x)
    calls, _ = watch.take(threading.get_ident())
    try:
        assert [call.key.module for call in calls] == ["Sequential"] * 2 + ["Linear"] * 2
        assert [call.key.alike for call in calls] == [
            (0, True, True), (0, True, True), (-1, True, False), (-1, True, False),
        ]  # fmt: skip
        # A part of another is none of its own, and names of modules are those of before.
        assert not inner._forward_hooks
        assert watch.roots() == {"": net}
    finally:
        watch.remove()
    assert not average._forward_hooks


def test_one_token_after_another_is_the_same_step_whatever_its_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gobrrr.live.watch import call_watch
    from gobrrr.live.watch.call_watch import CallWatch

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(8, 4)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.embedding(tokens).sum() + mask.sum()

    monkeypatch.setattr(call_watch, "compiler_counters", lambda: {"compiled_graphs": 0})
    model, watch = Decoder(), CallWatch()
    watch.take(threading.get_ident())
    undo = watch.discover()
    model(torch.zeros(1, 5, dtype=torch.long), torch.ones(1, 5))
    watch.settle()
    undo()
    with torch.no_grad():
        for given, seen in ((5, 5), (1, 6), (1, 7)):
            model(torch.zeros(1, given, dtype=torch.long), torch.ones(1, seen))
    # In training nothing grows from step to step.
    for seen in (6, 7):
        model(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, seen))
    calls, _ = watch.take(threading.get_ident())
    watch.remove()
    prefill, first, second, *trained = (call.key for call in calls[-5:])
    assert prefill.shapes == ((1, 5), (1, 5))
    assert first == second
    assert first.shapes == ((1, 1),)
    assert trained[0] != trained[1]


WITH_STACK = """
import torch
from gobrrr.live.watch.call_watch import CallWatch

net, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
undo = CallWatch().discover()
with torch.autograd.profiler.profile(record_shapes=True, with_stack=True) as profile:
    net(x)
undo()
"""


def test_a_profiler_of_python_frames_takes_the_module_for_one() -> None:
    """Of the function that is ``Module.__call__`` it takes ``self``, be it an argument or not."""
    # In a process of its own: the tracer looks for that function once.
    done = subprocess.run(
        [sys.executable, "-c", WITH_STACK], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
