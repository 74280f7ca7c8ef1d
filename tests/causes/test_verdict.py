"""Where the verdict names a cause: within three sentences, first where it is most of the time."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from gobrrr.causes import naming
from gobrrr.causes.naming import name_causes_of_job
from gobrrr.diagnosis.fix_schema import Finding, Portion, Prediction
from gobrrr.diagnosis.known_causes import name_ranks_of_causes
from gobrrr.diagnosis.rank_schema import JobRecord, RankRow, Split
from gobrrr.diagnosis.storage import load
from gobrrr.diagnosis.verdict import verdict_of
from gobrrr.reports.cause_lines import cause_saving, with_remedy
from gobrrr.reports.terminal import Options, report_text

TITLE = "Garbage collection scans a large heap (gc.freeze)"


def cause(**more):
    given = {"fix": "garbage_collector", "prediction": None, "because": "It is.", "title": TITLE,
             "sources": ["train.py:7 in main"], "words": ["gc.freeze"], "remedy": "gc.freeze()",
             "advice": True}  # fmt: skip
    return Finding(**(given | more))


def sentences(diagnosis):
    return re.split(r"(?<=\.) (?=[A-Z])", verdict_of(diagnosis))


@pytest.fixture
def found(data):
    return load(data / "training.json")


@pytest.mark.parametrize("regime", ["compute", "memory", "overhead"])
def test_it_is_within_three_sentences(found, regime):
    found.regime = regime
    found.findings = [cause(cause_share=0.3)]
    named = "Known cause: garbage collection scans a large heap (gc.freeze), 30 % of the wall time"
    first = sentences(found)[:3]
    assert any(named in sentence and "train.py:7" in sentence for sentence in first), first


def test_of_most_of_the_wall_time_it_comes_first(found):
    half = cause(cause_share=0.6, of_wall=Portion(low=0.3, expected=0.55, high=0.6))
    found.findings = [half]
    assert sentences(found)[0].startswith("Known cause: garbage collection")
    of_the_step = Prediction(low_s=0.0, expected_s=0.1, high_s=0.2, speedup=2.0)
    found.findings = [cause(cause_share=0.6, prediction=of_the_step)]
    assert not sentences(found)[0].startswith("Known cause")
    # Of a step that does little else the regime says no more.
    found.findings[0].cause_share = 0.9
    assert sentences(found)[0].startswith("Known cause: garbage collection")


def test_without_a_regime_it_is_still_named(found):
    found.regime, found.findings = None, [cause(cause_share=0.3)]
    assert verdict_of(found).startswith("Known cause: garbage collection")
    found.findings = []
    assert verdict_of(found) == ""


def test_further_ones_are_named_where_they_are_large(found):
    other = {"fix": "progress_bar", "title": "A progress bar is drawn"}
    found.findings = [cause(cause_share=0.4), cause(cause_share=0.3, **other)]
    assert "also a progress bar is drawn (train.py:7)." in verdict_of(found)
    found.findings[1].cause_share = 0.05
    assert "progress bar" not in verdict_of(found)


def test_two_further_ones_are_enough(found):
    titles = ["A bar", "A log", "A sync"]
    found.findings = [cause(cause_share=0.4), *(cause(cause_share=0.2, title=t) for t in titles)]
    assert "also a bar (train.py:7); a log (train.py:7)." in verdict_of(found)


def test_beside_a_large_cause_what_little_another_level_takes_is_left_out(found):
    found.leaves = {
        leaf: s * (0.5 if "overhead" in leaf else 1) for leaf, s in found.leaves.items()
    }
    assert "would save no more" in verdict_of(found)
    found.findings = [cause(cause_share=0.05)]
    assert "would save no more" in verdict_of(found)
    found.findings = [cause(cause_share=0.4)]
    assert "would save no more" not in verdict_of(found)


def test_a_larger_cause_of_a_job_comes_before_those_of_a_rank(found, monkeypatch):
    unequal = {"fix": "unequal_work", "title": "Ranks have unequal work", "cause_share": 0.4}
    monkeypatch.setattr(naming, "causes_of", lambda *args, **more: [cause(**unequal)])
    found.findings = [cause(cause_share=0.04)]
    found.job = SimpleNamespace(sentence="", slowest=None, uneven_s=None)
    naming.name_causes_of_job(found)
    assert [finding.fix for finding in found.findings] == ["unequal_work", "garbage_collector"]
    assert "Known cause: ranks have unequal work, 40 % of the wall time" in found.verdict


def test_a_name_keeps_its_capitals(found):
    found.findings = [cause(title="MFU counts what is computed twice", cause_share=0.2)]
    assert "Known cause: MFU counts" in verdict_of(found)


def test_the_report_has_place_remedy_and_words(found):
    found.findings = [cause(cause_share=0.3, verify="gobrrr fix --only x")]
    found.source = {"kind": "script", "name": "train.py", "command": "train.py -n 3"}
    text = report_text(found)
    assert "takes 30 %" in text
    for line in ("train.py:7: ", "change: gc.freeze()", "try: gobrrr fix --only x train.py -n 3"):
        assert line in text
    assert "search for: gc.freeze" in report_text(found, Options(verbose=True))
    assert "gc.freeze()" in with_remedy(found.findings[0])


@pytest.mark.parametrize("is_cause", [True, False])
def test_a_change_is_whole_so_that_it_can_be_copied(found, is_cause):
    variable = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=4294967296:glibc.malloc.mmap_threshold=1"
    remedy = f"{variable} python ... (or something else, as {'long ' * 60}as this)"
    code = "from somewhere import something_with_a_long_name, another\nwith something: " + "x" * 90
    found.findings = [
        cause(cause_share=0.3, remedy=remedy if is_cause else code, words=["w"] * is_cause)
    ]
    if not is_cause:
        half_s = found.accounted_s / 2
        found.findings[0].prediction = Prediction(
            low_s=half_s, expected_s=half_s, high_s=half_s, speedup=2.0
        )
    text = report_text(found)
    if is_cause:
        assert variable in text and "as this)" in text
    else:
        assert all(line in text for line in code.splitlines())


def test_what_is_saved_outside_the_steps_is_of_the_wall_time():
    half = cause(cause_share=0.6, of_wall=Portion(low=0.3, expected=0.5, high=0.6))
    assert cause_saving(half, "?") == "50 % (30 % to 60 %)"
    assert cause_saving(cause(cause_share=0.25), "?") == "25 %"
    assert cause_saving(cause(), "?") != "25 %"


def test_a_comparison_of_ranks_tells_of_unequal_work_alone(data):
    """What is unknown of a recording is not named as if it were not there."""
    found = load(data / "training.json")
    found.findings = []
    step_s = found.accounted_s
    found.leaves = {**found.leaves, "memory.page_faults": 0.5 * step_s}
    split = Split(compute_s=step_s, memory_s=0.0, overhead_s=0.0, unmodelled_s=0.0)
    found.ranks = [RankRow(rank=n, step_s=step_s, split=split, leaves={}, wait_s=0.1 * step_s)
                   for n in range(2)]  # fmt: skip
    found.job = JobRecord(world_size=2, uneven_s=0.2 * step_s, sentence="Of two ranks.")
    name_causes_of_job(found)
    assert [finding.fix for finding in found.findings] == ["unequal_work"]
    assert found.verdict.endswith("Of two ranks.")


def test_a_cause_of_one_rank_is_told_with_its_rank(data):
    ranks = {rank: load(data / "training.json") for rank in range(3)}
    everywhere = {"fix": "progress_bar", "title": "A progress bar is drawn"}
    for diagnosis in ranks.values():
        diagnosis.findings = [cause(cause_share=0.1, **everywhere)]
    ranks[1].findings.insert(0, cause(cause_share=0.4))
    name_ranks_of_causes(ranks, shown=2)
    titles = [finding.title for finding in ranks[2].findings]
    assert titles == [f"{TITLE}, on rank 1 alone", "A progress bar is drawn"]
    assert "on rank 1 alone, 40 % of the wall time" in verdict_of(ranks[2])
