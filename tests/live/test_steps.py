"""Where steps end, in real loops of every kind."""

from __future__ import annotations

import os
import threading

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.utils.checkpoint import checkpoint  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.live import steps as watching  # noqa: E402
from gobrrr.live.steps import StepWatcher, TrainingCalls  # noqa: E402
from gobrrr.observe.op_recorder import OpRecorder  # noqa: E402


class Boundaries:
    """Counts boundaries since the meaning of a step last changed."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.restarts = 0

    def __call__(self, source: str, restarted: bool) -> None:
        if restarted:
            self.restarts += 1
            self.sources.clear()
        self.sources.append(source)


@pytest.fixture
def boundaries():  # type: ignore[no-untyped-def]
    call = torch.nn.Module.__call__
    profiler_step = torch.profiler.profile.step
    found = Boundaries()
    watcher = StepWatcher(found)
    watcher.install()
    yield found
    watcher.remove()
    assert torch.nn.Module.__call__ is call
    assert torch.profiler.profile.step is profiler_step
    assert not watching._active


def make_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def test_a_training_step_ends_where_the_optimizer_steps(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(6):
        for _ in range(3):  # gradient accumulation: three forwards are one step
            net(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    # The first step is needed to see that the optimizer repeats.
    assert boundaries.sources == ["optimizer"] * 5


def test_a_gan_steps_once_for_both_optimizers(boundaries) -> None:  # type: ignore[no-untyped-def]
    nets = make_net(), make_net()
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    for _ in range(6):
        for net, optimizer in zip(nets, optimizers):
            net(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    assert boundaries.sources == ["optimizer"] * 5


def test_an_optimizer_made_anew_takes_the_place_of_one_that_is_gone(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net()
    outer, kept = torch.optim.SGD(net.parameters()), []
    for _ in range(8):
        for task in range(3):
            copied = make_net()
            inner = torch.optim.SGD(copied.parameters())
            # Another address than that of the last.
            kept.append(bytearray(100 + 7 * task))
            for _ in range(4):
                copied(torch.randn(2, 4)).sum().backward()
                inner.step()
        net(torch.randn(2, 4)).sum().backward()
        outer.step()
    # A step is a whole iteration: two show the cycle.
    assert boundaries.sources == ["optimizer"] * 7


def test_optimizers_alike_that_live_together_are_told_apart(boundaries) -> None:  # type: ignore[no-untyped-def]
    nets = [make_net() for _ in range(3)]
    optimizers = [torch.optim.SGD(net.parameters()) for net in nets]
    for _ in range(6):
        for net, optimizer in zip(nets, optimizers):
            net(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    assert boundaries.sources == ["optimizer"] * 5


@pytest.mark.parametrize("critics", [2, 3, 5, 8])
def test_a_step_of_several_critics_ends_with_its_generator(critics: int) -> None:
    nets = make_net(), make_net()
    optimizers = [torch.optim.SGD(net.parameters()) for net in nets]
    iteration, ends = [0, ""], []

    def boundary(source: str, restarted: bool) -> None:
        if restarted:
            ends.clear()
        ends.append(tuple(iteration))

    watcher = StepWatcher(boundary)
    watcher.install()
    try:
        for turn in range(8):
            for name in [*["critic"] * critics, "generator"]:
                iteration[:] = turn, name
                net, optimizer = nets[name == "generator"], optimizers[name == "generator"]
                net(torch.randn(2, 4)).sum().backward()
                optimizer.step()
    finally:
        watcher.remove()
    # Two turns show the cycle.
    assert ends == [(turn, "generator") for turn in range(1, 8)]


def test_inference_steps_are_outermost_module_calls(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net().eval()
    with torch.no_grad():
        for _ in range(6):
            net(torch.randn(2, 4))
    # Three calls show the cycle, the third ends it; inner modules never count.
    assert boundaries.sources == ["module"] * 4
    assert not net._forward_hooks or len(net._forward_hooks) == 1


def test_a_model_that_was_only_tried_out_gives_way(boundaries) -> None:  # type: ignore[no-untyped-def]
    tried, served = make_net().eval(), make_net().eval()
    for net, times in ((tried, 5), (served, 20)):
        for _ in range(times):
            net(torch.randn(2, 4))
    assert not tried._forward_hooks and len(served._forward_hooks) == 1
    # Four calls show that the first is silent, three more the new cycle; each call ends a step.
    assert (boundaries.restarts, len(boundaries.sources)) == (1, 20 - 4 - 2)


def test_calls_of_another_model_now_and_then_change_nothing(boundaries) -> None:  # type: ignore[no-untyped-def]
    often, seldom = make_net().eval(), make_net().eval()
    for _ in range(4):
        for net, times in ((often, 9), (seldom, 5)):
            for _ in range(times):
                net(torch.randn(2, 4))
    assert len(often._forward_hooks) == 1 and not seldom._forward_hooks
    assert boundaries.restarts == 0


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.ones(2, 4))]
)
def test_modules_of_torchscript_end_steps(boundaries, make) -> None:  # type: ignore[no-untyped-def]
    net = torch.jit.freeze(make(make_net().eval()))
    for _ in range(20):
        net(torch.randn(2, 4))
    assert boundaries.sources and set(boundaries.sources) == {"module"}
    assert len(boundaries.sources) >= 12


def test_a_loop_in_several_threads_is_noticed() -> None:
    watcher = StepWatcher(lambda source, restarted: None)
    watcher.install()
    try:
        net = make_net().eval()
        for _ in range(2):
            net(torch.ones(2, 4))
            thread = threading.Thread(target=lambda: net(torch.ones(2, 4)))
            thread.start()
            thread.join()
    finally:
        watcher.remove()
    assert watcher.thread_changes == 3


def test_a_loop_goes_on_in_another_thread_where_the_one_before_has_ended() -> None:
    found: list[tuple[bool, bool]] = []

    def boundary(source: str, restarted: bool) -> None:
        found.append((restarted, watcher.moved))
        watcher.moved = False

    watcher = StepWatcher(boundary)
    watcher.install()

    def epoch() -> None:
        for _ in range(3):
            with gobrrr.step():
                pass

    try:
        for _ in range(2):
            thread = threading.Thread(target=epoch)
            thread.start()
            thread.join()
        # This one was there before, and is here still: they take turns.
        with gobrrr.step():
            pass
        thread = threading.Thread(target=epoch)
        thread.start()
        thread.join()
    finally:
        watcher.remove()
    same, goes_on, turns = (False, False), (False, True), (True, False)
    assert found == [same] * 3 + [goes_on, same, same] + [goes_on] + [turns, same, same]


def test_no_step_ends_inside_a_backward_pass(boundaries) -> None:  # type: ignore[no-untyped-def]
    whole, part = make_net(), torch.nn.Linear(4, 4)
    net = torch.nn.Sequential(part, whole)
    optimizer = torch.optim.SGD(part.parameters())
    part.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    for _ in range(8):
        part(torch.randn(2, 4))
        checkpoint(net, torch.randn(2, 4), use_reentrant=False).sum().backward()
    # Two modules by turns; both are called once more in the backward pass, the first inside it.
    assert boundaries.sources and set(boundaries.sources) == {"module"}
    assert boundaries.restarts == 0 and len(boundaries.sources) == 8 - 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_a_forked_process_is_not_watched(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net().eval()
    for _ in range(4):
        net(torch.randn(2, 4))
    child = os.fork()
    if not child:
        left = [torch.nn.Module.__call__.__qualname__, len(net._forward_hooks), watching._active]
        os._exit(0 if left == ["Module._wrapped_call_impl", 0, []] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(net._forward_hooks) == 1 and watching._active


def test_a_step_block_takes_over(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net()
    for _ in range(5):
        with gobrrr.step():
            net(torch.randn(2, 4))
            net(torch.randn(2, 4))
    assert boundaries.sources == ["explicit"] * 5


def test_a_module_that_raises_does_not_unbalance(boundaries) -> None:  # type: ignore[no-untyped-def]
    net = make_net()
    for size in (4, 3, 4, 3, 4, 4, 4):
        try:
            net(torch.randn(2, size))
        except RuntimeError:
            continue
    assert boundaries.sources[-1] == "module"
    assert len(boundaries.sources) >= 2


def test_a_compiled_module_is_not_compiled_again(boundaries) -> None:  # type: ignore[no-untyped-def]
    frames = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        frames.append(graph)
        return graph.forward

    net = torch.compile(make_net(), backend=backend)
    for _ in range(8):
        net(torch.randn(2, 4))
    with OpRecorder() as recorder:
        net(torch.randn(2, 4))
    net(torch.randn(2, 4))
    assert len(frames) == 1
    assert len(boundaries.sources) >= 4
    assert "aten::addmm" in [op.call.name for op in recorder.stop()]


def test_recording_leaves_compiled_code_compiled() -> None:
    calls = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        def compiled(*args):  # type: ignore[no-untyped-def]
            calls.append(1)
            return graph.forward(*args)

        return compiled

    net = torch.compile(make_net(), backend=backend)
    data = torch.randn(2, 4)
    net(data)
    with OpRecorder():
        net(data)
    net(data)
    # Dynamo skips a frame for good if it meets it under a mode that it does not know.
    assert len(calls) == 3


def test_calls_of_a_program_that_trains_are_not_over_before_its_optimizer_steps() -> None:
    calls = TrainingCalls()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert calls.unfinished()
    with torch.no_grad():
        # An evaluation, which one rank may make alone; a program that does nothing else infers.
        assert all(calls.unfinished() for _ in range(200))
        assert not any([calls.unfinished() for _ in range(200)][-100:])
    assert calls.unfinished()
    del optimizer


def test_an_optimizer_that_is_made_after_an_evaluation_is_found() -> None:
    calls, model = TrainingCalls(), torch.nn.Linear(2, 2)
    with torch.no_grad():
        for _ in range(9):
            calls.unfinished()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert calls.unfinished()
    del optimizer


def test_an_optimizer_is_looked_for_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    monkeypatch.setattr(
        "gobrrr.live.steps.gc.get_objects", lambda: searches.append(1) or [object()]
    )
    calls = TrainingCalls()
    assert not any(calls.unfinished() for _ in range(20))
    assert len(searches) < 20


def test_what_watches_calls_hears_at_once_that_an_optimizer_steps() -> None:
    heard: list[str] = []
    watcher = StepWatcher(lambda source, restarted: None)
    watcher.on_other_steps = lambda: heard.append(watcher.source)
    watcher.install()
    try:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(2))
        assert heard == []
        optimizer.step()
        # Its first step is known to be one only when the next has ended.
        assert heard == ["module"]
        for _ in range(3):
            optimizer.step()
        assert heard == ["module"]
    finally:
        watcher.remove()
