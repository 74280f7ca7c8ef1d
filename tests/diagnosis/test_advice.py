"""What to do, ranked by the saving of the wall time."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr.diagnosis.advice import advice_of
from gobrrr.diagnosis.schema import Diagnosis, Finding, Portion, Prediction, Verification
from gobrrr.timeline.step_kinds import WallPart, WallTime


@pytest.fixture
def diagnosis(data: Path) -> Diagnosis:
    found = gobrrr.load(data / "training.json")
    return replace(found, findings=[])


def finding(name: str, share: float, step_s: float, **more: object) -> Finding:
    prediction = Prediction(
        low_s=0.9 * share * step_s, expected_s=share * step_s, high_s=1.1 * share * step_s,
        speedup=1 / (1 - share),
    )  # fmt: skip
    return Finding(**{"fix": name, "prediction": prediction, "because": "sums", **more})  # type: ignore[arg-type]


def names(diagnosis: Diagnosis) -> list[str]:
    return [advised.finding.fix for advised in advice_of(diagnosis)]


def test_one_list_by_the_saving_of_the_wall_time(diagnosis: Diagnosis) -> None:
    step_s = diagnosis.accounted_s
    outside = Finding(
        fix="evaluation", prediction=None, because="", words=["no_grad"], cause_share=0.6,
        of_wall=Portion(low=0.0, expected=0.2, high=0.3),
    )  # fmt: skip
    diagnosis.findings = [finding("fast", 0.3, step_s), outside, finding("small", 0.02, step_s)]
    assert names(diagnosis) == ["fast", "evaluation"]
    # The steps are half of the wall time: 0.3 of them is 0.15 of it.
    part = WallPart("evaluation", step_s, 0.5, 1.0)
    diagnosis.wall = WallTime(0.5, (part,), 8)
    assert names(diagnosis) == ["evaluation", "fast"]
    saved = advice_of(diagnosis)[1].saved
    assert saved is not None and saved.expected == pytest.approx(0.15)


def test_what_cannot_be_told_is_no_advice(diagnosis: Diagnosis) -> None:
    # As in a step of 15 ms: 5.5 ms (-17.8 to 9.9).
    wide = Prediction(low_s=-0.12, expected_s=0.037, high_s=0.066, speedup=1.6)
    diagnosis.findings = [Finding(fix="compile", prediction=wide, because="sums")]
    assert diagnosis.accounted_s == pytest.approx(0.1)
    assert names(diagnosis) == []


def test_one_entry_for_one_command_and_a_cause_stands_for_its_fix(diagnosis: Diagnosis) -> None:
    step_s, command = diagnosis.accounted_s, "gobrrr fix --only vectorise_loop"
    diagnosis.findings = [
        finding("vectorise_loop", 0.4, step_s, verify=command),
        finding("per_sample_loop", 0.3, step_s, verify=command, words=["vmap"]),
    ]
    assert names(diagnosis) == ["per_sample_loop"]


def test_what_was_tried_is_no_advice(diagnosis: Diagnosis) -> None:
    tried = Verification(verdict="same")
    diagnosis.findings = [finding("a", 0.2, diagnosis.accounted_s, verification=tried)]
    assert names(diagnosis) == []


def test_groups_that_one_change_fuses_are_one_piece_of_advice(diagnosis: Diagnosis) -> None:
    step_s = diagnosis.accounted_s
    diagnosis.findings = [
        finding("fusion", share, step_s, title="Fuse: chain (mul)", remedy="torch.compile(model)")
        for share in (0.02, 0.05)
    ]
    (advised,) = advice_of(diagnosis)
    assert advised.saved is not None and advised.saved.expected == pytest.approx(0.07)


def test_a_cause_is_told_before_what_may_save_no_more(diagnosis: Diagnosis) -> None:
    step_s = diagnosis.accounted_s
    wide = Prediction(low_s=0.3 * step_s, expected_s=0.5 * step_s, high_s=0.7 * step_s, speedup=2)
    compiled = Finding(fix="compile", prediction=wide, because="sums")
    cause = finding("per_sample_loop", 0.4, step_s, words=["vmap"])
    diagnosis.findings = [compiled, cause]
    assert names(diagnosis) == ["per_sample_loop", "compile"]
    diagnosis.findings = [compiled, finding("small", 0.2, step_s, words=["print"])]
    assert names(diagnosis) == ["compile", "small"]
