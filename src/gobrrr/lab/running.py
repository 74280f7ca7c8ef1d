"""Run experiments one after the other, keeping what is finished whatever happens next."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gobrrr.devices import identify
from gobrrr.diagnosis.environment import describe_environment
from gobrrr.lab.drawing import new_figure, plots_possible
from gobrrr.lab.experiment import (
    Experiment,
    Findings,
    Judged,
    Outcome,
    SkipExperimentError,
    judge,
)
from gobrrr.lab.setting import Setting, forget_compilations
from gobrrr.lab.storage import make_folder, save_outcome, save_plot
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.quantities import percent

Say = Callable[[str], None]

# Where threads wait longer than this share of the time they want a processor, times are no verdict.
DISTURBED = 0.2


@dataclass(frozen=True)
class Finished:
    """An outcome and the files it was written to."""

    outcome: Outcome
    files: tuple[Path, ...]
    plot_problem: str = ""


def run_experiment(experiment: Experiment, setting: Setting) -> Outcome:
    """Runs one experiment and judges its claims.

    An interruption (Ctrl-C) and an error become part of the outcome, with every claim that has no
    measurement as "cannot tell".
    """
    setting = replace(setting, started_ns=setting.clock.now_ns(), loads=[])
    state: Any = "complete"
    reason = ""
    findings = Findings({}, [])
    try:
        if setting.device not in experiment.devices:
            raise SkipExperimentError(f"it needs {' or '.join(experiment.devices)}")
        with _as_found():
            findings = experiment.run(setting)
    except SkipExperimentError as error:
        state, reason = "skipped", str(error)
    except KeyboardInterrupt:
        state, reason = "interrupted", "interrupted before it was finished"
    except MemoryError:
        state, reason = "failed", "this machine has too little memory for it"
    except Exception as error:
        state, reason = "failed", one_sentence(error)
    notes = list(findings.notes)
    claims = _judge_all(experiment, findings, reason)
    waiting = setting.waiting_share()
    if waiting is not None and waiting > DISTURBED and not setting.is_gpu:
        notes.append(_doubt(experiment, claims, waiting))
    device = identify("gpu" if setting.is_gpu else "cpu")
    return Outcome(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        state=state,
        reason=reason,
        device=device.name,
        device_kind=device.kind,
        date=datetime.date.today().isoformat(),
        duration_s=(setting.clock.now_ns() - setting.started_ns) * 1e-9,
        waiting_share=waiting,
        seed=setting.seed,
        claims=claims,
        rows=findings.rows,
        context=dict(findings.context),
        notes=notes,
        environment=describe_environment(),
    )


def _doubt(experiment: Experiment, claims: list[Judged], waiting: float) -> str:
    """Takes back verdicts on times that were taken on a busy machine; says why."""
    timed = {claim.key for claim in experiment.claims if claim.timed}
    why = f"its threads spent {percent(waiting)} of their runnable time waiting for a processor"
    for found in claims:
        if found.key in timed and found.verdict != "cannot tell":
            found.because = f"{why}. Without that it would read: {found.verdict}. {found.because}"
            found.verdict = "cannot tell"
    return f"The machine was busy: {why}. Timed claims are left undecided."


def _judge_all(experiment: Experiment, findings: Findings, reason: str) -> list[Judged]:
    unknown = set(findings.answers) - {claim.key for claim in experiment.claims}
    assert not unknown, f"{experiment.name} answers claims it does not make: {sorted(unknown)}"
    judged = []
    for claim in experiment.claims:
        found = judge(claim, findings.answers.get(claim.key))
        if reason and claim.key not in findings.answers:
            found.because = reason
        judged.append(found)
    return judged


def one_sentence(error: BaseException) -> str:
    """What an error says, as one line. Compilers and out-of-memory errors say pages."""
    import sys

    text = " ".join(str(error).split())
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return "this device has too little memory for it"
    if "can't allocate memory" in text or "DefaultCPUAllocator" in text:
        return "this machine has too little memory for it"
    if "InvalidCxxCompiler" in type(error).__name__ or "No working C++ compiler" in text:
        return "torch.compile found no working C++ compiler (install g++)"
    if isinstance(error, GobrrrError):
        return text
    return f"{type(error).__name__}: {text[:300]}"


@contextmanager
def _as_found() -> Iterator[None]:
    """Puts global settings of torch back that experiments change."""
    import torch

    threads = torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    grad = torch.is_grad_enabled()
    forget_compilations()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_grad_enabled(grad)
        forget_compilations()


def write_outcome(experiment: Experiment, outcome: Outcome, folder: Path) -> Finished:
    """Writes ``<folder>/<name>.json`` and, if there are rows to draw, the plots.

    A plot that cannot be drawn is one sentence in the answer: the numbers are kept.
    Raises InputError where the folder cannot be written.
    """
    result = folder / f"{outcome.name}.json"
    save_outcome(outcome, result)
    if not outcome.rows:
        return Finished(outcome, (result,))
    if not plots_possible():
        problem = "no plot: matplotlib is not installed (pip install 'gobrrr[lab]')"
        return Finished(outcome, (result,), problem)
    try:
        plots = draw_outcome(experiment, outcome, folder / outcome.name)
    except GobrrrError:
        raise
    except Exception as error:
        return Finished(outcome, (result,), f"no plot: {one_sentence(error)}")
    return Finished(outcome, (result, *plots))


def draw_outcome(experiment: Experiment, outcome: Outcome, stem: Path) -> list[Path]:
    """Draws a (saved) outcome as ``<stem>.svg`` and ``<stem>.png``; returns the paths."""
    with new_figure() as figure:
        experiment.draw(outcome, figure)
        return save_plot(figure, stem)


def run_all(
    experiments: Iterable[Experiment],
    setting: Setting,
    folder: Path,
    *,
    budget_s: float | None,
    say: Say,
) -> tuple[list[Finished], list[str]]:
    """Runs experiments in turn, each written as soon as it is done.

    ``budget_s`` replaces each experiment's own budget. Returns what was finished and the names
    that were not begun: an interruption ends the one that runs and all after it.
    """
    # Before anything is measured, not after.
    make_folder(folder)
    finished: list[Finished] = []
    waiting = list(experiments)
    while waiting:
        experiment = waiting.pop(0)
        say(f"{experiment.name}: {experiment.question}")
        own = replace(setting, budget_s=budget_s or experiment.budget_s)
        outcome = run_experiment(experiment, own)
        finished.append(write_outcome(experiment, outcome, folder))
        if outcome.state != "complete":
            say(f"{experiment.name} {outcome.state}: {outcome.reason}")
        if outcome.state == "interrupted":
            break
    return finished, [experiment.name for experiment in waiting]
