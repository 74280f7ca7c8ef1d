"""How often a verdict on time is wrong on a machine that others use, by simulation.

A turn's length is its step's, times what slows both sides for a while (other programs, of which
some come in bursts), times what slows one side alone for a while, times what slows one turn. What
lasts is a process with a correlation time, so that neighbouring pairs are not independent.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from gobrrr.measure import FakeClock
from gobrrr.measure.noise import is_quiet
from gobrrr.measure.summary import Interval
from gobrrr.verification import alternation
from gobrrr.verification.confirmation import PAIRS
from gobrrr.verification.messages import Computed, Ready, Spec, Target
from gobrrr.verification.timing import (
    TURN_S,
    Null,
    Timed,
    alternate,
    clear_of,
    hidden_by,
    judge,
    never,
    null_of,
    undecided_by,
)
from gobrrr.verification.trial import Measured

TRIALS = 200
BUDGET_S = 2.0


class Machine:
    """Two sides on a busy machine; the standard deviations are of the logarithm."""

    shared_s, own_s, burst_s = 0.15, 0.1, 0.5
    burst, turn = 1.8, 0.03

    def __init__(self, random: np.random.Generator, shared: float, own: float) -> None:
        self.clock = FakeClock()
        self.random = random
        self.deviations = (shared, own, own)
        self.times_s = (self.shared_s, self.own_s, self.own_s)
        self.states = [d * random.normal() for d in self.deviations]
        self.seen_s = self.until_s = 0.0

    def run(self, side: int, step_s: float) -> float:
        """A turn: seconds per step."""
        now_s = self.clock.now_ns() * 1e-9
        passed_s, self.seen_s = now_s - self.seen_s, now_s
        for i, (deviation, time_s) in enumerate(zip(self.deviations, self.times_s, strict=True)):
            kept = math.exp(-passed_s / time_s)
            fresh = math.sqrt(1 - kept * kept) * deviation * self.random.normal()
            self.states[i] = kept * self.states[i] + fresh
        # A tenth of the time another program takes the caches and half a processor.
        if now_s > self.until_s and self.random.random() < 0.1 * passed_s / self.burst_s:
            self.until_s = now_s + self.random.exponential(self.burst_s)
        slowed = math.exp(self.states[0] + self.states[1 + side] + self.turn * self.random.normal())
        seconds = step_s * slowed * (self.burst if now_s < self.until_s else 1.0)
        steps = max(1, round(TURN_S / step_s))
        self.clock.advance(max(1, round(steps * seconds * 1e9)))
        return seconds


def verdicts(
    speedup: float, step_s: float, shared: float, own: float, budget_s: float
) -> list[str]:
    """Of so many null trials and trials of a change with this speedup."""
    told = []
    for number in range(TRIALS):
        random = np.random.default_rng((20260101, number))
        null = null_of(timed(random, 1.0, step_s, shared, own, budget_s))
        trial = timed(random, speedup, step_s, shared, own, budget_s, null)
        told.append(judge(trial, null)[0])
    return told


def timed(
    random: np.random.Generator,
    speedup: float,
    step_s: float,
    shared: float,
    own: float,
    budget_s: float,
    null: Null | None = None,
) -> Timed:
    machine = Machine(random, shared, own)
    return alternate(
        lambda: machine.run(0, step_s * speedup), lambda: machine.run(1, step_s),
        budget_s=budget_s, enough=is_quiet if null is None else clear_of(null),
        clock=machine.clock,
        undecided=never if null is None else undecided_by(null),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("step_s", "shared", "own", "budget_s"),
    [
        (0.005, 0.02, 0.005, BUDGET_S),
        (0.005, 0.2, 0.1, BUDGET_S),
        (0.005, 0.4, 0.1, BUDGET_S),
        # Of longer steps as many pairs take more seconds.
        (0.1, 0.2, 0.1, 5 * BUDGET_S),
    ],
)
def test_both_error_rates_hold_on_a_busy_machine(
    step_s: float, shared: float, own: float, budget_s: float
) -> None:
    unchanged = verdicts(1.0, step_s, shared, own, budget_s)
    assert unchanged.count("faster") < 0.05 * TRIALS
    assert unchanged.count("slower") < 0.05 * TRIALS
    faster = verdicts(1.3, step_s, shared, own, budget_s)
    assert faster.count("faster") > 0.9 * TRIALS
    assert "slower" not in faster


PROCESSES = 400


@pytest.mark.parametrize(
    ("spread", "speedup", "power"),
    [
        (0.06, 1.3, 0.9),
        # Allocators give memory back in one process and keep it in another: a quarter and more.
        (0.2, 2.2, 0.75),
    ],
)
def test_both_error_rates_hold_between_processes_that_differ(
    monkeypatch: pytest.MonkeyPatch, spread: float, speedup: float, power: float
) -> None:
    """Each process is faster or slower than another by so much for as long as it lives."""
    random = np.random.default_rng(20260101)
    ready = Ready(0.01, 1.0, Computed(), 1)
    is_now = [1.0]

    def one_pair(*arguments: object) -> alternation._Pair:
        before, after = np.exp(spread * random.normal(size=2))
        turns = Timed((before * is_now[0],) * 8, (after,) * 8)
        return alternation._Pair(turns, (ready, ready), 0, 0.0, (None, None))

    monkeypatch.setattr(alternation, "_one_pair", one_pair)
    start = alternation.Start(Spec("", Target("script", "")), {}, "the script")

    def measured(null: Null | None, pairs: int) -> Measured:
        enough = is_quiet if null is None else clear_of(null)
        return alternation.alternate_processes(
            start, start, budget_s=1.0, start_limit_s=1.0, enough=enough, most_pairs=pairs,
            hidden=never if null is None else hidden_by(null), extra_s=60.0,
        ).measured  # fmt: skip

    def found(of: float) -> float:
        """Share of trials that win, and win once more when they are measured again."""
        won = 0
        for _ in range(PROCESSES):
            is_now[0] = 1.0
            plain = measured(None, alternation.MOST_PAIRS)
            null = null_of(plain.timed, plain.ratio)
            is_now[0] = of
            trials = measured(null, alternation.MOST_PAIRS), measured(null, PAIRS)
            won += all(
                judge(t.timed, null, ratio=t.ratio, repeats=bool(again), processes=t.processes)[0]
                == "faster"
                for again, t in enumerate(trials)
            )
        return won / PROCESSES

    assert found(1.0) < 0.05
    assert found(speedup) > power


def test_further_processes_are_run_only_while_they_may_prove_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = Ready(0.01, 1.0, Computed(), 1)
    start = alternation.Start(Spec("", Target("script", "")), {}, "the script")
    null = Null(Interval(0.75, 0.71, 0.87), False, 0.01)

    def pairs_of(ratios: list[float], extra_s: float = 60.0) -> Measured:
        left = iter(ratios)

        def one_pair(*arguments: object) -> alternation._Pair:
            turns = Timed((next(left),) * 4, (1.0,) * 4)
            return alternation._Pair(turns, (ready, ready), 0, 0.0, (None, None))

        monkeypatch.setattr(alternation, "_one_pair", one_pair)
        return alternation.alternate_processes(
            start, start, budget_s=60.0, start_limit_s=1.0, enough=clear_of(null), most_pairs=2,
            hidden=hidden_by(null), extra_s=extra_s,
        ).measured  # fmt: skip

    agreeing = [1.4, 1.5, 1.2, 1.6, 1.3, 1.4, 1.4]
    proved = pairs_of(agreeing)
    assert proved.processes == 6
    assert judge(proved.timed, null, ratio=proved.ratio, processes=6)[0] == "faster"
    assert pairs_of(agreeing, extra_s=0.0).processes == 2
    # The third contradicts; two are beyond the null anyway; two lie about 1.
    assert pairs_of([1.4, 1.5, 0.9]).processes == 3
    assert pairs_of([4.0, 4.0]).processes == 2
    assert pairs_of([1.01, 1.4]).processes == 2


def test_a_script_that_ends_before_its_turns_has_shorter_ones_in_the_next_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = Ready(0.001, 20.0, Computed(), 1)
    start = alternation.Start(Spec("", Target("script", "")), {}, "the script")
    turns: list[float] = []
    # Seconds of steps that the script has: two turns of each side, or none at all.
    length_s = [0.5]

    def one_pair(*arguments: object) -> alternation._Pair:
        turn_s = arguments[-2]
        assert isinstance(turn_s, float)
        turns.append(turn_s)
        rounds = int(length_s[0] / turn_s)
        timed = Timed((1.0,) * rounds, (1.0,) * rounds)
        return alternation._Pair(timed, (ready, ready), 0, 20.0, (None, None))

    monkeypatch.setattr(alternation, "_one_pair", one_pair)

    def measured() -> Measured:
        return alternation.alternate_processes(
            start, start, budget_s=1.0, start_limit_s=1.0, enough=lambda ratio: True
        ).measured

    # 0.5 s are one turn of 0.3 s, and six of 0.075 s. A start of 20 s is beyond the budget.
    assert len(measured().timed.before) == 1 + 6
    assert turns == [0.3, 0.075]
    length_s[0] = 0.01
    with pytest.raises(alternation.SideFailed, match="too few steps"):
        measured()
