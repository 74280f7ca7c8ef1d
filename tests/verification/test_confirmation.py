"""What two measurements of a won trial are worth together, and what a busy machine hides."""

from dataclasses import replace

import pytest

from gobrrr.diagnosis.fix_schema import Ratio, Verification
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.fix import SAME_OPS, SAME_WORK, THREADS, Fix, RuledOut
from gobrrr.measure.load import Load
from gobrrr.measure.summary import Interval
from gobrrr.verification.alternation import Alternated, SideFailed
from gobrrr.verification.confirmation import PAIRS, confirmed, timed_anew
from gobrrr.verification.disturbance import judged_by_load
from gobrrr.verification.messages import Computed, Ready
from gobrrr.verification.numerics import Numerics
from gobrrr.verification.timing import Null, Timed
from gobrrr.verification.trial import Measured, trial_of

QUIET = Null(Interval(1.0, 0.99, 1.01), True, 0.01)


def fix(name, *claims):
    return Fix(name, name, (), (), lambda facts: RuledOut(""), claims=claims)


def won(ratio, **more):
    return Verification(
        fixes=["a"], verdict="faster", before_s=1.0, after_s=1.0 / ratio,
        speedup=Ratio(median=ratio, low=ratio - 0.02, high=ratio + 0.02),
        numerics={"verdict": "passed"}, **more,
    )  # fmt: skip


def pairs_of(before_s, after_s):
    """Processes whose steps took this long, in eight pairs of turns."""
    timed = Timed((before_s,) * 8, (after_s,) * 8)
    ready = Ready(before_s, 1.0, Computed(), 1)

    def alternate(pairs):
        assert pairs == PAIRS
        return Alternated(Measured(timed, timed.ratio, (1.0, 1.0)), (ready, ready))

    return alternate


def test_fresh_processes_are_judged_as_a_trial_is():
    faster = timed_anew([fix("a")], QUIET, pairs_of(0.01, 0.008))
    assert (faster.verdict, faster.fixes) == ("faster", ["a"])
    assert faster.speedup.median == pytest.approx(1.25)
    assert timed_anew([fix("a")], QUIET, pairs_of(0.01, 0.012)).verdict == "slower"
    assert timed_anew([fix("a")], QUIET, pairs_of(0.01, 0.01)).verdict == "same"


def test_few_turns_are_enough_to_confirm():
    timed = Timed((1.05,) * 2, (1.0,) * 2)
    ready = Ready(1.0, 1.0, Computed(), 1)
    measured = Measured(timed, timed.ratio, (1.0, 1.0))
    told = timed_anew([fix("a")], QUIET, lambda pairs: Alternated(measured, (ready, ready)))
    assert told.verdict == "faster"


def test_six_pairs_of_processes_that_agree_need_no_quiet_null():
    ready = Ready(1.0, 1.0, Computed(), 1)
    # Two processes of the same program differed by a quarter.
    noisy = Null(Interval(0.75, 0.71, 0.87), False, 1.0)

    def told(processes, low):
        timed = Timed((1.3,) * 12, (1.0,) * 12)
        ratio = Interval(1.3, low, 1.9)
        measured = Measured(timed, ratio, (1.0, 1.0), processes=processes)
        return timed_anew([fix("a")], noisy, lambda pairs: Alternated(measured, (ready, ready)))

    proved = told(6, 1.05)
    assert proved.verdict == "faster"
    assert "in each of 6 pairs of fresh processes" in proved.reason
    assert told(5, 1.05).verdict == "incomparable"
    # One of them is no faster than a program may be than itself.
    assert told(6, 1.01).verdict == "incomparable"


def test_processes_that_do_not_work_out_fail_the_check():
    def alternate(pairs):
        raise SideFailed(1, "the script with the change raised ValueError: no")

    failed = timed_anew([fix("a")], QUIET, alternate)
    assert failed.verdict == "failed"
    assert "ValueError" in failed.reason


