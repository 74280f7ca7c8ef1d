"""Attention by hand in whatever spelling: fused with the same numbers, or left alone."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from gobrrr.diagnosis.facts import Facts, OpFact  # noqa: E402
from gobrrr.fixes.attention.attention import find_attention  # noqa: E402
from gobrrr.fixes.attention.graphs import fuse_attention_in_graph  # noqa: E402
from gobrrr.fixes.changes import changes_of  # noqa: E402
from gobrrr.observe.op_recorder import OpRecorder  # noqa: E402
from gobrrr.work import work_of  # noqa: E402

pytestmark = pytest.mark.torch
NI, SCALE = -math.inf, 0.25
MADE = changes_of("fused_attention")
_RANDOM = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, generator=_RANDOM)


Q, K, V = (draw(2, 3, 12, 8) for _ in range(3))
Q3, K3, V3 = (part.flatten(0, 1) for part in (Q, K, V))
BIAS, BIAS3 = draw(3, 12, 12), draw(6, 12, 12)
LATER = torch.ones(12, 12).triu(1).bool()
MASK3 = torch.rand(6, 12, 12, generator=_RANDOM) < 0.3
MASK3[..., 0] = False
STEPS = torch.arange(12)[None] - torch.arange(12)[:, None]
ROOT = torch.tensor(3.0)


def s():
    return Q @ K.mT * SCALE


def s3():
    return torch.bmm(Q3, K3.mT) * SCALE


def by(*equations, swapped=False):
    scores, mixing = equations
    q, k = (K, Q) if swapped else (Q, K)
    weights = (torch.einsum(scores, q, k) * SCALE).softmax(-1)
    return torch.einsum(mixing, *((V, weights) if swapped else (weights, V)))


SPELLINGS = {
    "number first": lambda: (SCALE * (Q @ K.mT)).softmax(-1) @ V,
    "dimension from the front": lambda: F.softmax(s(), dim=3) @ V,
    "bias and mask": lambda: (s() + BIAS).masked_fill(LATER, NI).softmax(-1) @ V,
    "bias and finite mask": lambda: (s() + BIAS).masked_fill(LATER, -1e9).softmax(-1) @ V,
    "mask, then bias": lambda: (s().masked_fill(LATER, NI) + BIAS).softmax(-1) @ V,
    "mask, then scale": lambda: ((Q @ K.mT).masked_fill(LATER, -1e9) * SCALE).softmax(-1) @ V,
    "bias, then scale": lambda: ((Q @ K.mT + BIAS) * SCALE).softmax(-1) @ V,
    "bias first": lambda: (BIAS + s()).softmax(-1) @ V,
    "where masked": lambda: torch.where(LATER, NI, s()).softmax(-1) @ V,
    "where kept": lambda: s().where(~LATER, NI).softmax(-1) @ V,
    "a number of a tensor": lambda: torch.where(~LATER, s(), torch.tensor(-1e9)).softmax(-1) @ V,
    "minus": lambda: (s() - BIAS).softmax(-1) @ V,
    "taken from": lambda: (BIAS - s()).softmax(-1) @ V,
    "cast": lambda: s().float().softmax(-1).to(V.dtype) @ V,
    "softmax of a type": lambda: F.softmax(s(), dim=-1, dtype=torch.float32) @ V,
    "three dimensions and bias": lambda: (s3() + BIAS3).softmax(-1).bmm(V3),
    "three dimensions and mask": lambda: s3().masked_fill(MASK3, NI).softmax(-1).bmm(V3),
    "and a finite one": lambda: s3().masked_fill(MASK3, -1e9).softmax(-1).bmm(V3),
    "two dimensions": lambda: (Q3[0] @ K3[0].mT).softmax(-1) @ V3[0],
    "named out of order": lambda: torch.matmul(
        other=V, input=torch.matmul(other=K.mT, input=Q).softmax(-1)
    ),
    "five dimensions": lambda: (
        (Q[None] @ K[None].mT).masked_fill(LATER.expand(3, 12, 12), NI).softmax(-1) @ V[None]
    ),
    "keys that all share": lambda: (Q3 @ K3[0].mT + BIAS3).softmax(-1) @ V3[0],
    "values that all share": lambda: s().masked_fill(MASK3[:3], -1e9).softmax(-1) @ V3[0],
    "integers": lambda: (s() + STEPS).softmax(-1) @ V,
    "truth values": lambda: (s() + LATER).softmax(-1) @ V,
    "alpha": lambda: torch.add(s(), BIAS, alpha=2).softmax(-1) @ V,
    "alpha of the scores": lambda: torch.sub(BIAS, s(), alpha=2).softmax(-1) @ V,
    "a number": lambda: (s() + 1.0).softmax(-1) @ V,
    "a number and a mask": lambda: (s() - 3.0).masked_fill(LATER, -1e5).softmax(-1) @ V,
    "in place": lambda: (Q @ K.mT).mul_(SCALE).add_(BIAS).masked_fill_(LATER, NI).softmax(-1) @ V,
    "baddbmm": lambda: torch.baddbmm(BIAS3, Q3, K3.mT, beta=2, alpha=SCALE).softmax(-1).bmm(V3),
    "two masks": lambda: s().masked_fill(LATER, NI).masked_fill(LATER[3], NI).softmax(-1) @ V,
    "masks of two kinds": lambda: (
        s().masked_fill(LATER, NI).masked_fill(LATER[3], -1e9).softmax(-1) @ V
    ),
    "one row": lambda: (s() + BIAS[0, 0]).softmax(-1) @ V,
    "one row of a mask": lambda: s().masked_fill(LATER[-3], NI).softmax(-1) @ V,
    "scale of a tensor": lambda: (Q @ K.mT / torch.tensor(3.0)).softmax(-1) @ V,
    "scale that varies": lambda: (Q @ K.mT / ROOT + BIAS).softmax(-1) @ V,
    "einsum": lambda: by("bhid,bhjd->bhij", "bhij,bhjd->bihd"),
    "einsum the other way": lambda: by("bhjd,bhid->bhij", "bhjd,bhij->bhid", swapped=True),
    "einsum, then product": lambda: (torch.einsum("bhid,bhjd->bhij", Q, K)).softmax(-1) @ V,
    "product, then einsum": lambda: torch.einsum("bhij,bhjd->bihd", s().softmax(-1), V),
}


def fused(function, *inputs):
    """(What it computes with attention fused, how many were)."""
    torch._dynamo.reset()
    before = MADE()
    result = torch.compile(function, backend=fuse_attention_in_graph)(*inputs)
    return result, MADE() - before


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_is_fused_and_computes_the_same(spelling):
    with torch.no_grad():
        expected = SPELLINGS[spelling]()
        found, count = fused(SPELLINGS[spelling])
    assert count == 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def both(q, k):
    scores = q @ k.mT
    return scores.softmax(-1) @ k + scores.sum()


def changed_between(q, k):
    scores = q @ k.mT
    k.add_(1)
    return scores.softmax(-1) @ k


LEFT_ALONE = {
    "scores read elsewhere": lambda: both(Q, K),
    "keys changed on the way": lambda: changed_between(Q, K.clone()),
    "rounded": lambda: torch.div(Q @ K.mT, 2, rounding_mode="floor").softmax(-1) @ V,
    "higher precision": lambda: s().softmax(-1, dtype=torch.float64).float() @ V,
    "lower precision": lambda: s().half().softmax(-1).float() @ V,
    "over the queries": lambda: s().softmax(-2) @ V,
    "a fill that counts": lambda: s().masked_fill(LATER, -3.0).softmax(-1) @ V,
    "a fill that is scaled up to count": lambda: (
        (s().masked_fill(LATER, -1e5) * 1e-4).softmax(-1) @ V
    ),
    "a sign that is not known": lambda: (s().masked_fill(LATER, NI) * ROOT).softmax(-1) @ V,
    "a scale for each key": lambda: (s() * BIAS).softmax(-1) @ V,
    "larger than the scores": lambda: (s() + draw(2, 1, 1, 12, 12)).softmax(-1) @ V,
    "weights that drop": lambda: F.dropout(s().softmax(-1), 0.5) @ V,
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_not_understood_is_left_alone(name):
    with torch.no_grad():
        _, count = fused(LEFT_ALONE[name])
    assert count == 0


@pytest.mark.parametrize("fill", [NI, -1e9])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_rows_that_are_filled_whole_stay_what_they_were(fill, bias):
    mask = LATER.clone()
    mask[5] = True

    def attend(q, k, v):
        scores = q @ k.mT if bias is None else q @ k.mT + bias
        return scores.masked_fill(mask, fill).softmax(-1) @ v

    with torch.no_grad():
        expected = attend(Q, K, V)
        found, count = fused(attend, Q, K, V)
    assert count == 1
    assert bool(expected[..., 5, :].isnan().all()) == (fill == NI)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("fill", [None, NI, -1e9])
def test_gradients_reach_query_key_value_bias_and_scale(fill):
    parts = [part.clone().requires_grad_() for part in (Q, K, V, BIAS, torch.tensor(0.3))]
    mask = LATER.clone()
    mask[5] = fill == -1e9

    def attend(q, k, v, bias, scale):
        scores = scale * (q @ k.mT) + bias
        return (scores if fill is None else scores.masked_fill(mask, fill)).softmax(-1) @ v

    expected = torch.autograd.grad(attend(*parts).square().sum(), parts)
    result, count = fused(attend, *parts)
    assert count == 1
    found = torch.autograd.grad(result.square().sum(), parts)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_three_dimensions_run_the_fused_kernel():
    with torch.no_grad():
        torch._dynamo.reset()
        run = torch.compile(SPELLINGS["three dimensions and mask"], backend=fuse_attention_in_graph)
        run()
        with OpRecorder() as recorder:
            run()
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in {
        op.call.name for op in recorder.ops
    }


def test_a_view_of_the_result_is_one_still():
    def attend(q, k, v):
        return ((q @ k.mT).softmax(-1) @ v).view(-1, 8)

    with torch.no_grad():
        found, count = fused(attend, Q, K, V)
        torch.testing.assert_close(found, attend(Q, K, V))
    assert count == 1


def test_what_has_an_effect_and_no_reader_is_kept():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, q, k, v):
            self.calls.add_(1)
            return (q @ k.mT).softmax(-1) @ v

    model = Counts()
    with torch.no_grad():
        _, count = fused(model, Q, K, V)
    assert count == 1
    assert model.calls == 1


def test_a_bias_of_float32_keeps_its_precision_beside_bfloat16():
    parts = [part.bfloat16() for part in (Q, K, V)]
    slopes = -100.03 * STEPS.abs().float()

    def attend(q, k, v):
        return (q @ k.mT + slopes).softmax(-1).to(v.dtype) @ v

    with torch.no_grad():
        expected = attend(*parts)
        found, count = fused(attend, *parts)
        torch.testing.assert_close(found, expected)
        assert count == 1
        with torch.autocast("cpu", torch.bfloat16):
            _, count = fused(attend, *parts)
    assert count == 0


class Late(nn.Module):
    """Projects its values after the softmax."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(8, 8)

    def forward(self, q, k):
        weights = (q @ k.mT * SCALE + BIAS).softmax(-1)
        return weights @ self.value(k)


