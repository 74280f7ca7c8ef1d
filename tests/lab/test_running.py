"""What is finished is kept, whatever happens to the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.lab.experiment import (
    Answer,
    Claim,
    Experiment,
    Findings,
    Measured,
    Outcome,
    SkipExperimentError,
)
from gobrrr.lab.page import render_page
from gobrrr.lab.running import draw_outcome, run_all, run_experiment
from gobrrr.lab.setting import Setting
from gobrrr.lab.storage import load_outcome, save_outcome
from gobrrr.timeline.errors import InputError

pytestmark = pytest.mark.torch

CLAIMS = (
    Claim("one", "one holds", "1x", "first", unit="x", least=1.0),
    Claim("two", "two holds", "2x", "second", unit="x", most=2.0),
)


def works(setting: Setting) -> Findings:
    answers = {
        "one": Answer(Measured(1.5, 1.4, 1.6), "measured"),
        "two": Answer(Measured(3.0, 2.9, 3.1), "measured"),
    }
    return Findings(answers, [{"x": 1.0, "y": 2.0}])


def breaks(setting: Setting) -> Findings:
    raise RuntimeError("the second line\nof many")


def is_interrupted(setting: Setting) -> Findings:
    raise KeyboardInterrupt


def is_skipped(setting: Setting) -> Findings:
    raise SkipExperimentError("it needs something")


def needs_memory(setting: Setting) -> Findings:
    raise MemoryError


def draw(outcome: Outcome, figure: object) -> None:
    figure.subplots().plot([row["x"] for row in outcome.rows], [1.0])  # type: ignore[attr-defined]


def experiment(name: str, run: object, **more: object) -> Experiment:
    return Experiment(name, name.title(), f"{name}?", CLAIMS, run, draw, 1.0, **more)  # type: ignore[arg-type]


def test_claims_are_judged() -> None:
    outcome = run_experiment(experiment("good", works), Setting(seed=3))
    assert [c.verdict for c in outcome.claims] == ["holds", "does not hold here"]
    assert (outcome.state, outcome.seed, outcome.device_kind) == ("complete", 3, "cpu")


@pytest.mark.parametrize(
    ("run", "state", "reason"),
    [
        (breaks, "failed", "RuntimeError: the second line of many"),
        (is_interrupted, "interrupted", "interrupted before it was finished"),
        (is_skipped, "skipped", "it needs something"),
        (needs_memory, "failed", "this machine has too little memory for it"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_no_verdict(
    run: object, state: str, reason: str
) -> None:
    outcome = run_experiment(experiment("bad", run), Setting())
    assert (outcome.state, outcome.reason) == (state, reason)
    assert {(c.verdict, c.because) for c in outcome.claims} == {("cannot tell", reason)}


def test_a_device_that_it_cannot_use_is_skipped() -> None:
    outcome = run_experiment(experiment("gpu-only", works, devices=("cuda",)), Setting())
    assert (outcome.state, outcome.reason) == ("skipped", "it needs cuda")


def test_an_interruption_keeps_what_was_finished(tmp_path: Path) -> None:
    said: list[str] = []
    wanted = [
        experiment("first", works), experiment("failing", breaks),
        experiment("stopped", is_interrupted), experiment("never", works),
    ]  # fmt: skip
    finished, not_run = run_all(wanted, Setting(), tmp_path, budget_s=None, say=said.append)
    assert [item.outcome.state for item in finished] == ["complete", "failed", "interrupted"]
    assert not_run == ["never"]
    assert load_outcome(tmp_path / "first.json") == finished[0].outcome
    assert load_outcome(tmp_path / "stopped.json").state == "interrupted"
    assert not (tmp_path / "never.json").exists()
    assert any("RuntimeError" in sentence for sentence in said)
    page = render_page([item.outcome for item in finished], tmp_path, not_run)
    assert "Not run: never." in page
    assert "the second line of many" in page


def test_global_settings_come_back() -> None:
    import torch

    threads = torch.get_num_threads()

    def changes(setting: Setting) -> Findings:
        torch.set_num_threads(threads + 1)
        torch.set_grad_enabled(False)
        raise RuntimeError("on the way")

    run_experiment(experiment("rude", changes), Setting())
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_a_plot_is_drawn_twice_alike(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_experiment(experiment("good", works), Setting())
    first, again = tmp_path / "a", tmp_path / "b"
    draw_outcome(experiment("good", works), outcome, first)
    draw_outcome(experiment("good", works), outcome, again)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    outcome = run_experiment(experiment("good", works), Setting())
    outcome.rows.append({"x": [1.0, float("nan")]})
    with pytest.raises(ValueError, match=r"rows\[1\].x\[1\] is nan"):
        save_outcome(outcome, tmp_path / "good.json")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": 1}')
    with pytest.raises(InputError, match="not a result of gobrrr lab"):
        load_outcome(path)
    with pytest.raises(InputError, match=r"missing\.json"):
        load_outcome(tmp_path / "missing.json")


def test_the_page_shows_verdicts_and_escapes(tmp_path: Path) -> None:
    outcome = run_experiment(experiment("good", works), Setting())
    outcome.claims[0].because = "<b>1 < 2</b>"
    page = render_page([outcome], tmp_path)
    assert "1 hold</b>" in page
    assert "1 do not hold here</b>" in page
    assert "&lt;b&gt;1 &lt; 2&lt;/b&gt;" in page
    assert "1.50x (1.40x to 1.60x)" in page


def test_times_of_a_busy_machine_are_no_verdict() -> None:
    from gobrrr.measure import Load

    claims = (CLAIMS[0], Claim("two", "counted", "2x", "bytes", most=4.0, timed=False))

    def is_disturbed(setting: Setting) -> Findings:
        # Of 4 s that its threads wanted, they waited 1.
        setting.loads.append(Load(wall_s=4.0, cpu_s=3.0, waiting_s=1.0, others_s=3.0, processors=2))
        return works(setting)

    outcome = run_experiment(
        Experiment("busy", "Busy", "busy?", claims, is_disturbed, draw, 1.0), Setting()
    )
    assert [c.verdict for c in outcome.claims] == ["cannot tell", "holds"]
    assert "spent 25 % of their runnable time waiting" in outcome.claims[0].because
    assert "Without that it would read: holds." in outcome.claims[0].because
    assert outcome.notes[-1].startswith("The machine was busy")
