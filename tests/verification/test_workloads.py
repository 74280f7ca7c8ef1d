"""Trials in this process: what peers credited as wins, and what must leave no trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gobrrr.diagnosis.fix_schema import Verification
from gobrrr.fixes.fix import Fix, RuledOut
from gobrrr.measure import FakeClock, Interval
from gobrrr.timeline.workload import Workload
from gobrrr.verification import workloads
from gobrrr.verification.timing import Null, Timed, never
from gobrrr.verification.workloads import measure_null, prepare, verify_workload

pytestmark = pytest.mark.torch

MS = 1_000_000
CLOCK = FakeClock()


def fix(apply: Callable[..., Iterator[Workload]] | None, name: str = "change") -> Fix:
    return Fix(
        name=name, title=name, leaves=(), may_change=(), consider=lambda facts: RuledOut("a test"),
        apply=None if apply is None else contextmanager(apply),
    )  # fmt: skip


def timed_model(step_ms: float = 10.0) -> Any:
    """A small model whose call takes ``step_ms`` on the tests' clock."""
    import torch

    class Timed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.step_ms = step_ms

        def forward(self, x: Any) -> Any:
            CLOCK.advance(int(self.step_ms * MS))
            return self.inner(x)

    torch.manual_seed(0)
    return Timed()


def inference() -> Workload:
    import torch

    return Workload(timed_model(), torch.ones(2, 4))


def training() -> Workload:
    import torch

    model = timed_model()
    return Workload(model, torch.ones(2, 4), lambda y: y.square().mean(),
                    torch.optim.SGD(model.parameters(), lr=0.1))  # fmt: skip


def tried(work: Any, *fixes: Fix, **options: Any) -> Verification:
    return verify_workload(work, fixes, clock=CLOCK, budget_s=3.0, **options)


def faster(work: Workload) -> Iterator[Workload]:
    work.model.step_ms = 5.0
    yield work


def nothing(work: Workload) -> Iterator[Workload]:
    yield work


def test_a_fix_that_does_nothing_is_the_same() -> None:
    trial = tried(inference(), fix(nothing))
    assert trial.verdict == "same"
    assert trial.speedup is not None and trial.speedup.median == pytest.approx(1.0)
    assert not trial.won and trial.break_even_steps is None


def test_no_fix_at_all_is_the_same() -> None:
    assert tried(training()).verdict == "same"


def test_a_faster_step_wins() -> None:
    trial = tried(training(), fix(faster))
    assert trial.verdict == "faster" and trial.won
    assert trial.speedup is not None and trial.speedup.median == pytest.approx(2.0)
    assert trial.before_s == pytest.approx(0.010) and trial.after_s == pytest.approx(0.005)
    assert trial.numerics is not None and trial.numerics["compared"] == 6  # 1 + 2 + 3 losses


def test_a_change_that_changed_nothing_had_no_effect() -> None:
    silent = replace(fix(faster), changes_made=lambda: 0.0)
    trial = tried(training(), silent)
    assert trial.verdict == "not_applied" and "had no effect" in trial.reason
    # Times that differ by chance are told to nobody.
    assert not trial.won and trial.speedup is None
    calls = iter(range(100))
    seen = replace(fix(faster), changes_made=lambda: float(next(calls)))
    assert tried(training(), seen).verdict == "faster"


def test_a_slower_step_is_slower() -> None:
    def slower(work: Workload) -> Iterator[Workload]:
        work.model.step_ms = 12.5
        yield work

    trial = tried(inference(), fix(slower))
    assert trial.verdict == "slower" and trial.break_even_steps is None


def test_faster_than_light_is_work_eliminated() -> None:
    assert tried(inference(), fix(faster), speed_of_light_s=0.008).verdict == "eliminated_work"
    assert tried(inference(), fix(faster), speed_of_light_s=0.004).verdict == "faster"


def test_faster_but_wrong_has_failed() -> None:
    def wrong(work: Workload) -> Iterator[Workload]:
        import torch

        work.model.step_ms = 1.0
        with torch.no_grad():
            work.model.inner.weight[0, 0] += 1.0
        yield work

    trial = tried(training(), fix(wrong))
    assert trial.verdict == "failed" and trial.numerics is not None
    assert trial.numerics["verdict"] == "failed"


