"""The fixture, used as its users use it: by a pytest of its own."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

# pytester forgets what its runs have imported; numpy cannot be loaded twice, and of a diagnosis
# there would be two classes.
import numpy as np  # noqa: F401
import pytest

import gobrrr.diagnosis.gate
import gobrrr.diagnosis.storage  # noqa: F401

pytest_plugins = ["pytester"]

HEAD = """
import gobrrr, pytest
@pytest.fixture
def saved():
    return gobrrr.load({path!r})
"""


def outcome(pytester: pytest.Pytester, data: Path, body: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD.format(path=str(data / "training.json")) + body)
    # An environment that was installed before the entry point was there does not load it.
    named = {entry.name for entry in entry_points(group="pytest11")}
    plugin = [] if "gobrrr" in named else ["-p", "gobrrr.pytest_plugin"]
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *plugin, *options)


def test_what_holds_passes(pytester: pytest.Pytester, data: Path) -> None:
    result = outcome(pytester, data, """
def test_step(gobrrr_check, saved):
    found = gobrrr_check(saved, max_kernels=380, regime="compute", max_overhead=0.3)
    assert found is saved
""")  # fmt: skip
    result.assert_outcomes(passed=1)


def test_every_breach_is_a_line(pytester: pytest.Pytester, data: Path) -> None:
    result = outcome(pytester, data, """
def test_step(gobrrr_check, saved):
    gobrrr_check(saved, max_kernels=300, max_syncs=0, regime="memory")
""")  # fmt: skip
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "kernels: 380 per step, at most 300 allowed",
        "regime: compute, expected memory",
        "reads_of_one_value: not counted in this diagnosis *",
    ])  # fmt: skip


def test_nothing_to_check_is_a_failure(pytester: pytest.Pytester, data: Path) -> None:
    result = outcome(pytester, data, "def test_step(gobrrr_check, saved): gobrrr_check(saved)")
    result.assert_outcomes(failed=1)


def test_a_baseline_is_written_and_held(pytester: pytest.Pytester, data: Path) -> None:
    body = """
def test_step(gobrrr_check, saved):
    saved.counters["kernels"] += {more}
    gobrrr_check(saved, baseline="base.json")
"""
    outcome(pytester, data, body.format(more=0)).assert_outcomes(failed=1)
    outcome(pytester, data, body.format(more=0), "--gobrrr-update").assert_outcomes(passed=1)
    assert (pytester.path / "base.json").exists()
    outcome(pytester, data, body.format(more=0)).assert_outcomes(passed=1)
    result = outcome(pytester, data, body.format(more=1))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["kernels: 381 per step, 380 in the baseline (+0.3 %)"])


@pytest.mark.torch
def test_a_live_step(pytester: pytest.Pytester, data: Path) -> None:
    result = outcome(pytester, data, """
import torch
def test_step(gobrrr_check):
    a = torch.ones(64, 64)
    found = gobrrr_check(lambda: (a @ a).relu(), max_kernels=4, max_syncs=0, steps=5, warmup=2)
    assert found.counters["kernels"] == 2
""")  # fmt: skip
    result.assert_outcomes(passed=1)
