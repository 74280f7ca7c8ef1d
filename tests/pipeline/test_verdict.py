"""Which line a verdict points at."""

from __future__ import annotations

import pytest

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.schema import IdleRow
from gobrrr.diagnosis.storage import load
from gobrrr.diagnosis.verdict import split_of, verdict_of


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
