"""The sums that every diagnosis must keep."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr.attribution.leaves import AccountingError
from gobrrr.diagnosis.schema import Diagnosis


@pytest.fixture
def training(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


def with_leaf(diagnosis: Diagnosis, name: str, value: float) -> Diagnosis:
    return replace(diagnosis, leaves={**diagnosis.leaves, name: value})


def test_sums_hold(training: Diagnosis) -> None:
    # compute 30 + 10 + 4 + 2 = 46; memory 12 + 6 + 7 = 25;
    # overhead 6 + 15 + 2 + 1 + 0.5 + 3 = 27.5; unmodelled 1.5; together 100 ms
    training.check()
    assert training.accounted_s == pytest.approx(0.100)


def test_a_leaf_too_many_nanoseconds(training: Diagnosis) -> None:
    # 5 ns on 100 ms is over 1 ns + 0.1 ns
    wrong = with_leaf(training, "overhead.python", 0.006 + 5e-9)
    with pytest.raises(AccountingError, match="leaves sum to"):
        wrong.check()


def test_split_must_follow_leaves(training: Diagnosis) -> None:
    # 1 ms moved from compute to memory among the leaves, not in the split
    moved = with_leaf(with_leaf(training, "compute.matrix.roof", 0.029), "memory.copies", 0.001)
    with pytest.raises(AccountingError, match="compute is"):
        moved.check()


@pytest.mark.parametrize("value", [-0.001, math.nan])
def test_bad_leaf(training: Diagnosis, value: float) -> None:
    with pytest.raises(AccountingError, match=r"leaf overhead\.launch is"):
        with_leaf(training, "overhead.launch", value).check()


def test_missing_and_unknown_leaf(training: Diagnosis) -> None:
    leaves = dict(training.leaves)
    leaves["overhead.magic"] = leaves.pop("overhead.launch")
    with pytest.raises(AccountingError, match=r"overhead\.launch.*overhead\.magic"):
        replace(training, leaves=leaves).check()


def test_leaves_of_a_trace_sum_to_the_mean(training: Diagnosis) -> None:
    # windows of 80, 80 and 140 ms: median 80, mean 100 = the sum of the leaves
    spread = replace(training.step.time_s, median=0.080, mean=0.100)
    trace = replace(training, step=replace(training.step, time_s=spread, basis="mean"))
    trace.check()
    assert (trace.step_s, trace.accounted_s) == (0.080, 0.100)
    with pytest.raises(AccountingError):
        replace(trace, step=replace(trace.step, basis="median")).check()


def test_repr_is_one_line(training: Diagnosis) -> None:
    assert repr(training) == (
        "<Diagnosis of train_gpt.py: 100 ms, compute 46.0 ms, memory 25.0 ms, "
        "overhead 27.5 ms, unmodelled 1.50 ms>"
    )


def test_importing_gobrrr_is_light() -> None:
    heavy = ("torch", "numpy", "msgspec", "rich", "jinja2")
    code = f"import sys, gobrrr; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_resolve() -> None:
    for name in gobrrr.__all__:
        assert getattr(gobrrr, name) is not None


def test_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'diagnoze'"):
        _ = gobrrr.diagnoze  # type: ignore[attr-defined]
    assert set(gobrrr.__all__) <= set(dir(gobrrr))