def test_nan_fails() -> None:
    def poison(work: Workload) -> Iterator[Workload]:
        import torch

        torch.nn.init.constant_(work.model.inner.bias, float("nan"))
        yield work

    trial = tried(inference(), fix(poison))
    assert trial.verdict == "failed" and "NaN" in trial.reason


def test_a_fix_that_raises_is_a_failed_trial() -> None:
    def at_once(work: Workload) -> Iterator[Workload]:
        raise OSError("no compiler here")
        yield work

    def later(work: Workload) -> Iterator[Workload]:
        yield replace(work, model=lambda x: 1 / 0)

    trial = tried(inference(), fix(at_once))
    assert (trial.verdict, trial.reason) == ("failed", "OSError: no compiler here")
    assert "ZeroDivisionError" in tried(inference(), fix(later)).reason


def test_a_leaked_setting_fails_the_trial_and_is_put_back() -> None:
    import torch

    def leak(work: Workload) -> Iterator[Workload]:
        torch.set_float32_matmul_precision("medium")
        work.model.step_ms = 1.0
        yield work

    before = torch.get_float32_matmul_precision()
    trial = tried(inference(), fix(leak))
    assert trial.verdict == "failed" and "float32 matmul precision" in trial.reason
    assert torch.get_float32_matmul_precision() == before


def test_a_setting_left_by_an_exception_is_put_back() -> None:
    import torch

    def leak(work: Workload) -> Iterator[Workload]:
        torch.set_num_threads(torch.get_num_threads() + 1)
        raise RuntimeError("too late")
        yield work

    threads = torch.get_num_threads()
    trial = tried(inference(), fix(leak))
    assert trial.verdict == "failed" and "number of threads" in trial.reason
    assert torch.get_num_threads() == threads


def test_the_original_runs_under_its_own_settings_in_its_turns() -> None:
    import torch

    seen: dict[str, set[str]] = {"before": set(), "after": set()}

    class Watching(torch.nn.Module):
        name = "before"

        def forward(self, x: Any) -> Any:
            seen[self.name].add(torch.get_float32_matmul_precision())
            CLOCK.advance(10 * MS)
            return x + 1

    def set_and_undo(work: Workload) -> Iterator[Workload]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        work.model.name = "after"
        yield work
        torch.set_float32_matmul_precision(before)

    usual = torch.get_float32_matmul_precision()
    trial = tried(Workload(Watching(), torch.ones(2)), fix(set_and_undo))
    assert trial.verdict == "same"
    assert seen == {"before": {usual}, "after": {"medium"}}


def test_a_setting_that_cannot_be_switched_for_the_original_fails() -> None:
    import torch

    def for_all(work: Workload) -> Iterator[Workload]:
        with torch.inference_mode():
            yield work

    trial = tried(inference(), fix(for_all))
    assert trial.verdict == "failed" and "inference mode" in trial.reason
    assert not torch.is_inference_mode_enabled()


def test_the_users_objects_are_left_as_they_were() -> None:
    import torch

    work = training()
    before = [p.detach().clone() for p in work.model.parameters()]
    state = torch.get_rng_state()
    tried(work, fix(faster))
    assert all(torch.equal(a, b) for a, b in zip(before, work.model.parameters()))
    assert work.model.step_ms == 10.0 and not work.optimizer.state
    assert torch.equal(torch.get_rng_state(), state)


def test_a_step_that_leaves_nothing_is_refused() -> None:
    import torch

    x = torch.ones(64)

    def dead() -> None:
        CLOCK.advance(10 * MS)
        x.cos()

    trial = tried(dead, fix(nothing))
    assert trial.verdict == "failed" and "returns nothing" in trial.reason
    assert trial.speedup is None


