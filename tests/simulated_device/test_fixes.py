"""Fixes that matter on a GPU: each fires where its flaw is, and is ruled out for a true reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gobrrr.diagnosis.facts import Facts  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.fix import Considered, Prospect, RuledOut  # noqa: E402
from gobrrr.fixes.gathering.gather import facts_of  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.timeline.workload import Workload, as_workload  # noqa: E402
from simulated_device import (  # noqa: E402
    NVIDIA,
    Accelerator,
    HostCosts,
    Kernel,
    Op,
    SimulatedBackend,
    slow,
)
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
Make = Callable[[Accelerator], Any]
BY_NAME = {fix.name: fix for fix in FIXES}


def facts_on_gpu(
    monkeypatch: pytest.MonkeyPatch,
    make: Make,
    table: Callable[[Op], tuple[Kernel, ...] | None] = lambda op: None,
    costs: HostCosts | None = None,
) -> Facts:
    """Facts of a step on the simulated device; ``make`` builds the work."""
    gpu = Accelerator(NVIDIA, costs, table)
    SimulatedBackend(gpu).install(monkeypatch)
    work = as_workload(make(gpu))
    with gpu:
        done = diagnose_work(work, Plan(steps=6), ceilings_of(gpu), None, lambda *_: None)
        program = work if isinstance(work, Workload) else None
        facts = facts_of(done.diagnosis, done.analysis, workload=program)
    assert facts.on_gpu and facts.in_order
    return facts


def consider(name: str, facts: Facts) -> Considered:
    return BY_NAME[name].consider(facts)


def fires(name: str, facts: Facts) -> Prospect:
    found = consider(name, facts)
    assert isinstance(found, Prospect), found
    assert 0 < found.high_s <= facts.step_s
    return found


def why_not(name: str, facts: Facts) -> str:
    found = consider(name, facts)
    assert isinstance(found, RuledOut), found
    return found.reason


def convolutions(gpu: Accelerator) -> Any:
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))
    return Workload(model.eval(), torch.randn(2, 8, 16, 16))


def linears(gpu: Accelerator) -> Any:
    return Workload(nn.Sequential(*(nn.Linear(32, 32) for _ in range(10))), torch.randn(4, 32))


def test_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_on_gpu(monkeypatch, convolutions, slow(100 * US))
    assert len(facts.named("aten::convolution")) == 2
    found = fires("channels_last", facts)
    assert "2 convolutions of NCHW tensors take 200 µs" in found.because


def test_channels_last_saves_the_kernels_that_convert_layouts_inside_convolutions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to_nhwc, back = "void cudnn::ops::nchwToNhwcKernel<float>", "nhwcToNchwKernel<float>"

    def table(op: Op) -> tuple[Kernel, ...]:
        kernel = Kernel(NVIDIA.name_of(op), 100 * US)
        # One with such a name outside of a convolution is not the library's.
        if "convolution" not in op.name:
            return (kernel, Kernel(back, 5 * US))
        return Kernel(to_nhwc, 30 * US), kernel, Kernel(back, 20 * US)

    facts = facts_on_gpu(monkeypatch, convolutions, table)
    assert facts.counters["layout_kernels_s"] == pytest.approx(2 * 50e-6, rel=0.01)
    found = fires("channels_last", facts)
    assert (found.low_s, found.expected_s) == (pytest.approx(50e-6), pytest.approx(95e-6))
    assert 100e-6 <= found.high_s <= 300e-6
    told = BY_NAME["channels_last"].considered(facts)
    assert isinstance(told, Prospect)
    # As it was measured in this very step, nothing but a trial's own uncertainty widens it.
    assert told.low_s == pytest.approx(max(50e-6 - 0.03 * facts.step_s, 0.0))


def test_channels_last_where_there_is_no_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_on_gpu(monkeypatch, linears)
    assert why_not("channels_last", facts) == "no 2-d convolution runs here"


def test_channels_last_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(gpu: Accelerator) -> Any:
        work = convolutions(gpu)
        x = work.inputs.to(memory_format=torch.channels_last)
        return Workload(work.model.to(memory_format=torch.channels_last), x)

    facts = facts_on_gpu(monkeypatch, make, slow(100 * US))
    assert why_not("channels_last", facts) == "the inputs are channels-last already"


class Attention(nn.Module):
    """Scores, softmax, sum, one after the other."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, q: Any) -> Any:
        """Of a batch of heads with itself."""
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, q, q)
        scores = torch.softmax(torch.bmm(q[0], q[0].transpose(1, 2)) * 0.125, -1)
        return torch.bmm(scores, q[0])


