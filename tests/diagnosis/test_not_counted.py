"""What a prediction leaves out because it is unknown is said, and is in its interval."""

from __future__ import annotations

import pytest

from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.fix_schema import Prediction
from gobrrr.fixes.fix import Fix, Prospect, RuledOut

_S = 1.0


def facts(unknown_s: float) -> Facts:
    leaves = {"unmodelled": unknown_s, "memory.device.roof": 0.3, "overhead.launch": 0.1}
    return Facts(
        step_s=_S, leaves=leaves, ops=(), in_order=False, ceilings={"memory.dram.copy": 1e9}
    )  # fmt: skip


def considered(leaves, unknown_s, found=None):
    found = found or Prospect(0.1, 0.12, 0.14, "it moves less", own_ends=True)
    return Fix("made", "made", leaves, (), lambda facts: found).considered(facts(unknown_s))


def test_kernels_of_unknown_work_are_said_to_be_left_out_and_may_be_saved():
    known, some = (considered(("memory.device.roof",), s) for s in (0.0, 0.2))
    assert "not counted" not in known.because
    assert "not counted: 200 ms of kernels whose work is unknown" in some.because
    assert some.high_s == pytest.approx(known.high_s + 0.2)
    assert some.low_s == known.low_s


def test_what_is_mostly_unknown_cannot_be_told():
    found = considered(("memory.device.roof",), 0.6)
    told = Prediction(
        low_s=found.low_s, expected_s=found.expected_s, high_s=found.high_s, speedup=1.1
    )
    assert not told.tells(_S)


def test_a_fix_of_the_host_has_nothing_to_do_with_their_work():
    assert "not counted" not in considered(("overhead.python",), 0.6).because


def test_what_is_ruled_out_by_what_is_known_says_what_was_not():
    found = considered(("memory.device.roof",), 0.2, RuledOut("it moves nothing"))
    assert found.reason == "it moves nothing; not counted: 200 ms of kernels whose work is unknown"


@pytest.mark.parametrize("rate", [None, 1e9])
def test_a_bandwidth_that_is_unknown_is_said(rate):
    given = facts(0.0)
    given = Facts(
        step_s=_S, leaves=given.leaves, ops=(), in_order=False,
        ceilings={} if rate is None else {"memory.dram.copy": rate},
    )  # fmt: skip
    fix = Fix(
        "made", "made", ("memory.device.roof",), (), lambda _: Prospect(0.1, 0.12, 0.14, "less")
    )
    found = fix.considered(given)
    assert ("traffic at an unknown bandwidth" in found.because) is (rate is None)