def test_both_measurements_are_told_and_the_lower_counts():
    told = confirmed(won(1.4, compile_s=1.9), won(1.2), "in fresh processes")
    assert told.speedup == Ratio(median=1.2, low=1.18, high=1.42)
    assert told.break_even_steps == 12  # 1.9 s of setting up, 1 - 1 / 1.2 s per step
    assert told.numerics == {"verdict": "passed"}
    assert told.notices == [
        "measured again in fresh processes: 1.20x (1.18 to 1.22), in the search 1.40x (1.38 to "
        "1.42)"
    ]
    # The other way round the first is told.
    assert confirmed(won(1.2), won(1.4), "").speedup.median == 1.2


def test_a_ratio_above_the_times_of_its_turns_breaks_even_at_no_step():
    def steps(after_s):
        timed = Timed((1.0,) * 12, (after_s,) * 12)
        measured = Measured(timed, Interval(1.3, 1.2, 1.4), (1.0, 3.0), processes=6)
        trial = trial_of([fix("a")], measured, Numerics("passed", ""), QUIET, None)
        assert trial.verdict == "faster"
        return trial.break_even_steps

    assert [steps(0.5), steps(1.0), steps(1.1)] == [4, None, None]


@pytest.mark.parametrize(
    ("numerics", "same_ops", "verdict"),
    [
        ("passed", True, "faster"),
        # What changes the program may have lost work, and what computes something else is no win.
        ("passed", False, "eliminated_work"),
        ("failed", True, "failed"),
    ],
)
def test_a_roof_that_the_same_ops_beat_is_in_doubt(numerics, same_ops, verdict):
    effect = SAME_OPS if same_ops else SAME_WORK
    measured = Measured(Timed((1.5,) * 12, (1.0,) * 12), Interval(1.5, 1.4, 1.6), (1.0, 1.0))
    trial = trial_of(
        [replace(fix("a"), effect=effect)], measured, Numerics(numerics, ""), QUIET, 1.1
    )
    assert trial.verdict == verdict
    assert ["in doubt" in notice for notice in trial.notices] == [True] * (verdict == "faster")


def test_allocators_and_loaders_run_the_same_ops():
    names = {fix.name for fix in FIXES if not fix.effect.drops}
    assert names == {"glibc_tunables", "jemalloc", "tcmalloc", "loader_workers", "pinned_memory"}


def test_a_second_verdict_stands_where_it_is_not_faster():
    again = Verification(verdict="same", reason="1.01x is within the noise", before_s=1.0,
                         after_s=0.99, speedup=Ratio(median=1.01, low=1.0, high=1.02))  # fmt: skip
    told = confirmed(won(1.2, break_even_steps=3), again, "in fresh processes")
    assert told.verdict == "same"
    assert told.speedup.median == 1.01
    assert told.break_even_steps is None
    assert told.reason == (
        "measured again in fresh processes: 1.01x is within the noise; in the search 1.20x (1.18 "
        "to 1.22)"
    )


def load(others_s):
    return Load(wall_s=10.0, cpu_s=5.0, waiting_s=0.0, others_s=others_s, processors=2)


def test_threads_are_not_judged_while_others_hold_the_processors():
    changed = [fix("other"), fix("all_threads", THREADS)]
    told = judged_by_load(won(1.5), changed, load(6.0))
    assert told.verdict == "incomparable"
    assert told.speedup is None
    assert "other programs took 30 % of the processor time" in told.reason
    assert "1.50x" in told.reason


def test_what_others_take_matters_to_threads_alone_and_only_if_it_is_much():
    trial = won(1.5)
    assert judged_by_load(trial, [fix("other")], load(6.0)) is trial
    assert judged_by_load(trial, [fix("threads", THREADS)], load(1.0)) is trial
    # Where the system does not count it nothing is known to have disturbed.
    assert judged_by_load(trial, [fix("threads", THREADS)], load(None)) is trial
    failed = Verification(verdict="failed")
    assert judged_by_load(failed, [fix("threads", THREADS)], load(6.0)) is failed