def test_attention_is_found_along_its_data_whatever_is_computed_meanwhile():
    model = Late()
    with torch.no_grad(), OpRecorder() as recorder:
        model(Q, K)
    ops = tuple(OpFact(op.call, kernel_s=1e-3) for op in recorder.ops)
    (run,) = find_attention(Facts(step_s=1.0, leaves={}, ops=ops))
    names = [op.name.removeprefix("aten::") for op in run]
    assert names[0] == names[-1] == "bmm"
    assert "_softmax" in names and "addmm" not in names
    # What the fused function does not compute is no attention that it could replace.
    with torch.no_grad(), OpRecorder() as recorder:
        (Q @ K.mT).tanh().softmax(-1) @ V
    ops = tuple(OpFact(op.call, work_of(op.call), kernel_s=1e-3) for op in recorder.ops)
    assert not find_attention(Facts(step_s=1.0, leaves={}, ops=ops))
    # Weights that are only looked at lead to no product.
    with torch.no_grad(), OpRecorder() as recorder:
        (Q @ K.mT).softmax(-1).sum()
        Q @ V.mT
    ops = tuple(OpFact(op.call, kernel_s=1e-3) for op in recorder.ops)
    assert not find_attention(Facts(step_s=1.0, leaves={}, ops=ops))


