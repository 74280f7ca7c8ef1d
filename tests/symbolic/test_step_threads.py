"""Threads of a captured step: their operators are kept, and whatever they do the process lives."""

from __future__ import annotations

import concurrent.futures
import queue
import signal
import threading
import time
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.answers import DeviceAnswers  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

pytestmark = pytest.mark.torch

GPU = CaptureTarget(
    DeviceAnswers("cuda", "NVIDIA H100 80GB HBM3", 80 * 10**9, 132, (9, 0), True),
    Abilities(frozenset(), frozenset()),
)


def capture(step: object) -> OpGraph:
    return capture_op_graph(lambda: step, GPU)


def count(graph: OpGraph) -> Counter[str]:
    return Counter(op.call.name.removeprefix("aten::") for op in graph.ops)


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(8, 8)


def test_a_thread_of_the_step_is_captured(model: nn.Module) -> None:
    def step() -> object:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(model(torch.randn(4, 8))))
        thread.start()
        thread.join()
        return made[0] * 2

    graph = capture(step)
    assert count(graph)["addmm"] == 1
    assert any("a thread of its own" in notice for notice in graph.notices)
    # Afterwards threads run for real, and there is no device again.
    assert threading.Thread.start.__qualname__ == "Thread.start"
    assert not torch.cuda.is_available()
    assert type(model.weight) is nn.Parameter


def test_threads_that_prefetch_and_copy(model: nn.Module) -> None:
    def step() -> torch.Tensor:
        batches: queue.Queue[torch.Tensor | None] = queue.Queue(1)

        def fill() -> None:
            for _ in range(3):
                batches.put(torch.randn(4, 8).cuda(non_blocking=True))
            batches.put(None)

        threading.Thread(target=fill).start()
        total = torch.zeros((), device="cuda")
        while (batch := batches.get()) is not None:
            total = total + model.cuda()(batch).sum()
        return total

    graph = capture(step)
    assert count(graph)["addmm"] == 3
    copies = [op for op in graph.ops if op.call.name == "aten::_to_copy"]
    assert len(copies) == 3


def test_a_pool_that_was_there_before(model: nn.Module) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()

        def step() -> torch.Tensor:
            return sum(f.result().sum() for f in [pool.submit(model, torch.randn(4, 8))] * 1)

        assert count(capture(step))["addmm"] == 1
        # The pool's threads are as before.
        assert type(pool.submit(model, torch.ones(1, 8)).result()) is torch.Tensor


def test_a_thread_that_was_there_before_gets_a_tensor(model: nn.Module) -> None:
    asked: queue.Queue[torch.Tensor | None] = queue.Queue()
    answers: queue.Queue[torch.Tensor] = queue.Queue()

    def serve() -> None:
        while (tensor := asked.get()) is not None:
            answers.put(model(tensor))

    thread = threading.Thread(target=serve)
    thread.start()

    def step() -> torch.Tensor:
        asked.put(torch.randn(4, 8))
        return answers.get() * 2

    found = count(capture(step))
    assert (found["randn"], found["addmm"], found["mul"]) == (1, 1, 1)
    asked.put(None)
    thread.join(10)


def test_a_thread_that_outlives_the_step_is_said(model: nn.Module) -> None:
    over = threading.Event()
    results = []

    def step() -> torch.Tensor:
        def work() -> None:
            over.wait(30)
            results.append(model(torch.ones(1, 8)))

        threading.Thread(target=work).start()
        return model(torch.randn(4, 8))

    graph = capture(step)
    assert any("does not wait for all of its threads" in notice for notice in graph.notices)
    over.set()
    deadline = time.monotonic() + 10
    while not results and time.monotonic() < deadline:
        time.sleep(0.01)
    assert type(results[0]) is torch.Tensor


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_what_cannot_be_captured_in_a_thread_wakes_the_step(
    handler: signal.Handlers, request: pytest.FixtureRequest
) -> None:
    # A shell's background jobs ignore the signal from the start.
    before = signal.signal(signal.SIGINT, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def step() -> torch.Tensor:
        made: queue.Queue[torch.Tensor] = queue.Queue()
        threading.Thread(target=lambda: made.put(torch.randn(4, 8).nonzero())).start()
        return made.get() * 2

    with pytest.raises(InputError, match="--size-hint"):
        capture(step)
    assert signal.getsignal(signal.SIGINT) is handler


def test_data_parallel_on_one_device(model: nn.Module) -> None:
    parallel = nn.DataParallel(model.cuda() if torch.cuda.is_available() else model)

    def step() -> None:
        parallel(torch.randn(4, 8).cuda()).sum().backward()

    assert count(capture(step))["mm"] >= 1


@pytest.mark.parametrize("made_before", [True, False])
def test_a_data_loader_with_workers(model: nn.Module, made_before: bool) -> None:
    data = TensorDataset(torch.randn(8, 8))
    loader = DataLoader(data, batch_size=4, num_workers=1)
    batches = iter(loader) if made_before else None

    def step() -> torch.Tensor:
        (batch,) = next(batches or iter(loader))
        return model(batch.cuda())

    assert count(capture(step))["addmm"] == 1
