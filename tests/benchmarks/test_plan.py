"""The benchmark of ``gobrrr plan``: that it runs, and what its result holds."""

import json
from pathlib import Path

import pytest
from benchmarks.plan.llama import SEVEN_BILLION

from benchmarks import all as every


def test_the_model_has_as_many_parameters_as_published() -> None:
    assert SEVEN_BILLION.parameters == 6_738_415_616


@pytest.mark.torch
@pytest.mark.models
def test_a_plan_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    out = tmp_path / "plan.json"
    outcome = every.run("plan", out, every.Limit())
    assert outcome.state == "done", outcome.said
    found = json.loads(out.read_text())
    assert found["topic"] == "plan" and found["quick"] is True
    summary = found["summary"]
    assert summary["meshes"] == summary["fitting"] + summary["left_out"]
    assert (found["planned"]["hosts"], found["planned"]["devices"]) == (2, 16)
    assert len(found["best"]) == 5
    assert found["best"][0]["tokens_per_s"] > found["best"][-1]["tokens_per_s"]
    # Python and torch alone take that much; the model of this size does not.
    assert 50e6 < summary["peak_bytes"] < 2e9
    assert summary["cpu_seconds"] > 0
    assert [each["seconds"] for each in found["rounds"]] == [summary["seconds"]]
