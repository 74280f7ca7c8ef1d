"""Fixes that crash, hang or take all memory: a failed trial, and this process lives on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr.diagnosis.fix_schema import Verification
from gobrrr.fixes.fix import Fix
from gobrrr.timeline.errors import InputError
from gobrrr.verification.child import find_fixes
from gobrrr.verification.messages import TAKE_TURNS, Failed, Spec, Target
from gobrrr.verification.processes import Child, ChildFailed, joined_environment, merged_environment
from gobrrr.verification.programs import ProgramTrials

pytestmark = pytest.mark.torch

BENCH = """
import argparse
# As scripts do that were not written to be imported.
argparse.ArgumentParser().parse_args()
import torch
import gobrrr

def make():
    torch.manual_seed(0)
    return gobrrr.Workload(torch.nn.Linear(8, 8), torch.ones(2, 8))

def chain():
    x = torch.rand(256)
    return lambda: x.cos().sin()

def broken():
    raise OSError("no data here")

def leaving():
    raise SystemExit(3)
"""
FIXES = """
import os, signal, time
from contextlib import contextmanager
from dataclasses import replace
import torch
from gobrrr.fixes.fix import Fix, RuledOut

def fix(name, apply=None, **more):
    return Fix(name=name, title=name, leaves=(), may_change=(), consider=lambda f: RuledOut("test"),
               apply=apply and contextmanager(apply), **more)

def nothing(work):
    yield work

def crash(work):
    os.kill(os.getpid(), signal.SIGSEGV)
    yield work

def hang(work):
    time.sleep(3600)
    yield work

def hoard(work):
    yield replace(work, model=lambda x: torch.ones(1 << 40, dtype=torch.uint8).sum() + x)

def threads(work):
    torch.set_num_threads(torch.get_num_threads() + 1)
    yield work

FIXES = [fix(f.__name__, f) for f in (nothing, crash, hang, hoard, threads)]
FIXES.append(fix("variable", environment={"GOBRRR_TEST_SET": "1"}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("functions")
    (made / "bench.py").write_text(BENCH)
    (made / "fixes.py").write_text(FIXES)
    return made


@pytest.fixture(scope="module")
def registry(folder: Path) -> str:
    return f"{folder / 'fixes.py'}:FIXES"


@pytest.fixture(scope="module")
def trials(folder: Path, registry: str) -> Iterator[ProgramTrials]:
    target = f"{folder / 'bench.py'}:make"
    limited = Target("function", target, (), registry, memory_limit_bytes=8 << 30, threads=1)
    with ProgramTrials(limited) as made:
        made.measure_null(0.2)
        yield made


def named(registry: str, *names: str) -> list[Fix]:
    return find_fixes(names, registry)


def tried(trials: ProgramTrials, registry: str, name: str) -> Verification:
    return trials.verify(named(registry, name), budget_s=0.5)


def test_a_fix_that_does_nothing_is_no_win(trials: ProgramTrials, registry: str) -> None:
    trial = tried(trials, registry, "nothing")
    # On a machine with other load the null may be too noisy; a win it is never.
    assert trial.verdict in ("same", "incomparable"), trial.reason
    assert trial.numerics is not None and trial.numerics["verdict"] == "passed"
    assert trial.before_s is not None and trial.before_s > 0


def test_a_crash_is_a_failed_trial_and_the_next_trial_runs(
    trials: ProgramTrials, registry: str
) -> None:
    trial = tried(trials, registry, "crash")
    assert trial.verdict == "failed" and "SIGSEGV" in trial.reason
    after = tried(trials, registry, "threads")
    assert after.verdict == "failed" and "number of threads" in after.reason


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_too_much_memory_is_a_failed_trial(trials: ProgramTrials, registry: str) -> None:
    trial = tried(trials, registry, "hoard")
    assert trial.verdict == "failed" and "memory" in trial.reason


def test_a_hang_is_ended(folder: Path, registry: str) -> None:
    target = f"{folder / 'bench.py'}:make"
    with ProgramTrials(Target("function", target, (), registry, threads=1)) as trials:
        trials.measure_null(0.2)
        trials.time_limit_s = 3.0
        trial = tried(trials, registry, "hang")
    assert trial.verdict == "failed" and "hangs" in trial.reason


def test_a_function_that_raises_is_said(folder: Path, registry: str) -> None:
    trials = ProgramTrials(Target("function", f"{folder / 'bench.py'}:broken", (), registry))
    with trials, pytest.raises(InputError, match="no data here"):
        trials.measure_null(0.2)


def test_a_function_that_leaves_is_said(folder: Path, registry: str) -> None:
    trials = ProgramTrials(Target("function", f"{folder / 'bench.py'}:leaving", (), registry))
    with trials, pytest.raises(InputError, match=r"ended with sys.exit\(3\)"):
        trials.measure_null(0.2)


def test_variables_need_processes_that_take_turns(folder: Path, registry: str) -> None:
    target = Target("function", f"{folder / 'bench.py'}:chain", (), registry, threads=1)
    with ProgramTrials(target) as trials:
        trial = tried(trials, registry, "variable")
    assert trial.verdict in ("same", "incomparable"), trial.reason
    assert trial.numerics is not None and trial.numerics["compared"] == 1
    assert trial.peak_memory_bytes is not None and trial.peak_memory_bytes > 1 << 20


def test_a_child_that_is_frozen_says_nothing_until_it_may_go_on() -> None:
    with Child(Spec("no_such_module:job", Target("script", ""))) as child:
        child.freeze()
        with pytest.raises(ChildFailed, match="did not respond"):
            child.receive(0.2, "while it was frozen")


def test_a_child_that_ends_says_how() -> None:
    with Child(Spec(TAKE_TURNS, Target("script", "/no/such/file.py"))) as child:
        answer = child.receive(60.0, "while it started")
        assert isinstance(answer, Failed) and "no such file" in answer.error
        with pytest.raises(ChildFailed, match="exit code 0 while it was asked again"):
            child.receive(60.0, "while it was asked again")


def test_tunables_are_joined_and_others_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    wanted = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_NUM_THREADS": "2"}
    assert merged_environment(wanted) == {
        "GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1",
        "OMP_NUM_THREADS": "2",
    }
    assert joined_environment([{"A": "1"}, {"A": "2"}]) == {"A": "2"}


def test_an_interruption_ends_the_child(
    folder: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Child] = []

    def interrupted(child: Child, timeout_s: float, doing: str) -> None:
        begun.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "receive", interrupted)
    target = Target("function", f"{folder / 'bench.py'}:make", (), registry)
    script = Target("script", f"{folder / 'bench.py'}", (), registry)
    for program in (target, script):
        with pytest.raises(KeyboardInterrupt):
            ProgramTrials(program).measure_null(0.2)
    assert len(begun) == 2
    # Ended and waited for: nothing runs on behind a program that was stopped.
    assert all(child._process.returncode is not None for child in begun)