def test_tensors_that_outlive_a_bare_call_are_its_outputs() -> None:
    import torch

    total, parameter = torch.zeros(4), torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.5)

    def step() -> None:
        CLOCK.advance(10 * MS)
        total.add_(1.0)
        optimizer.zero_grad()
        (parameter * 3).sum().backward()
        optimizer.step()

    prepared = prepare(step)
    assert prepared.trouble == "" and prepared.expected is not None
    # total, the parameter, and its gradient.
    assert len(prepared.expected.original.outputs) == 3
    trial = tried(step, fix(nothing), baseline=prepared)
    assert trial.verdict == "same"
    assert total.tolist() == [0.0] * 4 and parameter.tolist() == [1.0] * 4

    def skip_it(work: Workload) -> Iterator[Workload]:
        yield replace(work, model=lambda: CLOCK.advance(MS))

    assert tried(step, fix(skip_it)).verdict == "failed"


def test_dropout_drawn_otherwise_is_incomparable() -> None:
    import torch

    class Noisy(torch.nn.Module):
        draws = 1

        def forward(self, x: Any) -> Any:
            CLOCK.advance(10 * MS)
            for _ in range(self.draws):
                noise = torch.rand_like(x)
            return x + noise

    def draws_more(work: Workload) -> Iterator[Workload]:
        work.model.draws = 2
        yield work

    work = Workload(Noisy(), torch.ones(8))
    assert tried(work, fix(nothing)).verdict == "same"
    trial = tried(work, fix(draws_more))
    assert trial.verdict == "incomparable" and "random numbers" in trial.reason
    assert trial.speedup is not None


def test_a_machine_too_noisy_tells_nothing() -> None:
    import torch

    class Uneven(torch.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            Uneven.calls += 1
            CLOCK.advance((5 + 7919 * Uneven.calls % 23) * MS)
            return x * 2

    work = Workload(Uneven(), torch.ones(2))
    null = measure_null(work, budget_s=1.0, clock=CLOCK)
    assert not null.quiet
    trial = tried(work, fix(nothing), null=null)
    assert trial.verdict == "incomparable" and "too noisy" in trial.reason


def test_a_fix_without_a_way_to_apply_it_is_refused() -> None:
    assert tried(inference(), fix(None)).verdict == "failed"


def test_an_original_that_raises_fails_every_trial() -> None:
    def broken() -> None:
        raise KeyError("weights")

    trial = tried(broken, fix(nothing))
    assert trial.verdict == "failed" and "unchanged step raised KeyError" in trial.reason


def test_a_compiler_may_not_delete_what_nobody_reads() -> None:
    import torch

    x = torch.rand(32)

    def unused() -> None:
        for _ in range(50):
            x.cos()

    def compiled(work: Workload) -> Iterator[Workload]:
        yield replace(work, model=torch.compile(work.model, backend="aot_eager"))

    trial = verify_workload(unused, [fix(compiled)], budget_s=0.2)
    assert not trial.won and trial.speedup is None


def test_a_trial_survives_the_way_to_another_process_and_into_a_diagnosis() -> None:
    import msgspec

    from gobrrr.verification.messages import Answer, Tried

    trial = tried(training(), fix(faster))
    sent = msgspec.msgpack.encode(Tried(trial))
    assert msgspec.msgpack.decode(sent, type=Answer) == Tried(trial)
    record = msgspec.json.decode(msgspec.json.encode(trial), type=Verification)
    assert record == trial and record.fixes == ["change"]


@pytest.mark.parametrize(("left_s", "extends"), [(9.0, False), (1e6, True)])
def test_a_trial_is_timed_longer_only_where_it_is_not_ended_before(
    left_s: float, extends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def take_turns(*sides: Any, undecided: Any, **more: Any) -> Timed:
        given.append(undecided)
        return Timed((0.01,) * 8, (0.01,) * 8)

    monkeypatch.setattr(workloads, "take_turns", take_turns)
    null = Null(Interval(1.0, 0.99, 1.01), True, 0.01)
    # Two seconds may become eight, and two more are for what comes after.
    trial = verify_workload(
        inference(), [], null=null, budget_s=2.0, clock=CLOCK, deadline=time.monotonic() + left_s
    )
    assert trial.verdict == "same"
    assert (given[0] is not never) is extends
