"""What the fixes promise before a trial: which are findings, and what a search would try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Finding
from gobrrr.fixes.fix import CODE, Effect, Fix, Prospect, RuledOut
from gobrrr.fixes.prospects import promising


def fix(name: str, saved_s: float, **more: object) -> Fix:
    def consider(facts: Facts) -> Prospect:
        return Prospect(saved_s, saved_s, saved_s, "sums", own_ends=True)

    return Fix(name, name, ("overhead.python",), (), consider, **more)  # type: ignore[arg-type]


def install() -> object:
    raise AssertionError("nothing is applied")


@pytest.fixture
def facts() -> Facts:
    leaves = dict.fromkeys(LEAVES, 0.0) | {"overhead.python": 1.0}
    return Facts(step_s=1.0, leaves=leaves, ops=(), in_order=False, is_script=True)


def refuse(fix: Fix, error: Exception) -> None:
    raise AssertionError(fix.name)


def test_of_what_excludes_each_other_the_most_promising_is_told(facts: Facts) -> None:
    fixes = [
        fix("graph", 0.2, in_script=install, claims=(CODE,)),
        fix("compile", 0.5, in_script=install, claims=(CODE,), effect=Effect(fuses=True)),
        fix("compile_more", 0.6, in_script=install, variant_of="compile"),
        fix("by_hand", 0.1, snippet="code"),
    ]
    fused = Finding(fix="fusion", prediction=None, because="")
    findings, untried = promising(fixes, facts, [fused], refuse)
    assert [found.fix for found in findings] == ["compile", "by_hand"]
    assert findings[0].verify == "gobrrr fix --only compile" == fused.verify
    assert findings[1].advice and findings[1].remedy == "code" and not findings[1].verify
    # All that a search would try of itself.
    assert untried.fixes == ["compile_more", "compile", "graph"]


def test_a_rule_that_fails_is_told_and_the_others_stand(facts: Facts) -> None:
    def broken(facts: Facts) -> RuledOut:
        raise ZeroDivisionError

    failed = []
    fixes = [replace(fix("bad", 0.1), consider=broken), fix("good", 0.2, in_script=install)]
    findings, untried = promising(fixes, facts, [], lambda fix, error: failed.append(fix.name))
    assert failed == ["bad"]
    assert [found.fix for found in findings] == untried.fixes == ["good"]
