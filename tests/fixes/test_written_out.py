"""A softmax and a look-up written out in several ops."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from fixes.recorded_facts import EACH_S, considered, facts_of  # noqa: E402
from gobrrr.fixes.fix import RuledOut  # noqa: E402

pytestmark = pytest.mark.torch
SCORES, TABLE = torch.randn(4, 6), nn.Parameter(torch.randn(20, 3))
IDS = torch.arange(10).reshape(5, 2)


def by_hand(x):
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


def by_hand_safely(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def in_place(x):
    e = x.sub(x.max(-1, keepdim=True).values).exp_()
    return e.div_(e.sum(-1, keepdim=True))


@pytest.mark.parametrize(("softmax", "ops"), [(by_hand, 3), (by_hand_safely, 5), (in_place, 5)])
def test_a_softmax_by_hand_is_one_op_of_torch(softmax, ops):
    found = considered("softmax_by_hand", facts_of(lambda: softmax(SCORES)))
    assert f"{ops} ops compute 1 softmax" in found.because
    # Each op takes a millisecond and one of overhead; torch's what exp alone takes.
    assert found.expected_s == pytest.approx(2 * (ops - 1) * EACH_S)
    assert "test_written_out.py" in found.sources[0]


def test_a_softmax_that_is_trained_is_one_too():
    x = SCORES.clone().requires_grad_()
    facts = facts_of(lambda: by_hand_safely(x).square().sum().backward(), trains=True)
    assert "5 ops" in considered("softmax_by_hand", facts).because


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: x.exp() / (x.exp().sum(-1, keepdim=True) + 1e-6),
        lambda x: x.exp() / x.exp().sum(),
        lambda x: x.exp().sum(-1, keepdim=True) / x.exp(),
        lambda x: x.exp() / (2 * x).exp().sum(-1, keepdim=True),
    ],
)
def test_what_is_no_softmax_is_not_called_one(other):
    assert isinstance(considered("softmax_by_hand", facts_of(lambda: other(SCORES))), RuledOut)


def test_a_softmax_whose_exponentials_are_needed_stays():
    def step():
        e = SCORES.exp()
        return e, e / e.sum(-1, keepdim=True)

    assert isinstance(considered("softmax_by_hand", facts_of(step)), RuledOut)


def one_hot_rows():
    return functional.one_hot(IDS, 20).float()


@pytest.mark.parametrize("bias", [False, True])
def test_one_hot_rows_times_a_table_are_a_look_up(bias):
    layer = nn.Linear(20, 3, bias=bias)
    facts = facts_of(lambda: layer(one_hot_rows()).sum().backward(), trains=True)
    found = considered("look_up", facts)
    # Zeros, their ones, the cast and the product, and the product of the table's gradient.
    assert "5 ops make one-hot rows" in found.because
    assert 0.9 * 10 * EACH_S < found.expected_s < 10 * EACH_S
    with torch.no_grad():
        assert "4 ops" in considered("look_up", facts_of(lambda: one_hot_rows() @ TABLE)).because


def test_one_hot_rows_that_are_used_otherwise_and_other_products_are_none():
    dense = torch.rand(5, 2, 20)

    def used():
        rows = one_hot_rows()
        return rows @ TABLE, rows.sum(0)

    def several():
        rows = torch.zeros(5, 20).scatter_(-1, IDS, 1.0)
        return rows @ TABLE

    with torch.no_grad():
        for step in (used, several, lambda: dense @ TABLE, lambda: one_hot_rows()):
            assert isinstance(considered("look_up", facts_of(step)), RuledOut)


def test_without_a_bandwidth_nothing_is_told():
    with torch.no_grad():
        facts = facts_of(lambda: one_hot_rows() @ TABLE)
    facts = replace(facts, ceilings={"host.dispatches": 1e6})
    assert "bandwidth is unknown" in considered("look_up", facts).reason
