"""Every fix that can help on a GPU, on a step that has its flaw and on one that has not."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.devices import Ceiling, Ceilings  # noqa: E402
from gobrrr.diagnosis.facts import Facts  # noqa: E402
from gobrrr.fixes import generation  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.compilation.compiled_calls import DISPATCH_S  # noqa: E402
from gobrrr.fixes.fix import Prospect, RuledOut  # noqa: E402
from gobrrr.fixes.gathering import gather  # noqa: E402
from gobrrr.fixes.precision import weight_only  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline import diagnosed_with  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.timeline.workload import Workload, as_workload  # noqa: E402
from gobrrr.verification.workloads import as_trial_workload  # noqa: E402
from simulated_device import (  # noqa: E402
    NVIDIA,
    Accelerator,
    Kernel,
    Op,
    SimulatedBackend,
    slow,
)
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
BY_NAME = {fix.name: fix for fix in FIXES}
# What a processor alone can gain from: on a GPU each is ruled out, and says why.
OF_PROCESSORS = {
    "compile_cpp_wrapper": "it applies to the CPU backend only",
    "compile_freezing": "it applies to the CPU backend only",
    "all_threads": "the step runs on a GPU",
    "one_thread": "the step runs on a GPU",
    "glibc_tunables": "on a GPU torch's caching allocator provides fresh outputs",
    "jemalloc": "on a GPU torch's caching allocator provides fresh outputs",
    "tcmalloc": "on a GPU torch's caching allocator provides fresh outputs",
    "bf16_matmul": "it applies to CPUs only",
    "attention_dropout": "on a GPU the fused attention kernel applies dropout",
    "attention_layout": "it applies to calls on CPUs only",
}


def at_the_roof(op: Op) -> tuple[Kernel, ...]:
    """Kernels that reach what the device can do."""
    moved_s = op.bytes_moved / NVIDIA.bytes_per_s
    flops_s = op.flops / NVIDIA.matrix[op.inputs[0][1]] if op.flops else 0.0
    ns = NVIDIA.fixed_ns + round(max(moved_s, flops_s) * 1e9)
    return (Kernel(NVIDIA.name_of(op), ns),)


def by_rates(op: Op) -> None:
    """The vendor's: half of what the device can do."""


@dataclass(frozen=True)
class Made:
    """A step: ``make`` builds it; ``kernels`` are its times, ``rates`` more rates of the device."""

    make: Callable[[Accelerator], Any]
    kernels: Callable[[Op], tuple[Kernel, ...] | None]
    rates: Mapping[str, float] = field(default_factory=dict)


# ---- steps


def inference(model: Any, x: Any) -> Callable[[Accelerator], Any]:
    return lambda gpu: Workload(model().eval(), x())


def linears() -> Any:
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(10)))


def small() -> Any:
    return torch.randn(4, 32)


def trained(
    model: Callable[[], Any] = linears,
    x: Callable[[], Any] = small,
    optimizer: Callable[[Any], Any] = lambda model: torch.optim.SGD(model.parameters(), 0.1),
) -> Callable[[Accelerator], Any]:
    def make(gpu: Accelerator) -> Any:
        net = model()
        return Workload(net, x(), lambda y: y.float().square().mean(), optimizer(net))

    return make


def adamw(**options: Any) -> Callable[[Any], Any]:
    return lambda model: torch.optim.AdamW(model.parameters(), 0.1, **options)


class Chain(nn.Module):
    """Elementwise ops one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Any) -> Any:
        for _ in range(8):
            x = torch.tanh(x * self.scale)
        return x


def long() -> Any:
    return torch.randn(1 << 20)


def compiled(gpu: Accelerator) -> Any:
    x = torch.randn(1 << 16)

    def step() -> Any:
        with gpu.fused("triton_poi_fused_tanh_0", 50 * US):
            return torch.tanh(x * 2)

    return step


def with_gradients_for_nothing(gpu: Accelerator) -> Any:
    model, x = linears(), small()
    return lambda: model(x)


def with_gradients_in_place(gpu: Accelerator) -> Any:
    model, x = linears(), small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    return step


class Checkpointed(nn.Module):
    """Layers whose activations are computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linears()

    def forward(self, x: Any) -> Any:
        return checkpoint(self.layers, x, use_reentrant=False)


class Words(nn.Module):
    """A table of which a batch reads a few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20_000, 16)

    def forward(self, words: Any) -> Any:
        return self.table(words)


def few_words() -> Any:
    return torch.arange(8)


class TwoHeads(nn.Module):
    """Of its two heads one is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        self.other(x)
        return self.one(x)


