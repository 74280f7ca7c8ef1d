"""Results made from the cache are those that PyTorch's own shape rules give."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic import result_cache  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.answers import DeviceAnswers  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

HALVES = frozenset({"float16", "bfloat16"})
GPU = CaptureTarget(
    DeviceAnswers("cuda", "a GPU", 80 << 30, 132, (9, 0), True), Abilities(HALVES, HALVES)
)
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def convolutions():
    model = torch.nn.Sequential(
        *[
            torch.nn.Sequential(
                torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(True)
            )
            for _ in range(3)
        ],
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(2, 8, 8, 8), torch.randint(0, 10, (2,))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def transformer():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    return Workload(
        model, (torch.randn(2, 16, 32),), optimizer=optimizer, loss=lambda out: out.square().mean()
    )


def views_and_writes():
    x = torch.randn(4, 6)

    def step():
        made = []
        for turn in range(3):
            y = torch.zeros(4, 6)
            y[1:3] = x[1:3]
            y.t().mul_(2)
            y += turn * 1.0
            a, b = y.chunk(2, dim=1)
            a.add_(b)
            y.transpose_(0, 1)
            made += [
                y.reshape(-1),
                y.t().view(-1),
                y.unbind(0)[0],
                y.expand(2, 6, 4).sum((1, 2)),
                y[::2] * 1,
                y // 2,
            ]
            made.append(torch.where(y > 0, y, 0).to(torch.float16) @ y.t().half())
            made.append(torch.fft.rfft(y).conj().imag * 2)
            made.append(torch.fft.rfft(y).imag * 2)
            made.append((y * 1, y * 1.0, y * True, y.int() * 1, y.int() * 1.0, y.int() * True))
            z = torch.empty(0)
            z.resize_(3 + turn)
            made.append(z + 1)
        return made

    return step


def recurrent():
    model = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True)
    x = torch.randn(3, 5, 8)

    def step():
        out, _ = model(x)
        out, _ = model(out[..., :8])
        out.sum().backward()

    return step


def multi_tensor():
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    x = torch.randn(2, 4)

    def step():
        for _ in range(2):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    return step


PLAIN, AUTOCAST = CaptureOptions(), CaptureOptions(autocast="bfloat16")
CASES = [
    (convolutions, GPU, AUTOCAST), (convolutions, CPU, PLAIN),
    (transformer, GPU, CaptureOptions(channels_last=True)), (transformer, GPU, AUTOCAST),
    (transformer, CPU, CaptureOptions(channels_last=True)),
    (transformer, GPU, CaptureOptions(inference_mode=True)),
    (views_and_writes, GPU, AUTOCAST), (views_and_writes, CPU, PLAIN),
    (views_and_writes, GPU, CaptureOptions(inference_mode=True)),
    (recurrent, GPU, PLAIN), (multi_tensor, GPU, PLAIN),
]  # fmt: skip


@pytest.mark.parametrize(("make", "target", "options"), CASES)
def test_the_cache_changes_nothing(make, target, options, monkeypatch):
    used = []
    original = result_cache.ResultCache.run

    def plainly(cache, func, args, kwargs, inputs):
        return func(*args, **kwargs)

    def counted(cache, *given):
        used[:] = [cache]
        return original(cache, *given)

    graphs = []
    # When cycles of objects are collected is chance, and what they hold counts as alive till then.
    gc.disable()
    try:
        # PyTorch's own cache, which outlives a capture, is to be filled for both.
        for run in (plainly, counted, plainly):
            gc.collect()
            monkeypatch.setattr(result_cache.ResultCache, "run", run)
            torch.manual_seed(0)
            graphs.append(capture_op_graph(make, target, options))
    finally:
        gc.enable()
    _, with_cache, without = graphs
    assert used[0].hits > len(with_cache.ops) / 4
    # Storages and offsets of tensors are no part of their equality: as text all is compared.
    assert [repr(op.call) for op in with_cache.ops] == [repr(op.call) for op in without.ops]
    # When a storage goes is partly chance: what other tests have left may hold it a little longer.
    # One that went during the construction and that no op uses may be listed or not.
    assert with_cache.peak_memory_bytes == pytest.approx(without.peak_memory_bytes, rel=1e-3)
    born = [
        [
            (number, life.n_bytes, life.born)
            for number, life in graph.lives.items()
            if number in graph.sizes_bytes or life.born >= 0
        ]
        for graph in (with_cache, without)
    ]
    assert born[0] == born[1]
    one, other = (replace(graph, peak_memory_bytes=0, lives={}) for graph in (with_cache, without))
    assert one == other


def test_without_pytorchs_own_parts_every_operator_is_run(monkeypatch):
    """Stand-ins are made by private parts of PyTorch, which a version may not have."""
    plainly = capture_op_graph(multi_tensor, GPU)
    monkeypatch.setattr(torch._C, "_DisableTorchDispatch", None)
    cache = result_cache.ResultCache(object())
    monkeypatch.undo()
    assert not cache._works

    def without(self, mode):
        self.__dict__.update(cache.__dict__)

    monkeypatch.setattr(result_cache.ResultCache, "__init__", without)
    found = capture_op_graph(multi_tensor, GPU)
    assert [op.call for op in found.ops] == [op.call for op in plainly.ops]


def test_numbers_of_another_type_are_another_key():
    """1, 1.0 and True are equal and hash alike; a sum with them has three dtypes."""

    def make():
        x = torch.ones(3, dtype=torch.bool)
        return lambda: [x + 1, x + 1.0, x + True, x + 1, x + 1.0, x + True]

    graph = capture_op_graph(make, GPU)
    added = [op.call.outputs[0].dtype for op in graph.ops if op.call.name == "aten::add"]
    assert added == ["int64", "float32", "bool"] * 2


@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
def test_modules_are_copied_in_the_capture(target):
    """``nn.TransformerEncoder`` copies the layer that it is given, constants and all."""

    def make():
        layer = torch.nn.BatchNorm1d(3)
        layer.table = torch.arange(3)
        copied = copy.deepcopy(layer)
        layer.table.add_(1)
        x = torch.randn(2, 3)

        def step():
            assert copied.table.tolist() == [0, 1, 2]
            return copied(x)

        return step

    graph = capture_op_graph(make, target)
    assert "aten::native_batch_norm" in [op.call.name for op in graph.ops]


def test_a_mask_is_no_index():
    """What depends on data is asked each time, whatever was said before of whole numbers."""
    from gobrrr.timeline.errors import InputError

    def make():
        x = torch.randn(64)
        return lambda: (x[torch.zeros(3, dtype=torch.int64)], x[x > 0])

    with pytest.raises(InputError, match="size-hint"):
        capture_op_graph(make, GPU)
