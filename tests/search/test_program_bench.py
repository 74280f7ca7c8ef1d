"""What the bench of a script says while it works; no process is started."""

from __future__ import annotations

import pytest
from tests.fixes.facts import facts

from gobrrr.measure.summary import Interval
from gobrrr.search import program_bench
from gobrrr.timeline.errors import InputError
from gobrrr.verification.messages import Target
from gobrrr.verification.programs import ProgramNull, ProgramTrials
from gobrrr.verification.timing import Null

QUIET = Null(Interval(1.0, 0.99, 1.01), True, 0.01)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    monkeypatch.setattr(program_bench, "ceilings_beforehand", lambda **_: None)
    monkeypatch.setattr(program_bench, "diagnose_in_child", lambda *_: (None, facts()))
    return program_bench.ProgramBench(Target("script", str(tmp_path / "train.py")), "", 0.02)


def null_run(bench, monkeypatch, found):
    said: list[str] = []
    monkeypatch.setattr(ProgramTrials, "_two_plain_runs", lambda *_: found)
    bench.diagnose((), lambda phase, done, wanted: said.append(phase))
    said.clear()
    return bench.measure_null(1.0), said


def test_a_script_that_is_not_deterministic_is_told_before_any_trial(bench, monkeypatch):
    found = ProgramNull(QUIET, not_deterministic="the script is not deterministic: ...")
    null, said = null_run(bench, monkeypatch, found)
    assert null is QUIET
    (sentence,) = said
    assert "two plain runs differ" in sentence


def test_nothing_is_said_of_one_that_is(bench, monkeypatch):
    assert null_run(bench, monkeypatch, ProgramNull(QUIET)) == (QUIET, [])


def test_a_script_that_cannot_be_timed_is_refused_with_the_reason(bench, monkeypatch):
    with pytest.raises(InputError, match="ended too soon"):
        null_run(bench, monkeypatch, ProgramNull(None, trouble="ended too soon"))
