"""Subnormal numbers in tensors: a sample of their memory, without an op."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe.op_recorder import OpRecorder  # noqa: E402
from gobrrr.observe.subnormal_values import subnormal_share  # noqa: E402


def test_the_share_of_a_sample():
    decayed = torch.ones(100_000)
    decayed[:50_000] = 1e-40
    assert subnormal_share(decayed) == pytest.approx(0.5, abs=0.01)
    assert subnormal_share(torch.full((1000,), 1e-310, dtype=torch.float64)) == 1.0
    assert subnormal_share(torch.zeros(1000)) == 0.0
    assert subnormal_share(torch.full((1000,), 1.2e-38)) == 0.0


def test_a_view_is_looked_at_from_its_first_element_on():
    held = torch.ones(4000)
    held[2000:] = 1e-40
    assert subnormal_share(held[2000:]) == 1.0
    assert subnormal_share(held[:2000]) == 0.0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(1000, dtype=torch.bfloat16),
        torch.ones(1000, dtype=torch.int64),
        torch.ones(10),
        torch.ones(1000, device="meta"),
        torch.ones(1000).to_sparse(),
        torch.ones(1).expand(100_000),
    ],
)
def test_what_cannot_be_looked_at(tensor):
    assert subnormal_share(tensor) is None


def test_memory_that_is_gone_is_not_read():
    tensor = torch.ones(100_000)
    tensor.untyped_storage().resize_(0)
    assert subnormal_share(tensor) is None


def test_a_batched_tensor_has_no_memory():
    seen = []

    def look(x):
        seen.append(subnormal_share(x))
        return x

    torch.vmap(look)(torch.ones(4, 1000))
    assert seen == [None]


def test_a_recorder_notes_ops_that_meet_them():
    small, usual = torch.full((1000,), 1e-40), torch.ones(1000)
    recorder = OpRecorder()
    with recorder:
        usual.mul(2.0)
        small.mul_(0.5)
        small + 1.0
    found = {fact.op: fact for fact in recorder.subnormal.facts()}
    assert set(found) == {"aten::mul_", "aten::add"}
    assert found["aten::mul_"].share == 1.0
    assert "test_subnormal_values.py" in found["aten::mul_"].line
