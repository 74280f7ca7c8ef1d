"""Unmodified scripts in processes of their own: what they may do to a trial, and what is said."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.fixes.fix import Fix
from gobrrr.live.script import StopScript
from gobrrr.measure import Interval
from gobrrr.timeline.errors import InputError
from gobrrr.verification import programs
from gobrrr.verification.alternation import Alternated
from gobrrr.verification.child import find_fixes
from gobrrr.verification.copies import random_states, set_seeds
from gobrrr.verification.evaluation import Expected
from gobrrr.verification.messages import Computed, Ended, Failed, Go, Ready, Target, Turn
from gobrrr.verification.numerics import NOTHING_COMPARED, compare
from gobrrr.verification.programs import ProgramNull, ProgramTrials
from gobrrr.verification.records import BUCKETS, difference, read_record, read_sketch, sketch
from gobrrr.verification.script_recorder import Recorder
from gobrrr.verification.sides import ScriptTurns
from gobrrr.verification.timing import Null, Timed
from gobrrr.verification.trial import Changes, Measured

pytestmark = pytest.mark.torch

MS = 1_000_000
TRAIN = """
import sys, time
import torch
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 16)
if "--random" in sys.argv:
    torch.manual_seed(time.time_ns() % 2**31)
    torch.nn.init.normal_(model.weight)
for _ in range(100_000):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
"""
FIXES = """
import os, signal, time
from contextlib import contextmanager
from gobrrr.fixes.fix import Fix, RuledOut

def fix(function):
    return Fix(name=function.__name__, title="", leaves=(), may_change=("memory",),
               consider=lambda f: RuledOut("a test"), in_script=contextmanager(function))

def no_sleep():
    usual = time.sleep
    time.sleep = lambda s: None
    yield
    time.sleep = usual

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)
    yield

def hoard():
    import torch
    from gobrrr.fixes.scripts import before_optimizer_steps
    with before_optimizer_steps(lambda optimizer: torch.empty(2_000_000).zero_()):
        yield

def look():
    from gobrrr.fixes.scripts import before_first_call
    with before_first_call(lambda module: None):
        yield

def install():
    from gobrrr.fixes.changes import changed, changes_of
    changed("install")
    yield

def counted(function):
    from dataclasses import replace
    from gobrrr.fixes.changes import changes_of
    return replace(fix(function), changes_made=changes_of(function.__name__))

def nothing():
    yield