class Positions(nn.Module):
    """A table of numbers that is computed in each step."""

    def forward(self, x: Any) -> Any:
        return x + torch.sin(torch.arange(32.0) / 3.0)


class Best(nn.Module):
    """Sorts everything for the first few, or asks for those."""

    def __init__(self, sorts: bool) -> None:
        super().__init__()
        self.sorts = sorts

    def forward(self, x: Any) -> Any:
        return torch.sort(x)[0][:, :5] if self.sorts else torch.topk(x, 5)[0]


class Weighted(nn.Module):
    """A softmax, written out or not."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand

    def forward(self, x: Any) -> Any:
        if not self.by_hand:
            return torch.softmax(x, -1)
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)


class Rows(nn.Module):
    """Rows of a table by their numbers, as a product or as a look-up."""

    def __init__(self, product: bool) -> None:
        super().__init__()
        self.product, self.table = product, nn.Embedding(50, 32)

    def forward(self, x: Any) -> Any:
        if not self.product:
            return self.table(x)
        return nn.functional.one_hot(x, 50).float() @ self.table.weight


class Turned(nn.Module):
    """A product with a view, copied or read as it is."""

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies
        self.weight = nn.Parameter(torch.randn(6, 32, 8))

    def forward(self, x: Any) -> Any:
        turned = x.transpose(0, 1)
        return torch.bmm(turned.contiguous() if self.copies else turned, self.weight)


class Recurrent(nn.Module):
    """A cell, called for each time step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(2, 8)
        for t in range(10):
            h, c = self.cell(x[:, t], (h, c))
        return h


def updates_by_hand(gpu: Accelerator) -> Any:
    model, x = linears(), small()

    def step() -> Any:
        model.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.1)

    return step


def two_backward_passes(gpu: Accelerator) -> Any:
    model, x = linears(), small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> Any:
        optimizer.zero_grad()
        y = model(x)
        y.mean().backward(retain_graph=True)
        y.square().mean().backward()
        optimizer.step()

    return step


