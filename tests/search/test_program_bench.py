"""What the bench of a script says while it works; no process is started."""

from __future__ import annotations

import pytest
from tests.fixes.facts import facts

from gobrrr.measure.summary import Interval
from gobrrr.search import program_bench
from gobrrr.timeline.errors import InputError
from gobrrr.verification import programs
from gobrrr.verification.alternation import SideFailed
from gobrrr.verification.messages import Computed, Ready, Target
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


def test_a_script_that_is_not_deterministic_is_told_before_it_is_timed(bench, monkeypatch):
    said: list[str] = []
    bench.diagnose((), lambda phase, done, wanted: said.append(phase))
    said.clear()

    def alternate(before, after, when_warm, **limits):
        when_warm(tuple(Ready(0.1, 1.0, Computed(losses=(loss,)), 0) for loss in (1.0, 2.0)))
        (sentence,) = said
        assert "no fix can be compared" in sentence and "torch.manual_seed(0)" in sentence
        raise SideFailed(0, "ended")

    monkeypatch.setattr(programs, "alternate_processes", alternate)
    with pytest.raises(InputError, match="ended"):
        bench.measure_null(1.0)


@pytest.mark.parametrize(
    ("differs", "seeded", "said"),
    [("", True, None), ("", None, None), ("", False, "seeded alike"), ("chance", False, "chance")],
)
def test_the_summary_says_how_sides_could_be_compared(bench, monkeypatch, differs, seeded, said):
    found = ProgramNull(QUIET, not_deterministic=differs, seeded=seeded)

    def measured(trials, budget_s):
        trials.turns = found
        return QUIET

    assert bench.notices == []
    monkeypatch.setattr(ProgramTrials, "measure_null", measured)
    bench.measure_null(1.0)
    assert [said in notice for notice in bench.notices] == [True] * (said is not None)


def test_nothing_is_said_of_one_that_is(bench, monkeypatch):
    assert null_run(bench, monkeypatch, ProgramNull(QUIET)) == (QUIET, [])


def test_a_script_that_cannot_be_timed_is_refused_with_the_reason(bench, monkeypatch):
    with pytest.raises(InputError, match="ended too soon"):
        null_run(bench, monkeypatch, ProgramNull(None, trouble="ended too soon"))
