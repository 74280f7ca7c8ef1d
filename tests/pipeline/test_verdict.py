"""What a verdict says: the line, the sides of the ceiling, and what helps."""

from __future__ import annotations

import pytest

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.schema import Finding, IdleRow, Prediction, Spread
from gobrrr.diagnosis.storage import load
from gobrrr.diagnosis.verdict import regime_of, split_of, verdict_of
from gobrrr.timeline.names import UNASKED_LINE, UNKNOWN_LINE


@pytest.fixture
def python_bound(data):
    """A step of one second, all of it Python."""
    diagnosis = load(data / "training.json")
    diagnosis.leaves = dict.fromkeys(LEAVES, 0.0) | {"overhead.python": 1.0}
    diagnosis.split, diagnosis.regime, diagnosis.close = (
        split_of(diagnosis.leaves), "overhead", False,
    )  # fmt: skip
    diagnosis.step.time_s.median = 1.0
    return diagnosis


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        ((0.6, 0.3), "Python takes 100 %, most of it at model.py:1."),
        ((0.18, 0.1), "Python takes 100 %, 18 % of it at model.py:1."),
        ((0.03, 0.02), "Python takes 100 %."),
        ((), "Python takes 100 %."),
    ],
)
def test_most_of_it_is_more_than_half(python_bound, seconds, says):
    python_bound.idle = [IdleRow(cause="launch", time_s=0.9, source="other.py:1")]
    python_bound.idle += [
        IdleRow(cause="python", time_s=s, source=f"model.py:{i}") for i, s in enumerate(seconds, 1)
    ]
    assert says in verdict_of(python_bound)


def test_what_has_no_line_is_the_frameworks_own(python_bound):
    python_bound.idle = [
        IdleRow(cause="python", time_s=0.6, source=UNKNOWN_LINE),
        IdleRow(cause="python", time_s=0.04, source="model.py:1"),
    ]
    said = verdict_of(python_bound)
    assert "Python takes 100 %, most of it the framework's own. Less Python helps" in said


def test_lines_that_were_not_asked_for_are_nobodys(python_bound):
    python_bound.idle = [IdleRow(cause="python", time_s=0.6, source=UNASKED_LINE)]
    assert "Python takes 100 %. Less Python helps" in verdict_of(python_bound)


def of_leaves(data, **leaves):
    """A diagnosis of a step of one second with these leaves, dots written as double underscores."""
    diagnosis = load(data / "training.json")
    given = {name.replace("__", "."): time_s for name, time_s in leaves.items()}
    diagnosis.leaves = dict.fromkeys(LEAVES, 0.0) | given
    diagnosis.split = split_of(diagnosis.leaves)
    diagnosis.regime, diagnosis.close = regime_of(diagnosis.leaves)
    whole_s = sum(given.values())
    diagnosis.step.time_s = Spread(median=whole_s, mean=whole_s, low=whole_s, high=whole_s, n=4)
    return diagnosis


def test_time_at_the_ceiling_asks_for_less_work(data):
    said = verdict_of(of_leaves(data, compute__matrix__roof=0.8, overhead__python=0.2))
    assert "80 % of each step is in compute-bound ops: 80 % at the ceiling, 0 %" in said
    assert "less or cheaper work helps" in said
    assert "another kernel" not in said
    assert "Memory is 0 % of the step and overhead 20 %: removing either of them" in said


def test_time_below_the_ceiling_asks_for_other_kernels(data):
    said = verdict_of(of_leaves(data, memory__device__below=0.9, memory__device__roof=0.01,
                                overhead__dispatch=0.09))  # fmt: skip
    assert "waits for bytes" not in said
    assert "1 % at the ceiling, 90 % below it" in said
    assert "another kernel or layout" in said
    assert "moving fewer bytes helps" not in said.lower()


def test_a_close_call_has_both_remedies_and_denies_neither(data):
    said = verdict_of(of_leaves(data, compute__matrix__roof=0.51, overhead__python=0.49))
    assert "It is a close call: overhead takes 49 %" in said
    assert "less or cheaper work helps" in said
    assert "less Python helps" in said or "Less Python helps" in said
    assert "49 % of the step:" not in said


def test_an_op_that_beat_its_roof_is_not_said_to_be_below_it(data):
    diagnosis = of_leaves(data, compute__matrix__roof=0.9, overhead__dispatch=0.1)
    row = next(row for row in diagnosis.ops if row.regime == "compute")
    row.roof_fraction = 0.89
    assert "at 89 % of its ceiling" in verdict_of(diagnosis)
    row.roof_fraction = 1.04
    said = verdict_of(diagnosis)
    assert "faster than its ceiling" in said and "% of its ceiling" not in said


def test_ops_out_of_proportion_are_in_the_verdict_where_they_are_much(data):
    diagnosis = of_leaves(data, compute__vector__roof=0.6, overhead__dispatch=0.4)
    dropout = Finding(
        fix="random_numbers", because="", title="Dropout's random numbers take 24 % of the step",
        prediction=Prediction(low_s=0.24, expected_s=0.3, high_s=0.3, speedup=1 / 0.7),
        sources=["model.py:7 in forward"],
    )  # fmt: skip
    diagnosis.findings = [dropout]
    said = verdict_of(diagnosis)
    assert "Dropout's random numbers take 24 % of the step (model.py:7)" in said
    assert "the step could take 0.70x the time" in said
    dropout.prediction.expected_s = 0.1
    assert "Dropout" not in verdict_of(diagnosis)


def test_what_is_far_below_its_ceiling_is_named_beside_the_largest_op(data):
    diagnosis = of_leaves(data, compute__matrix__roof=0.5, compute__vector__below=0.4,
                          overhead__dispatch=0.1)  # fmt: skip
    rows = [row for row in diagnosis.ops if row.regime == "compute"][:2]
    largest, slow = rows
    largest.time_s, largest.below_s, largest.roof_fraction = 0.5, 0.01, 0.98
    slow.name, slow.shapes = "aten::cumsum", "(64,4096)"
    slow.time_s = slow.kernel_s = 0.3
    slow.below_s, slow.roof_fraction = 0.25, 0.18
    diagnosis.ops = rows
    named = "the most time below the ceiling is in aten::cumsum (64,4096), 30 % of the step"
    said = verdict_of(diagnosis)
    assert "at 98 % of its ceiling; " + named + ", at 18 % of its ceiling." in said
    slow.below_s = 0.05
    assert "below the ceiling is in aten::cumsum" not in verdict_of(diagnosis)
    # The largest op is not named twice.
    largest.below_s, slow.below_s = 0.3, 0.25
    assert "below the ceiling is" not in verdict_of(diagnosis)