class Decoder(nn.Module):
    """Four tokens, each from the whole prefix."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16, bias=False)

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = torch.cat([x, self.layer(x)[-1:]])
        return x


class ByHand(nn.Module):
    """Attention, op by op."""

    def forward(self, q: Any) -> Any:
        return torch.bmm(torch.softmax(torch.bmm(q, q.transpose(1, 2)) * 0.125, -1), q)


def images() -> Any:
    return torch.randn(2, 8, 16, 16)


def convolutions() -> Any:
    return nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3))


def reads_back(gpu: Accelerator) -> Any:
    x = torch.ones(8, 8)

    def step() -> None:
        for _ in range(10):
            torch.mm(x, x)
        x.sum().item()

    return step


def copies(pinned: bool) -> Callable[[Accelerator], Any]:
    def make(gpu: Accelerator) -> Any:
        batch, weight = gpu.on_host(torch.ones(64, 64)), torch.ones(64, 64)
        return lambda: torch.mm(gpu.to_device(batch, 100 * US, pinned=pinned), weight)

    return make


def row_by_row(gpu: Accelerator) -> Any:
    x = torch.ones(16, 8)
    return lambda: torch.stack([torch.exp(row) for row in x])


def layer(width: int, **options: Any) -> Callable[[], Any]:
    return lambda: nn.Linear(width, width, **options)


def rows(count: int, width: int, **options: Any) -> Callable[[], Any]:
    return lambda: torch.randn(count, width, **options)


BUSY, WAITING, SLOW = slow(200 * US), slow(3 * US), slow(500 * US)
MORE_RATES = {"matrix.tf32": 3e14, "matrix.float8_e4m3fn": 8e14}
STEPS = {
    "waiting": Made(inference(linears, small), WAITING),
    "busy": Made(inference(linears, small), BUSY),
    "very busy": Made(inference(linears, small), slow(5000 * US)),
    "training": Made(trained(), slow(20 * US)),
    "chain": Made(inference(Chain, long), by_rates),
    "chain in training": Made(trained(Chain, long), by_rates),
    "compiled": Made(compiled, WAITING),
    "one product": Made(inference(layer(512), rows(512, 512)), at_the_roof, MORE_RATES),
    "slow product": Made(inference(layer(256), rows(256, 256)), slow(100 * US), MORE_RATES),
    "slow product, plain device": Made(inference(layer(256), rows(256, 256)), slow(100 * US)),
    "slow product in training": Made(
        trained(layer(256), rows(256, 256)), slow(100 * US), MORE_RATES
    ),
    "bf16": Made(
        inference(layer(1024, dtype=torch.bfloat16), rows(1024, 1024, dtype=torch.bfloat16)),
        slow(100 * US),
    ),
    "float64": Made(
        inference(layer(64, dtype=torch.float64), rows(64, 64, dtype=torch.float64)),
        slow(100 * US),
    ),
    "one row": Made(inference(layer(512, bias=False), rows(1, 512)), slow(30 * US)),
    "odd sizes": Made(inference(lambda: nn.Linear(100, 101), rows(70, 100)), BUSY),
    "gradients for nothing": Made(with_gradients_for_nothing, WAITING),
    "one by one": Made(trained(optimizer=adamw(foreach=False)), WAITING),
    "all together": Made(trained(optimizer=adamw()), WAITING),
    "fused": Made(trained(optimizer=adamw(fused=True)), WAITING),
    "zeros": Made(with_gradients_in_place, slow(20 * US)),
    "checkpointed": Made(trained(Checkpointed), slow(20 * US)),
    "half trained": Made(
        trained(optimizer=lambda model: torch.optim.SGD(model[5:].parameters(), 0.1)),
        slow(20 * US),
    ),
    "few words": Made(trained(Words, few_words), SLOW),
    "few words, Adam": Made(
        trained(Words, few_words, lambda model: torch.optim.Adam(model.parameters())), SLOW
    ),
    "normed": Made(
        inference(lambda: parametrizations.weight_norm(nn.Linear(32, 32)), small), slow(20 * US)
    ),
    "two heads": Made(inference(TwoHeads, small), slow(20 * US)),
    "positions": Made(inference(Positions, small), slow(20 * US)),
    "sorted": Made(inference(lambda: Best(True), rows(3, 1000)), slow(50 * US)),
    "best": Made(inference(lambda: Best(False), rows(3, 1000)), slow(50 * US)),
    "softmax by hand": Made(inference(lambda: Weighted(True), small), slow(50 * US)),
    "softmax": Made(inference(lambda: Weighted(False), small), slow(50 * US)),
    "one-hot": Made(inference(lambda: Rows(True), lambda: torch.arange(50)), slow(50 * US)),
    "look-up": Made(inference(lambda: Rows(False), lambda: torch.arange(50)), slow(50 * US)),
    "turned and copied": Made(
        inference(lambda: Turned(True), lambda: torch.randn(4, 6, 32)), slow(50 * US)
    ),
    "turned": Made(inference(lambda: Turned(False), lambda: torch.randn(4, 6, 32)), slow(50 * US)),
    "cell": Made(inference(Recurrent, lambda: torch.randn(2, 10, 8)), WAITING),
    "by hand": Made(updates_by_hand, WAITING),
    "two backward passes": Made(two_backward_passes, slow(20 * US)),
    "decoder": Made(inference(Decoder, rows(32, 16)), slow(100 * US)),
    "attention by hand": Made(inference(ByHand, lambda: torch.randn(4, 16, 8)), slow(100 * US)),
    "images": Made(inference(convolutions, images), slow(100 * US)),
    "reads": Made(reads_back, slow(30 * US)),
    "pageable": Made(copies(pinned=False), slow(50 * US)),
    "pinned": Made(copies(pinned=True), slow(50 * US)),
    "rows": Made(row_by_row, WAITING),
}
TOO_LITTLE = "could save at most"
# Fix -> the step with its flaw; a step without it, and what the reason begins with.
CASES: dict[str, tuple[str, str, str]] = {
    "compile": ("chain", "compiled", "the program uses torch.compile already"),
    "compile_reduce_overhead": ("waiting", "very busy", TOO_LITTLE),
    "compile_max_autotune": ("busy", "one product", TOO_LITTLE),
    "cuda_graph": ("waiting", "reads", "the step reads values back"),
    "aot_inductor": ("waiting", "training", "an exported program cannot train"),
    "inference_mode": ("gradients for nothing", "training", "the step trains"),
    "fused_optimizer": ("one by one", "fused", "the optimizer is fused already"),
    "foreach_optimizer": ("one by one", "all together", "on a GPU foreach is the default"),
    "set_to_none": ("zeros", "training", "no gradient is filled with zeros"),
    "larger_batch": ("waiting", "very busy", "only "),
    "pinned_memory": ("pageable", "pinned", "nothing is copied from or to pageable memory"),
    "remove_syncs": ("reads", "busy", "the host never waits for the device"),
    "vectorise_loop": ("rows", "busy", "no line repeats the same op within a step"),
    "fused_attention": ("attention by hand", "busy", "no attention is computed as separate"),
    "channels_last": ("images", "busy", "no 2-d convolution runs here"),
    "in_place": ("chain", "chain in training", "the backward pass needs the results"),
    "triton_kernel": ("chain", "busy", "no elementwise op or normalisation to fuse"),
    "bf16_storage": ("slow product", "bf16", "no parameter is stored in float32"),
    "int8_weights": ("one row", "slow product", "no matrix product is bound by reading"),
    "generate_cache": ("decoder", "busy", "no module is called repeatedly on inputs that grow"),
    "kv_cache": ("decoder", "busy", "no module is called repeatedly on inputs that grow"),
    "activation_checkpointing": ("training", "busy", "no activations are kept"),
    "no_checkpointing": ("checkpointed", "training", "the program does not call"),
    "tf32": ("slow product", "slow product, plain device", "this machine's rate of tf32"),
    "bf16_autocast": ("slow product", "bf16", "there is no float32 matrix product"),
    "fp16_autocast": ("slow product", "slow product in training", "float16 gradients underflow"),
    "fp8": ("one product", "slow product, plain device", "no fp8 matrix rate is known"),
    "padded_shapes": ("odd sizes", "busy", "every matrix product's sizes are multiples of 8"),
    "unused_gradients": ("half trained", "training", "every parameter with a gradient is in"),
    "sparse_gradients": ("few words", "few words, Adam", "the optimizer also updates rows"),
    "fixed_parametrizations": ("normed", "busy", "no module recomputes a parametrized weight"),
    "float32": ("float64", "busy", "no op computes in float64"),
    "unread_results": ("two heads", "busy", "every result is read"),
    "constants_each_step": ("positions", "busy", "no op computes from constants"),
    "topk": ("sorted", "best", "nothing is sorted"),
    "layout_copies": ("turned and copied", "turned", "no view is copied that could be read"),
    "fused_rnn": ("cell", "busy", "no recurrent cell is called one time step at a time"),
    "optimizer_by_hand": ("by hand", "training", "the optimizer is torch's own"),
    "softmax_by_hand": ("softmax by hand", "softmax", "no softmax is written as exp, sum and"),
    "look_up": ("one-hot", "look-up", "no one-hot rows are multiplied by a table"),
    "one_backward": ("two backward passes", "training", "no graph is kept for another"),
    **{
        f"memory_budget_{kept}": ("chain in training", "chain", "no activations are kept")
        for kept in (75, 50, 25, 10)
    },
}  # fmt: skip
# Scripts alone have loaders that can be seen.
IN_SCRIPTS = {"loader_workers"}


@functools.cache
def facts_of(name: str) -> Facts:
    """Facts of a step on the simulated device, as the search for fixes gathers them."""
    made = STEPS[name]
    gpu = Accelerator(NVIDIA, table=made.kernels)
    known = ceilings_of(gpu)
    more = {n: Ceiling(n, v, "FLOP/s", "given", "this test") for n, v in made.rates.items()}
    ceilings = Ceilings(known.device, {**known.rows, **more}, known.levels)
    with pytest.MonkeyPatch.context() as patch:
        SimulatedBackend(gpu).install(patch)
        patch.setattr(diagnosed_with, "Plan", lambda recorded=1: Plan(steps=6, recorded=recorded))
        # Of this host, which the simulation slows down: what compiled calls cost is scaled by it.
        patch.setattr(gather, "dispatch_now_s", lambda torch, step_s: DISPATCH_S)
        patch.setattr(gather, "has_compiler", lambda kind: True)
        work = as_trial_workload(made.make(gpu))
        with gpu:
            _, facts = diagnosed_with.diagnose_with(work, (), ceilings, name, lambda *_: None)
    assert facts.on_gpu
    return facts


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fixes ask for beside torch: whether it is here is no matter of the step."""
    find = importlib.util.find_spec
    asked = ("torchao", "transformers")

    def found(name: str, package: str | None = None) -> Any:
        return SimpleNamespace() if name in asked else find(name, package)

    monkeypatch.setattr(weight_only.importlib.util, "find_spec", found)
    monkeypatch.setattr(generation, "find_spec", found)


