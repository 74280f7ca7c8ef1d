"""Every op of real networks has a formula; products count what flop_counter counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.work import work_of

torch = pytest.importorskip("torch")
for _library in ("transformers", "diffusers"):
    pytest.importorskip(_library)
pytestmark = [pytest.mark.torch, pytest.mark.models]


from benchmarks import zoo  # noqa: E402

OPTIMIZERS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True},
}  # fmt: skip


def record(network: Any, optimizers: dict[str, dict[str, bool]]) -> list[StepOp]:
    """Inference in both modes, and a training step with each optimizer."""
    model, inputs, loss = network
    with OpRecorder({"": model}) as recorder:
        model.eval()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                model(*inputs)
        model.train()
        for options in optimizers.values():
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **options)
            loss(model(*inputs)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return recorder.ops


@pytest.fixture(scope="module", params=list(zoo.MODELS))
def recorded(request: pytest.FixtureRequest) -> tuple[str, list[StepOp]]:
    # One optimizer op is like another: all three kinds run on two networks.
    kinds = OPTIMIZERS if request.param in ("gpt2", "resnet50") else {"loop": OPTIMIZERS["loop"]}
    return request.param, record(zoo.build(request.param, tiny=True), kinds)


def test_every_op_has_a_formula(recorded: tuple[str, list[StepOp]]) -> None:
    missing = Counter()
    for op in recorded[1]:
        work = work_of(op.call)
        if work is None or work.flops is None or work.bytes_moved is None:
            missing[op.call.name] += 1
    assert missing == Counter()


def test_amounts_fit_together(recorded: tuple[str, list[StepOp]]) -> None:
    for op in recorded[1]:
        work = work_of(op.call)
        assert work is not None and work.bytes_moved is not None and work.unique_bytes is not None
        assert 0 <= work.unique_bytes <= work.bytes_moved, op.call
        assert 0 <= work.fresh_bytes <= (work.bytes_written or 0), op.call
        assert 0 <= work.special <= (work.vector_flops or 0), op.call


def test_ops_belong_to_a_phase_and_a_module(recorded: tuple[str, list[StepOp]]) -> None:
    name, ops = recorded
    phases = Counter(op.phase for op in ops)
    assert phases[Phase.FORWARD] and phases[Phase.BACKWARD] and phases[Phase.OPTIMIZER]
    products = [op for op in ops if op.call.name in ("aten::mm", "aten::addmm")]
    assert [op.source for op in products if not op.module] == [], name


# Their results' dtype, or how many rows a bag has, is not among the arguments.
ROUGH_WITHOUT_OUTPUTS = {"aten::_embedding_bag", "aten::mkldnn_rnn_layer"}


def test_traces_without_outputs_say_the_same(recorded: tuple[str, list[StepOp]]) -> None:
    """Profiler traces record inputs only: what an op writes must follow from them."""
    differing = Counter()
    for op in recorded[1]:
        name = op.call.name
        full, bare = work_of(op.call), work_of(replace(op.call, outputs=None))
        assert full is not None
        if bare is None or bare.bytes_moved is None:
            differing[f"{name}: unknown"] += 1
            continue
        same_bytes = bare.bytes_moved == full.bytes_moved or name in ROUGH_WITHOUT_OUTPUTS
        differing[name] += bare.flops != full.flops or not same_bytes
    assert +differing == Counter()


# Attention, convolutions and products alike; what flop_counter counts as zero is said beside.
COUNTED_BY_FLOP_COUNTER = {
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution",
    "aten::convolution_backward",
}  # fmt: skip


# Not Mamba: flop_counter counts the weight gradient of its depthwise convolution as a dense one.
@pytest.mark.parametrize("name", ["llama", "dit", "resnet50", "lstm", "graph", "dlrm"])
def test_matrix_flops_are_those_of_flop_counter(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs, loss = zoo.build(name, tiny=True)
    model.eval()
    with FlopCounterMode(display=False) as counter:
        loss(model(*inputs)).backward()
    with OpRecorder() as recorder:
        loss(model(*inputs)).backward()
    ours = Counter[str]()
    for op in recorder.ops:
        work = work_of(op.call)
        assert work is not None
        if work.matrix_flops:
            ours[op.call.name] += int(work.matrix_flops)
    theirs = Counter({
        f"aten::{str(op).rpartition('.')[2]}": flops
        for op, flops in counter.get_flop_counts().get("Global", {}).items()
    })  # fmt: skip
    assert {op: n for op, n in ours.items() if op in COUNTED_BY_FLOP_COUNTER} == {
        op: n for op, n in theirs.items() if n and op in COUNTED_BY_FLOP_COUNTER
    }
    # What it leaves out: attention on a CPU, recurrent layers, matrix-vector products.
    beyond = {op for op in ours if op not in COUNTED_BY_FLOP_COUNTER}
    assert beyond <= {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::mv", "aten::dot",
    }, beyond  # fmt: skip
