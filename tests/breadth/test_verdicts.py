"""What is counted, what is a miss."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.breadth.verdicts import judge_odd_input, judge_program, summarise

pytestmark = pytest.mark.torch


def _row(expected: str = "predicted", **stages: dict) -> dict:
    full = {"build": {"outcome": "runs"}, "forward here": {"outcome": "runs"}}
    full |= {name.replace("_", ", "): record for name, record in stages.items()}
    return {"name": "one", "kind": "program", "expected": expected, "stages": full}


def _predicted(step_s: float = 1.0, **more: object) -> dict:
    return {"outcome": "predicted", "step_s": step_s, **more}


def test_a_prediction_is_right_and_a_refusal_is_a_miss():
    assert judge_program(_row(forward_eager=_predicted()))["misses"] == {}
    refused = {"outcome": "refused", "sentence": "cannot be asked"}
    row = judge_program(_row(forward_eager=refused))
    assert row["misses"] == {"forward, eager": "refused: cannot be asked"}
    assert judge_program(_row("refused", forward_eager=refused))["misses"] == {}
    assert judge_program(_row("predicted or refused", forward_eager=refused))["misses"] == {}


def test_what_must_be_refused_must_not_be_predicted():
    assert judge_program(_row("refused", forward_eager=_predicted()))["misses"]


def test_a_broken_invariant_is_a_miss():
    row = judge_program(_row(forward_eager=_predicted(broken=["MFU 1.2"])))
    assert row["misses"] == {"forward, eager": "MFU 1.2"}


def test_training_below_forward_is_a_miss():
    row = _row(forward_eager=_predicted(2.0), training_eager=_predicted(1.0))
    row["stages"]["training here"] = {"outcome": "runs"}
    assert list(judge_program(row)["misses"]) == ["training, eager"]


def test_what_fails_in_pytorch_is_not_counted():
    row = _row(forward_eager={"outcome": "died", "sentence": "SIGABRT"})
    row["stages"]["forward here"] = {"outcome": "fails in PyTorch", "sentence": "ValueError: no"}
    judged = judge_program(row)
    assert judged["misses"] == {}
    assert judged["not_counted"] == {"forward": "fails in PyTorch: ValueError: no"}
    assert summarise([judged])["died"] == 0


def test_a_death_is_counted():
    judged = judge_program(_row(forward_eager={"outcome": "died", "sentence": "SIGABRT"}))
    summary = summarise([judged])
    assert summary["died"] == 1
    assert summary["programs"]["right"] == 0
    assert summary["programs"]["outcomes"] == {"forward, eager": {"died": 1}}


def _odd(record: dict, **more: object) -> dict:
    return {
        "name": "odd", "kind": "odd input", "expected": ["number"], "stages": {"asked": record},
        **more,
    }  # fmt: skip


def test_odd_inputs():
    assert judge_odd_input(_odd({"outcome": "number"}))["misses"] == {}
    wrong = judge_odd_input(_odd({"outcome": "internal error", "sentence": "KeyError: 3"}))
    assert wrong["misses"] == {"asked": "internal error: KeyError: 3"}
    large = _odd({"outcome": "number", "memory_bytes": 2_000_000_000}, limit_bytes=1_000_000_000)
    assert judge_odd_input(large)["misses"] == {"asked": "took 2.00 GB"}