def test_every_fix_has_a_case() -> None:
    assert {*CASES, *IN_SCRIPTS, *OF_PROCESSORS} == set(BY_NAME)
    assert not set(CASES) & set(OF_PROCESSORS)
    assert {step for flawed, free, _ in CASES.values() for step in (flawed, free)} == set(STEPS)


@pytest.mark.parametrize("name", CASES)
def test_it_fires_where_its_flaw_is(name: str) -> None:
    facts = facts_of(CASES[name][0])
    found = BY_NAME[name].consider(facts)
    assert isinstance(found, Prospect), found
    assert 0 < found.high_s <= facts.step_s and found.low_s <= found.expected_s <= found.high_s
    assert found.because
    for source in found.sources:
        assert "test_every_fix.py" in source, source


@pytest.mark.parametrize("name", CASES)
def test_it_is_ruled_out_where_it_is_not(name: str) -> None:
    _, free, reason = CASES[name]
    found = BY_NAME[name].consider(facts_of(free))
    assert isinstance(found, RuledOut), found
    assert found.reason.startswith(reason), found.reason


@pytest.mark.parametrize("name", OF_PROCESSORS)
def test_what_only_helps_processors_is_ruled_out_on_a_gpu(name: str) -> None:
    found = BY_NAME[name].consider(facts_of("chain"))
    assert isinstance(found, RuledOut), found
    assert found.reason == OF_PROCESSORS[name]
    assert isinstance(BY_NAME[name].consider(facts_of("training")), RuledOut)


