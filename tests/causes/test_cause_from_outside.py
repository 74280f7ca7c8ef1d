"""A cause of one's own: one object, one place in the list, and it is found and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gobrrr
from gobrrr.causes import catalogue
from gobrrr.causes.cause import Cause, Found, saves

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def find(facts) -> Found | None:
    sines = facts.named("aten::sin")
    if not sines:
        return None
    taken_s = sum(op.time_s for op in sines)
    lines = tuple(dict.fromkeys(op.source for op in sines if op.source))
    return saves(f"{len(sines)} sines", lines, 0.0, taken_s, taken_s)


MINE = Cause(
    name="sines", title="the step computes sines (sin)", words=("sin", "sine"), find=find,
    remedy="x", warns=True,
)  # fmt: skip


def test_a_cause_from_outside_is_one_object(monkeypatch):
    monkeypatch.setattr(catalogue, "CAUSES", (*catalogue.CAUSES, MINE))
    x = torch.ones(1 << 18)
    found = gobrrr.diagnose(lambda: torch.sin(x), progress=False, batch_test=False)
    (finding,) = [f for f in found.findings if f.fix == "sines"]
    assert finding.is_cause and finding.advice
    assert finding.words == ["sin", "sine"] and finding.remedy == "x"
    assert "test_cause_from_outside.py" in finding.sources[0]
    assert "Known cause: the step computes sines (sin)" in found.verdict
    assert "What to do, by what it saves of the wall time" in str(found)
    without = gobrrr.diagnose(lambda: torch.cos(x), progress=False, batch_test=False)
    assert [f for f in without.findings if f.fix == "sines"] == []
    assert "Known cause" not in without.verdict


def test_a_rule_that_fails_costs_nobody_the_diagnosis(monkeypatch):
    def fails(facts):
        raise ZeroDivisionError("of a stranger")

    monkeypatch.setattr(catalogue, "CAUSES", (replace(MINE, find=fails), MINE))
    x = torch.ones(1 << 18)
    found = gobrrr.diagnose(lambda: torch.sin(x), progress=False, batch_test=False)
    assert "sines" in [finding.fix for finding in found.findings]
    assert any("sines" in notice and "ZeroDivisionError" in notice for notice in found.notices)
