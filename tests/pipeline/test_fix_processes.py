"""What the bench of a script says while it works; no process is started."""

from __future__ import annotations

import pytest

from gobrrr.measure.summary import Interval
from gobrrr.pipeline import fix_processes
from gobrrr.timeline.errors import InputError
from gobrrr.verification.scripts import ScriptNull
from gobrrr.verification.timing import Null

QUIET = Null(Interval(1.0, 0.99, 1.01), True, 0.01)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    monkeypatch.setattr(fix_processes, "load_ceilings", lambda **_: None)
    monkeypatch.setattr(fix_processes, "diagnose_in_child", lambda *_: (None, None))
    return fix_processes.ScriptBench(str(tmp_path / "train.py"), (), 0.02)


def null_run(bench, monkeypatch, found):
    said: list[str] = []
    monkeypatch.setattr(fix_processes, "measure_script_null", lambda *_, **__: found)
    bench.diagnose((), lambda phase, done, wanted: said.append(phase))
    said.clear()
    return bench.measure_null(1.0), said


def test_a_script_that_is_not_deterministic_is_told_before_any_trial(bench, monkeypatch):
    found = ScriptNull(QUIET, not_deterministic="the script is not deterministic: ...")
    null, said = null_run(bench, monkeypatch, found)
    assert null is QUIET
    (sentence,) = said
    assert "two plain runs differ" in sentence


def test_nothing_is_said_of_one_that_is(bench, monkeypatch):
    assert null_run(bench, monkeypatch, ScriptNull(QUIET)) == (QUIET, [])


def test_a_script_that_cannot_be_timed_is_refused_with_the_reason(bench, monkeypatch):
    with pytest.raises(InputError, match="ended too soon"):
        null_run(bench, monkeypatch, ScriptNull(None, trouble="ended too soon"))