def test_fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(1, 4, 16, 8)
    facts = facts_on_gpu(monkeypatch, lambda gpu: (Attention(False), q), slow(100 * US))
    found = fires("fused_attention", facts)
    assert found.because.startswith("1 attention writes its scores")
    assert found.sources and "test_fixes.py" in found.sources[0]
    facts = facts_on_gpu(monkeypatch, lambda gpu: (Attention(True), q), slow(100 * US))
    assert why_not("fused_attention", facts).startswith("no attention is computed")


def test_padded_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(gpu: Accelerator) -> Any:
        return nn.Linear(100, 101, bias=False), torch.randn(70, 100)

    facts = facts_on_gpu(monkeypatch, odd, slow(200 * US))
    assert "sizes such as 101" in fires("padded_shapes", facts).because
    facts = facts_on_gpu(monkeypatch, linears, slow(200 * US))
    assert why_not("padded_shapes", facts) == "every matrix product's sizes are multiples of 8"


class Decoder(nn.Module):
    """Four tokens, each from the whole prefix."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16, bias=False)

    def forward(self, x: Any) -> Any:
        """The prefix with four more rows."""
        for _ in range(4):
            x = torch.cat([x, self.layer(x)[-1:]])
        return x


def test_kv_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_on_gpu(monkeypatch, lambda gpu: (Decoder(), torch.randn(32, 16)), slow(100 * US))
    assert "the same modules are called 4 times" in fires("kv_cache", facts).because
    facts = facts_on_gpu(monkeypatch, linears, slow(100 * US))
    assert "inputs that grow" in why_not("kv_cache", facts)


def test_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    # Host-bound: a layer is a view (3 us) and a product (9.5 us), of which the device works 3 us;
    # the graph's own launch takes 5 us.
    facts = facts_on_gpu(monkeypatch, linears, slow(3 * US))
    found = fires("cuda_graph", facts)
    assert found.high_s == pytest.approx(10 * (12.5e-6 - 3e-6) - 5e-6)
    facts = facts_on_gpu(monkeypatch, linears, slow(60 * US))
    assert "gaps between queued kernels" in why_not("cuda_graph", facts)


def captured(gpu: Accelerator) -> Any:
    x = torch.ones(8, 8)

    def many() -> None:
        for _ in range(50):
            torch.mm(x, x)

    graphs: list[Any] = []

    def step() -> None:
        graphs[:] = graphs or [gpu.capture(many)]
        graphs[0].replay()

    return step


def test_a_step_of_cuda_graphs_is_told_to_use_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_on_gpu(monkeypatch, captured, slow(3 * US))
    assert facts.counters["graph_kernels"] == facts.counters["kernels"] == 50
    reason = "launches of CUDA graphs run 50 of the 50 kernels already"
    assert why_not("cuda_graph", facts) == reason
    able = replace(facts, has_compiler=True, compiled=False)
    assert why_not("compile_reduce_overhead", able) == reason


def test_gaps_between_queued_kernels_are_saved_by_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = facts_on_gpu(monkeypatch, linears, slow(3 * US))
    before = fires("cuda_graph", facts)
    leaves = dict(facts.leaves, **{"overhead.kernel_gap": 20e-6})
    after = fires("cuda_graph", replace(facts, leaves=leaves))
    assert after.expected_s == pytest.approx(before.expected_s + 0.8 * 0.92 * 20e-6)
    assert after.high_s == pytest.approx(before.high_s + 0.92 * 20e-6)
    # They are reason enough: a host that is ahead does not spare them.
    alone = dict.fromkeys(facts.leaves, 0.0) | {"overhead.kernel_gap": 20e-6}
    assert "nearly all is saved" in fires("cuda_graph", replace(facts, leaves=alone)).because


def test_cuda_graph_cannot_hold_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reads(nn.Module):
        def forward(self, x: Any) -> Any:
            for _ in range(10):
                x = torch.neg(x)
            return x * x.sum().item()

    facts = facts_on_gpu(monkeypatch, lambda gpu: (Reads(), torch.ones(4)), slow(3 * US))
    assert facts.counters["reads_of_one_value"] == 1
    assert "reads values back" in why_not("cuda_graph", facts)


def reading(gpu: Accelerator) -> Any:
    x = torch.ones(8, 8)

    def step() -> None:
        for _ in range(10):
            torch.mm(x, x)
        x.sum().item()

    return step


def test_remove_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The device is busy for 10 x 30 us; the host needs 95 us, and waits for the rest. What the
    # device waits for is the time from the read to the next kernel.
    facts = facts_on_gpu(monkeypatch, reading, slow(30 * US))
    found = fires("remove_syncs", facts)
    assert found.sources and "reading" not in found.because
    assert found.high_s == pytest.approx(11e-6, abs=6e-6)
    # A host that is slower than its device waits for the copy alone: the call that waits takes 3 us
    # (the one that copies returns before, and is a launch like any other).
    facts = facts_on_gpu(monkeypatch, reading, slow(1 * US))
    assert fires("remove_syncs", facts).high_s == pytest.approx(3e-6)
    facts = facts_on_gpu(monkeypatch, linears, slow(30 * US))
    assert why_not("remove_syncs", facts) == "the host never waits for the device"


def test_what_a_host_is_late_for_elsewhere_is_no_saving_of_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(gpu: Accelerator) -> Any:
        x = torch.ones(8, 8)

        def step() -> None:
            # Two reads in a row, the first of which waits for the device; then the host is late.
            for _ in range(10):
                torch.mm(x, x)
            x.sum().item()
            x.sum().item()
            for _ in range(20):
                gpu.python(20 * US)
                torch.neg(x)

        return step

    facts = facts_on_gpu(
        monkeypatch, make, lambda op: slow(30 * US)(op) if op.name == "aten::mm" else None
    )
    late_s = facts.leaf_s("overhead.python")
    assert late_s > 350e-6
    # Waits of the first read are long, but what follows the second is not theirs.
    assert facts.counters["idle_after_waits_s"] < 0.25 * late_s
    assert fires("remove_syncs", facts).high_s < 0.25 * late_s


@pytest.mark.parametrize("pinned", [False, True])
def test_pinned_memory(pinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(gpu: Accelerator) -> Any:
        batch, weight = gpu.on_host(torch.ones(64, 64)), torch.ones(64, 64)
        return lambda: torch.mm(gpu.to_device(batch, 100 * US, pinned=pinned), weight)

    facts = facts_on_gpu(monkeypatch, make, slow(50 * US))
    if pinned:
        assert why_not("pinned_memory", facts) == "nothing is copied from or to pageable memory"
    else:
        found = fires("pinned_memory", facts)
        assert "pageable memory take 100 µs" in found.because
        # 64 x 64 float32 at 50 GB/s take 0.3 us.
        assert facts.counters["staged_bytes"] == 4 * 64 * 64
        assert found.low_s == pytest.approx(0.7 * (100e-6 - 4 * 64 * 64 / 50e9))
        assert found.expected_s >= 99e-6


def test_settings_of_processors_and_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(gpu: Accelerator) -> Any:
        return nn.Linear(256, 256), torch.randn(256, 256)

    facts = facts_on_gpu(monkeypatch, wide, slow(100 * US))
    for name in ("bf16_matmul", "one_thread", "glibc_tunables"):
        reason = why_not(name, facts)
        assert "CPU" in reason or "GPU" in reason or "processor" in reason, (name, reason)
    # The made-up device has neither TF32 nor fp8.
    assert "rate of tf32" in why_not("tf32", facts)
    assert "fp8" in why_not("fp8", facts)
    assert "1 float32 matrix products take 98.0 µs" in fires("bf16_autocast", facts).because


def test_a_loop_over_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(16, 8)

    def make(gpu: Accelerator) -> Any:
        return lambda: [torch.exp(row) for row in x]

    facts = facts_on_gpu(monkeypatch, make, slow(3 * US))
    found = fires("vectorise_loop", facts)
    assert "runs the same op 16 times" in found.because
    assert found.sources and "test_fixes.py" in found.sources[0]


def test_a_step_in_order_has_shapes_strides_storages_and_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = facts_on_gpu(monkeypatch, linears, slow(30 * US))
    products = facts.named("aten::addmm")
    assert len(products) == 10 and all(op.count == 1 for op in products)
    for op in products:
        _, x, weight = op.call.tensors
        assert (x.shape, weight.shape) == ((4, 32), (32, 32))
        assert weight.strides == (1, 32) and weight.storage is not None
        assert op.time_s == pytest.approx(30e-6) and op.fixed_s == pytest.approx(2e-6)
        # 2 x 4 x 32 x 32, and 4 x 32 of the bias
        assert op.matrix_flops == 2 * 4 * 32 * 32 and op.roof_s is not None
        assert op.module and op.source == ""
    # Each reads what the one before wrote.
    for before, after in pairwise(products):
        assert before.call.outputs is not None
        assert after.call.tensors[1].storage == before.call.outputs[0].storage
