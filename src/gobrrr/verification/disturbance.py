"""When a busy machine decides a trial: threads of a program want processors that others hold."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gobrrr.diagnosis.fix_schema import FASTER, INCOMPARABLE, SAME, SLOWER, Verification
from gobrrr.fixes.fix import THREADS, Fix
from gobrrr.measure.load import Load
from gobrrr.timeline.quantities import multiple_range, percent

# Share of all processor time that went elsewhere from which on the number of threads cannot be
# judged: with two processors the slower of two threads then waits a fifth of the time.
MOST_ELSEWHERE = 0.1


def judged_by_load(trial: Verification, fixes: Sequence[Fix], load: Load) -> Verification:
    """The trial; too noisy to tell where it changes the number of threads on a busy machine.

    What all threads wait for is the slowest, which waits for a processor: two runs in turns have
    that in common only if both have as many threads.
    """
    share = load.others_share
    told = trial.verdict in (FASTER, SAME, SLOWER, INCOMPARABLE)
    if share is None or share <= MOST_ELSEWHERE or not told:
        return trial
    if not any(THREADS in fix.claims for fix in fixes):
        return trial
    span = "" if trial.speedup is None else f" ({multiple_range(trial.speedup)})"
    return replace(
        trial, verdict=INCOMPARABLE, speedup=None, break_even_steps=None,
        reason=(
            f"other programs took {percent(share)} of the processor time, so a change of the "
            f"number of threads cannot be judged{span}: try it on an idle machine"
        ),
    )  # fmt: skip
