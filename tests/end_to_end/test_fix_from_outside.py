"""A fix of one's own: one object, one place in the list, and it is considered, tried and told."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

import gobrrr
from gobrrr.fixes import catalogue
from gobrrr.fixes.fix import FIRST_STEP, Effect, Fix, prospect_or_not
from gobrrr.fixes.light import speed_of_light_with
from gobrrr.measure.summary import Interval
from gobrrr.reports.fix_table import fix_table
from gobrrr.verification.timing import Null, Timed, judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TIMES = 48


class Chain(torch.nn.Module):
    """One multiplication after the other, each over the whole tensor."""

    def forward(self, x):
        for _ in range(TIMES):
            x = x * 1.01
        return x


class Once(torch.nn.Module):
    """The same in one pass."""

    def forward(self, x):
        return x * 1.01**TIMES


def consider(facts):
    saved_s = facts.leaf_s("memory", "overhead") * (1 - 1 / TIMES)
    return prospect_or_not(facts, 0.5 * saved_s, saved_s, saved_s, f"{TIMES} passes become one")


@contextmanager
def apply(work):
    yield replace(work, model=Once())


MINE = Fix(
    name="one_pass", title="One pass over the tensor", leaves=("memory.device",),
    may_change=(FIRST_STEP,), consider=consider, snippet="x = x * 1.01**48", apply=apply,
    effect=Effect(fuses=True),
)  # fmt: skip


def ceilings():
    """Rates that no processor reaches: one pass stays above its roof on any machine."""
    from gobrrr.devices import Ceiling, Ceilings, MemoryLevel

    rates = {"matrix.float32": 50e12, "vector.float32": 50e12, "memory.dram.copy": 2e12}
    return Ceilings(
        "test device",
        {name: Ceiling(name, rate, "FLOP/s", "given", "test") for name, rate in rates.items()},
        (MemoryLevel("dram", None, ((0.0, 2e12),)),),
    )


def test_a_fix_from_outside_is_one_object(monkeypatch):
    monkeypatch.setattr(catalogue, "FIXES", (*catalogue.FIXES, MINE))
    found = gobrrr.fix(
        (Chain(), torch.ones(1 << 20)), only="one_pass", budget=5.0, ceilings=ceilings()
    )
    (finding,) = [f for f in found.findings if f.fix == "one_pass"]
    assert finding.prediction.expected_s > 0
    assert finding.verification.verdict == "faster", finding.verification.reason
    assert found.best.fixes == ["one_pass"]
    assert found.snippet == "# One pass over the tensor\nx = x * 1.01**48"
    # What it declares of its effect is why: by its ops one by one such a step has lost its work.
    facts = found.found.facts
    declared = speed_of_light_with(facts, (MINE,))
    undeclared = speed_of_light_with(facts, (replace(MINE, effect=Effect()),))
    assert undeclared == pytest.approx(TIMES * declared)
    timed = Timed((10 * undeclared,) * 8, (2 * declared,) * 8)
    quiet = Null(Interval(1.0, 0.99, 1.01), True, 10 * undeclared)
    assert judge(timed, quiet, declared)[0] == "faster"
    assert judge(timed, quiet, undeclared)[0] == "eliminated_work"
    (row,) = [row for row in fix_table(found.diagnosis).rows if row.cells[0] == "one_pass"]
    assert row.cells[-1] == "faster"
    assert "one_pass" in str(found)


def test_it_can_be_asked_for_like_any_other(monkeypatch, capsys):
    from gobrrr.cli import main

    monkeypatch.setattr(catalogue, "FIXES", (*catalogue.FIXES, MINE))
    assert main(["fix", "--list"]) == 0
    assert "One pass over the tensor" in capsys.readouterr().out