FIXES = [*(fix(f) for f in (no_sleep, crash, hoard, look)), counted(install), counted(nothing)]
"""
QUIET = Null(Interval(1.0, 0.99, 1.01), True, 0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scripts")
    (made / "train.py").write_text(TRAIN)
    (made / "teach.py").write_text(
        TRAIN.replace("optimizer =", "teacher = torch.nn.Linear(16, 16)\noptimizer =").replace(
            "model(x).square()", "(model(x) - teacher(torch.nn.ReLU()(x))).square()"
        )
    )
    (made / "asks.py").write_text("name = input('your name? ')\n")
    (made / "fixes.py").write_text(FIXES)
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    return Target("script", str(folder / "train.py"), (), f"{folder / 'fixes.py'}:FIXES",
                  threads=1)  # fmt: skip


@pytest.fixture(scope="module")
def null(target: Target) -> ProgramNull:
    return null_of(target)


def null_of(target: Target, **limits: float) -> ProgramNull:
    trials = ProgramTrials(target, **limits)
    with contextlib.suppress(InputError):
        trials.measure_null(1.0)
    assert trials.turns is not None
    return trials.turns


def named(target: Target, name: str) -> list[Fix]:
    return find_fixes([name], target.registry)


def test_a_plain_script_repeats_itself(null: ProgramNull) -> None:
    assert null.trouble == "" and null.not_deterministic == ""
    assert null.null is not None and null.original is not None
    # Two gradients, two movements, three losses.
    assert len(null.original.gradients) == len(null.original.moved) == 2
    assert len(null.original.losses) == 3
    assert null.original.losses[0] > null.original.losses[2]


def test_a_faster_script_wins(target: Target, null: ProgramNull) -> None:
    known = ProgramNull(QUIET, null.original, null.repeated)
    trial = ProgramTrials(target, turns=known).verify(named(target, "no_sleep"), budget_s=2.0)
    assert trial.verdict == "faster", trial.reason
    assert trial.numerics is not None and trial.numerics["compared"] == 5
    assert trial.peak_memory_bytes is not None and trial.peak_memory_bytes > 1 << 20


def test_the_memory_of_a_step_is_measured_on_both_sides(target: Target, null: ProgramNull) -> None:
    known = ProgramNull(QUIET, null.original, null.repeated)
    trial = ProgramTrials(target, turns=known).verify(named(target, "hoard"), budget_s=1.0)
    before, after = trial.step_memory_before_bytes, trial.step_memory_bytes
    assert before is not None and after is not None
    # 2 million float32, while next to nothing else of the step is alive.
    assert 0 < before < 100_000 and 8_000_000 <= after < 8_100_000


def test_the_modules_that_a_change_came_upon_are_counted(
    folder: Path, target: Target, null: ProgramNull
) -> None:
    teach = Target("script", str(folder / "teach.py"), (), target.registry, threads=1)
    known = ProgramNull(QUIET, null.original, null.repeated)
    trial = ProgramTrials(teach, turns=known).verify(named(target, "look"), budget_s=1.0)
    # Not the activation, which has no parameters.
    assert trial.modules == 2


def test_what_is_changed_before_the_script_starts_counts(target: Target, null: ProgramNull) -> None:
    known = ProgramNull(QUIET, null.original, null.repeated)
    trials = ProgramTrials(target, turns=known)
    assert trials.verify(named(target, "install"), budget_s=0.5).verdict != "not_applied"
    assert trials.verify(named(target, "nothing"), budget_s=0.5).verdict == "not_applied"


def alternated(changed: Computed) -> Alternated:
    """What two processes would have given: the second twice as fast, with this record."""
    ready = Ready(0.02, 1.0, Computed(), 0), Ready(0.01, 4.0, changed, 0)
    timed = Timed((0.02,) * 8, (0.01,) * 8)
    measured = Measured(timed, timed.ratio, (1.0, 4.0), None, 1 << 20, processes=2)
    return Alternated(measured, ready)


def recorded(*losses: float, random: str = "same") -> Computed:
    return Computed(losses=losses, random=random)


@pytest.mark.parametrize(
    ("changed", "not_deterministic", "verdict", "reason"),
    [
        (recorded(3.0, 2.0), "", "faster", "2.00x"),
        (recorded(3.0, 2.5), "", "failed", "against the plain run"),
        (recorded(3.0), "", "failed", "1 losses with the change, 2 without"),
        (recorded(3.0, 2.0), "the script is not deterministic", "incomparable", "not determ"),
        (recorded(3.0, 2.5, random="other"), "", "incomparable", "draws different ones"),
    ],
)
def test_what_a_script_computes_decides_before_its_time(
    monkeypatch: pytest.MonkeyPatch,
    changed: Computed, not_deterministic: str, verdict: str, reason: str,
) -> None:  # fmt: skip
    plain = read_record(recorded(3.0, 2.0))
    null = ProgramNull(QUIET, plain, plain, "", not_deterministic)
    monkeypatch.setattr(programs, "alternate_processes", lambda *_, **__: alternated(changed))
    # The run that draws random numbers as eager code does is another process: here it fails.
    trial = ProgramTrials(Target("script", "/no/such/script.py"), turns=null).verify([fused()])
    assert trial.verdict == verdict and reason in trial.reason
    assert trial.compile_s == pytest.approx(3.0)
    # 3 s at 10 ms a step.
    assert trial.break_even_steps == (300 if verdict == "faster" else None)


def fused() -> Fix:
    return find_fixes(["fused_optimizer"])[0]


def test_a_second_measurement_starts_both_sides_anew_and_compares_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = read_record(recorded(3.0, 2.0))
    # Between processes the program differs from itself more than what the search gives.
    between = Null(Interval(1.5, 1.4, 1.6), False, 0.02)
    asked: dict[str, Any] = {}

    def alternate(before: Any, after: Any, **limits: Any) -> Alternated:
        asked.update(limits, sides=(before.spec.fixes, after.spec.fixes))
        return alternated(recorded(9.0))

    monkeypatch.setattr(programs, "alternate_processes", alternate)
    script = Target("script", "/no/such/script.py")
    of_script = ProgramTrials(script, turns=ProgramNull(between, plain, plain))
    trial = of_script.time_anew([fused()], QUIET, 5.0, 1e6)
    assert asked["sides"] == ((), ("fused_optimizer",))
    assert (asked["budget_s"], asked["most_pairs"]) == (5.0, 2)
    assert asked["start_limit_s"] == programs.START_LIMIT_S
    # 2.00x is beyond QUIET and not beyond what two processes differ by.
    assert trial.verdict == "incomparable"
    alone = ProgramTrials(script).time_anew([fused()], QUIET, 5.0, 1.0)
    assert alone.verdict == "faster"
    assert alone.numerics is None


def test_a_fix_that_crashes_the_script_is_a_failed_trial(target: Target, null: ProgramNull) -> None:
    trial = ProgramTrials(target, turns=null).verify(named(target, "crash"), budget_s=1.0)
    assert trial.verdict == "failed" and "the script with the change crashed with SIGSEGV" in (
        trial.reason
    )


def test_a_script_that_is_not_deterministic_is_incomparable(target: Target) -> None:
    random = Target("script", target.name, ("--random",), target.registry, threads=1)
    null = null_of(random)
    assert "not deterministic" in null.not_deterministic


def test_a_script_without_seeds_repeats_itself(tmp_path: Path) -> None:
    script = tmp_path / "unseeded.py"
    script.write_text(
        "import random, numpy, torch\n"
        "from numpy.random import default_rng\n"
        "draws = default_rng(), numpy.random.default_rng(), numpy.random.RandomState()\n"
        "draws += random.Random(), random.Random()\n"
        "assert len({one.random() for one in draws if hasattr(one, 'random')}) == 5\n"
        "random.seed(); numpy.random.seed(); torch.seed()\n"
        "model = torch.nn.Linear(8, 8)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(100_000):\n"
        "    given = sum(one.random() for one in draws) + numpy.random.rand() + random.random()\n"
        "    optimizer.zero_grad()\n"
        "    model(given + torch.randn(4, 8)).square().mean().backward()\n"
        "    optimizer.step()\n"
    )
    # Without anything that loads torch before the script does.
    null = null_of(Target("script", str(script)))
    assert null.trouble == "" and null.not_deterministic == ""
    assert null.original is not None and null.original.draws


def test_modules_of_torchscript_leave_nothing_to_compare(tmp_path: Path) -> None:
    served = tmp_path / "served.py"
    served.write_text(
        "import torch\n"
        "net = torch.jit.script(torch.nn.Linear(64, 64))\n"
        "for _ in range(100000):\n"
        "    net(torch.ones(8, 64))\n"
    )
    null = null_of(Target("script", str(served), threads=1))
    assert null.not_deterministic == NOTHING_COMPARED, null.trouble


def test_a_script_that_asks_for_input_is_told_apart(folder: Path) -> None:
    asks = Target("script", str(folder / "asks.py"))
    null = null_of(asks)
    assert "reads from its standard input" in null.trouble
    trial = ProgramTrials(asks, turns=null).verify([])
    assert trial.verdict == "failed" and trial.reason == null.trouble


def test_a_script_slow_to_start_is_told_apart(target: Target) -> None:
    slow = Target("script", target.name)
    assert "larger --budget" in null_of(slow, start_limit_s=0.05).trouble


# The child's side, with steps and a clock of the test's own.


class FakeParent:
    def __init__(self, answers: list[Go]) -> None:
        self.answers = answers
        self.told: list[Any] = []

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def ask(self) -> Go:
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


class FakeRecorder:
    complete = True

    def boundary(self, source: str) -> None: ...

    def record(self) -> Computed:
        return Computed()


def run_steps(
    lengths_ms: list[int],
    answers: list[Go],
    restart_at: int = -1,
    sources: Sequence[str] = (),
    step_source: str = "",
) -> Any:
    now = [0]
    parent = FakeParent(answers)
    recorder: Any = FakeRecorder()
    turns = ScriptTurns(parent, recorder, Changes([]), lambda: now[0], step_source)
    turns.start()
    try:
        for number, length in enumerate(lengths_ms):
            now[0] += length * MS
            turns.boundary(sources[number] if sources else "optimizer", number == restart_at)
    except StopScript:
        parent.told.append(Ended(0, number + 1))
    return parent.told


def test_steps_are_warm_once_three_agree() -> None:
    told = run_steps([900, 500, 100, 10, 10, 10, 10, 10, 10], [Go(2), Go(1)])
    assert [type(m) for m in told] == [Ready, Turn, Turn, Ended]
    # The first boundary starts the count; steps 4 to 6 agree. Then 2 + 1 steps are timed.
    assert told[0].step_s == pytest.approx(0.010)
    assert [m.seconds for m in told[1:3]] == [pytest.approx(0.020), pytest.approx(0.010)]
    assert told[-1].steps == 9


def test_warming_up_costs_what_it_took_beyond_warm_steps() -> None:
    told = run_steps([900, 500, 10, 10, 10], [])
    # 900 + 500 + 3 x 10 ms - 5 x 10 ms = 1380 ms
    assert told[0].started_s == pytest.approx(1.380)


def test_a_step_that_turns_out_to_be_another_starts_over() -> None:
    told = run_steps([10, 10, 10, 10, 10, 10, 10], [], restart_at=3)
    assert told[-1] == Ended(0, 7)
    told = run_steps([10] * 8, [Go(3)], restart_at=4)
    assert isinstance(told[-2], Failed) and "changed while it was timed" in told[-2].error


def test_calls_of_a_module_are_no_steps_where_the_diagnosis_knows_of_stronger_ones() -> None:
    # 16 micro-batches of 10 ms before each step of an optimizer.
    cycle = [10] * 16
    told = run_steps(
        cycle * 6, [Go(1)], sources=[*["module"] * 15, "optimizer"] * 6, step_source="optimizer"
    )
    assert [type(m) for m in told] == [Ready, Turn, Ended]
    assert told[0].step_s == pytest.approx(0.160) and told[1].seconds == pytest.approx(0.160)
    # An optimizer that never steps ends no step: the diagnosis knows of none.
    told = run_steps([10] * 6, [], sources=["module"] * 6, step_source="module")
    assert [type(m) for m in told] == [Ready, Ended]


def test_gradients_of_many_micro_batches_are_compared(tmp_path: Path) -> None:
    script = tmp_path / "accumulate.py"
    turn = "if i % 16 == 15: optimizer.step(); optimizer.zero_grad()"
    script.write_text(
        TRAIN.replace("for _ in", "for i in")
        .replace("    optimizer.zero_grad()\n", "")
        .replace("    optimizer.step()\n    time.sleep(0.05)", f"    {turn}")
    )
    trials = ProgramTrials(Target("script", str(script), threads=1))
    trials.step_source = "optimizer"
    trials.measure_null(1.0)
    assert trials.turns is not None and trials.turns.original is not None
    assert trials.turns.not_deterministic == ""
    assert len(trials.turns.original.gradients) == len(trials.turns.original.moved) == 2


def test_the_recorder_sees_what_the_script_computes_and_leaves_no_trace() -> None:
    import torch

    backward = torch.Tensor.backward

    def run(scale: float = 1.0) -> Any:
        set_seeds()
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recorder = Recorder()
        recorder.install()
        for _ in range(4):
            optimizer.zero_grad()
            (scale * model(torch.ones(1, 3)).square().mean()).backward()
            optimizer.step()
            recorder.boundary("optimizer")
        recorder.remove()
        return read_record(recorder.record())

    one, two, other = run(), run(), run(1.5)
    assert torch.Tensor.backward is backward
    same = compare(Expected(one, one, "the first run"), two)
    # Two gradients and three losses.
    assert same.passed and same.compared == 5 and same.error == 0
    assert not compare(Expected(one, one, "the first run"), other).passed


def test_gradients_that_a_closure_computes_are_compared() -> None:
    import torch

    set_seeds()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=1)
    recorder = Recorder()
    recorder.install()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 3)).square().mean()
        loss.backward()
        return loss

    try:
        for _ in range(3):
            optimizer.step(closure)
            recorder.boundary("optimizer")
    finally:
        recorder.remove()
    assert len(recorder.gradients) == 2


def test_outputs_are_compared_where_the_program_marks_its_steps_and_has_no_optimizer() -> None:
    import torch

    from gobrrr.live.steps import EXPLICIT

    model = torch.nn.Linear(3, 2)
    recorder = Recorder()
    watcher: Any = SimpleNamespace(outermost=lambda: model)
    recorder.watcher = watcher
    recorder.install()
    try:
        for _ in range(4):
            model(torch.ones(1, 3))
            recorder.boundary(EXPLICIT)
    finally:
        recorder.remove()
    assert recorder.complete and len(recorder.outputs) == 3


def test_sketches_keep_relative_errors_and_leave_the_random_state() -> None:
    import torch

    set_seeds()
    a = torch.randn(3, 40_000)
    b = a + 0.01 * torch.randn_like(a)
    before = random_states()
    one, two = sketch(a), sketch(b)
    assert random_states() == before
    assert one.shape == (3, 40_000) and read_sketch(one).numel() == BUCKETS
    error = float((read_sketch(two) - read_sketch(one)).norm() / read_sketch(one).norm())
    # 256 sums: the estimate of a norm is good to about 1 / sqrt(2 * 256) = 4 %.
    assert error == pytest.approx(0.01, rel=0.3)
    assert float(read_sketch(difference(two, one)).norm()) == pytest.approx(
        float((read_sketch(two) - read_sketch(one)).norm())
    )
    small = torch.tensor([1.0, float("nan")])
    assert read_sketch(sketch(small)).isnan().tolist() == [False, True]
