"""Every operator that the networks of ``benchmarks/zoo.py`` run has a formula."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.models

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = (
    "bert", "gpt2", "llama", "mamba", "vit", "dit", "unet", "unet_text", "resnet50", "lstm",
    "graph", "dlrm",
)  # fmt: skip
# Ranges and selections whose size only their values tell: a trace does not say.
ONLY_THE_RESULT_TELLS = {"aten::arange", "aten::index", "aten::_embedding_bag_backward"}


@pytest.fixture(scope="module")
def zoo() -> Any:
    pytest.importorskip("transformers")
    pytest.importorskip("diffusers")
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import zoo
    finally:
        sys.path.remove(str(BENCHMARKS))
    assert set(NAMES) == set(zoo.MODELS)
    return zoo


def record(network: Any, **optimizer_options: Any) -> list[Any]:
    """The ops of one training step and one inference."""
    import torch

    from gobrrr.capture.op_recorder import OpRecorder

    model, inputs, loss = network
    optimizer = torch.optim.AdamW(model.parameters(), **optimizer_options)
    recorder = OpRecorder()
    with recorder:
        optimizer.zero_grad()
        loss(model(*inputs)).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(*inputs)
    return recorder.stop()


def check(ops: list[Any]) -> None:
    from gobrrr.work import work_of

    unknown = set()
    for op in ops:
        work = work_of(op.call)
        if work is None or work.flops is None or work.bytes_moved is None:
            unknown.add(op.call.name)
            continue
        assert work.unique_bytes is not None
        assert work.unique_bytes <= work.bytes_moved, op.call
        assert 0 <= work.fresh_bytes <= (work.bytes_written or 0), op.call
        assert work.special <= (work.vector_flops or 0), op.call
        traced = work_of(replace(op.call, outputs=None, overload=""))
        if traced is None:
            assert op.call.name in ONLY_THE_RESULT_TELLS, op.call
        else:
            assert traced.flops == work.flops, op.call
    assert unknown == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_a_formula(zoo: Any, name: str) -> None:
    check(record(zoo.build(name, tiny=True)))


@pytest.mark.parametrize("option", ["foreach", "fused"])
def test_optimizers_over_lists_have_formulas(zoo: Any, option: str) -> None:
    check(record(zoo.build("gpt2", tiny=True), **{option: True}))
