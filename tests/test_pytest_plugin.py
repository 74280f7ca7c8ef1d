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
        "synchronisations: not counted in this diagnosis *",
        "regime: compute, expected memory",
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
    result = outcome(pytester, data, body.format(more=-1))
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_step: kernels: 379 per step, 380 in the baseline (-0.3 %)"])


@pytest.mark.torch
def test_live_steps(pytester: pytest.Pytester, data: Path) -> None:
    # In one run: torch cannot be loaded twice either.
    result = outcome(pytester, data, """
import torch
def test_step(gobrrr_check):
    a = torch.ones(64, 64)
    found = gobrrr_check(lambda: (a @ a).relu(), max_kernels=4, max_syncs=0, steps=5, warmup=2)
    assert found.counters["kernels"] == 2
class Own(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=p.grad.norm().item())
def work(optimizer, **given):
    model = torch.nn.Linear(4, 8, bias=False)
    return gobrrr.Workload(
        model, (torch.ones(2, 4),), loss=torch.sum, optimizer=optimizer(model.parameters(), **given)
    )
def test_library(gobrrr_check):
    made = work(torch.optim.AdamW)
    before = made.model.weight.clone()
    found = gobrrr_check.counts(made, max_syncs=0)
    assert found.counters["reads_of_one_value"] == found.counters["reads_by_optimizer"] > 0
    assert torch.equal(before, made.model.weight)
def test_own(gobrrr_check):
    found = gobrrr_check.counts(work(Own, lr=0.1), max_syncs=1)
    # Forward and the weight's gradient: 2 * 2 * 4 * 8 each, beside what is element-wise.
    assert found.counters["flops"] >= 2 * 2 * 2 * 4 * 8
    gobrrr_check.counts(work(Own, lr=0.1), max_syncs=0)
""")  # fmt: skip
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["synchronisations: 1 per step, at most 0 allowed: *.py:* in step"])