def causal_by_triu():
    mask = torch.full(s().shape[-2:], -1e9)
    mask.triu_(1)
    return (s() + mask).softmax(-1) @ V


def open_by_assignment():
    mask = torch.full(s().shape[-2:], -1e9)
    mask[:, :3] = 0
    return (s() + mask).softmax(-1) @ V


def open_by_a_view():
    mask = torch.full(s().shape[-2:], -1e9)
    mask[:, :3].zero_()
    return (s() + mask).softmax(-1) @ V


def filled_scale():
    scale = torch.tensor(1.0)
    scale.fill_(0.1)
    return (s() * scale).softmax(-1) @ V


@torch.library.custom_op("gobrrr_tests::twice_", mutates_args={"x"})
def twice_(x: torch.Tensor) -> None:
    x.mul_(2)


def changed_by_an_operator():
    q = Q.clone()
    scores = q @ K.mT
    twice_(q)
    return scores.softmax(-1) @ V


def changed_by_an_overload():
    q = Q.clone()
    scores = q @ K.mT
    torch.ops.aten.mul_.Tensor(q, 2.0)
    return scores.softmax(-1) @ V


@pytest.mark.parametrize(
    "step",
    [
        causal_by_triu, open_by_assignment, open_by_a_view, filled_scale, changed_by_an_operator,
        changed_by_an_overload,
    ],
)  # fmt: skip
def test_what_is_written_before_it_is_read_counts(step):
    with torch.no_grad():
        expected = step()
        found, _ = fused(step)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