LOADING = """
import torch, the_gpu
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 480
    def __getitem__(self, i):
        x = torch.ones(16)
        for _ in range(160):
            x = x * 1.01
        return x

model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), batch_size=8):
    x = the_gpu.to_device(batch, 5000)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_loader_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import sys

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(NVIDIA, table=WAITING)
    SimulatedBackend(gpu).install(monkeypatch)
    monkeypatch.setitem(sys.modules, "the_gpu", gpu)
    (tmp_path / "loading.py").write_text(LOADING)
    monkeypatch.chdir(tmp_path)
    seen: list[Facts] = []

    def keep(diagnosis: Any, analysis: Any, watcher: Any) -> None:
        facts = gather.facts_of(diagnosis, analysis, is_script=True)
        seen.append(gather.with_objects(facts, watcher))

    with gpu:
        ended = diagnose_script("loading.py", [], steps=6, on_analysis=keep)
    assert ended.problem is None
    (facts,) = seen
    # The smallest op was timed by this machine's clock, with the simulator's work in it.
    facts = replace(facts, dispatch_s=DISPATCH_S)
    # 8 items of 160 ops, and of one that makes the first, 4 us each: 5.15 ms and more per batch.
    # Handing one over takes about 1 ms.
    assert facts.leaf_s("overhead.data_loading") > 5e-3
    found = BY_NAME["loader_workers"].consider(facts)
    assert isinstance(found, Prospect), found
    assert found.sources and "loading.py:" in found.sources[0]
    free = BY_NAME["loader_workers"].consider(facts_of("busy"))
    assert isinstance(free, RuledOut)
    assert free.reason == "none of the step is data loading"


def test_facts_of_ops_are_the_same_on_a_gpu_and_on_a_processor() -> None:
    """Names, shapes, strides, types, order, modules, phases and work; times are the device's."""
    for name in ("training", "chain", "images", "cell"):
        on_gpu = facts_of(name)
        work = as_workload(STEPS[name].make(Accelerator(NVIDIA)))
        empty = Ceilings("processor", {}, ())
        done = diagnose_work(work, Plan(steps=6), empty, None, lambda *_: None)
        assert isinstance(work, Workload)
        on_cpu = gather.facts_of(done.diagnosis, done.analysis, workload=work)
        assert not on_cpu.on_gpu and on_gpu.in_order and on_cpu.in_order
        assert [described(op) for op in on_gpu.ops] == [described(op) for op in on_cpu.ops], name


def described(op: Any) -> tuple[Any, ...]:
    tensors = [(t.shape, t.dtype, t.strides) for t in op.call.tensors]
    outputs = [(t.shape, t.dtype, t.strides) for t in op.call.outputs or ()]
    work = op.work and (op.matrix_flops, op.vector_flops, op.bytes_moved, op.op_class)
    return op.name, tensors, outputs, op.module, op.phase, op.source, work
