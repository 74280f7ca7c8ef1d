"""``gobrrr lab``: the article's claims, measured on this machine."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import positive, require_torch
from gobrrr.cli.progress import Progress
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import whole_seconds

if TYPE_CHECKING:
    from gobrrr.lab.experiment import Experiment
    from gobrrr.lab.running import Finished
    from gobrrr.lab.setting import Setting

DESCRIPTION = """Measure the claims of "Making Deep Learning Go Brrrr From First Principles" on this
machine: the article's number, this device's number, a verdict, a plot and a JSON file for each."""
EXAMPLES = """examples:
  gobrrr lab                          # the list
  gobrrr lab intensity
  gobrrr lab fusion --device cuda --out results
  gobrrr lab all                      # everything, then one page of all
"""

ALL = "all"
PAGE = "index.html"
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr lab``."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an experiment, or all")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one")
    parser.add_argument(
        "--out", type=Path, default=Path("lab"), metavar="DIR", help="output folder (default lab)"
    )
    parser.add_argument(
        "--budget", type=positive, metavar="SECONDS", help="time per experiment (default: its own)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random inputs")


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Prints the list, or runs one experiment or all."""
    parsed = parser.parse_args(arguments)
    if parsed.name is None:
        _list_all()
        return 0
    from gobrrr.lab import experiment_names, find_experiment

    names = experiment_names() if parsed.name == ALL else (parsed.name,)
    # A wrong name is said before torch is asked for.
    experiments = [find_experiment(name) for name in names]
    require_torch("gobrrr lab")
    return _run(experiments, parsed)


def _list_all() -> None:
    from gobrrr.lab import experiment_names, find_experiment
    from gobrrr.reports.terminal import options_for

    columns = options_for(sys.stdout).width
    for name in experiment_names():
        said = f"{name:<13} {find_experiment(name).question}"
        print(textwrap.fill(said, columns, subsequent_indent=" " * 14))
    print("\ngobrrr lab NAME runs one of them on this machine, gobrrr lab all runs all of them.")


def _run(experiments: list[Experiment], parsed: argparse.Namespace) -> int:
    from gobrrr.lab.running import run_all
    from gobrrr.lab.setting import Setting

    device = _choose_device(parsed.device)
    folder: Path = parsed.out
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    progress = Progress(sys.stderr)
    setting = Setting(device=device, seed=parsed.seed, progress=progress.say)
    _prepare(setting, progress)
    finished, not_run = run_all(
        experiments, setting, folder, budget_s=parsed.budget, say=progress.say
    )
    for item in finished:
        _print_outcome(item)
    states = {item.outcome.state for item in finished}
    if len(experiments) > 1:
        _write_page(finished, not_run, folder)
    if "interrupted" in states:
        rest = f"; not run: {', '.join(not_run)}" if not_run else ""
        print(f"\nInterrupted. Finished experiments are in {folder}{rest}.")
        return INTERRUPTED
    problems = [item.outcome for item in finished if item.outcome.state == "failed"]
    if problems:
        listing = "; ".join(f"{outcome.name}: {outcome.reason}" for outcome in problems)
        raise InputError(f"some experiments could not be measured: {listing}")
    if states == {"skipped"}:
        raise InputError("; ".join(f"{i.outcome.name}: {i.outcome.reason}" for i in finished))
    return 0


def _choose_device(wanted: str | None) -> str:
    from gobrrr.devices.backends import gpus_here

    here = any(device.kind in ("cuda", "hip") for _, device in gpus_here())
    if wanted == "cuda" and not here:
        raise InputError("torch sees no GPU here (gobrrr doctor says why); leave out --device cuda")
    return wanted or ("cuda" if here else "cpu")


def _prepare(setting: Setting, progress: Progress) -> None:
    """Measures ceilings before any experiment's clock starts."""
    from gobrrr.devices import ceilings_for_this_machine

    ceilings_for_this_machine(
        kind="gpu" if setting.is_gpu else "cpu",
        progress=lambda done, total, what: progress(f"ceilings: {what}", done, total),
    )
    progress.end()


def _print_outcome(item: Finished) -> None:
    from gobrrr.lab.page import measured_text, range_text

    outcome = item.outcome
    took = whole_seconds(outcome.duration_s)
    print(f"\n{outcome.name} · {outcome.title} · {outcome.device} · {took}")
    for claim in outcome.claims:
        print(f"  {claim.verdict.upper()}: {claim.claim}")
        print(f"    article  {claim.article}")
        if claim.value is not None:
            print(f"    here     {measured_text(claim)}: {claim.quantity}")
            print(f"    range    {range_text(claim)}")
        print(f"    because  {claim.because}")
    for note in outcome.notes:
        print(f"  {note}")
    if item.plot_problem:
        print(f"  {item.plot_problem}")
    print(f"  {', '.join(str(path) for path in item.files)}")


def _write_page(finished: list[Finished], not_run: list[str], folder: Path) -> None:
    from gobrrr.lab.page import render_page
    from gobrrr.lab.storage import save_page

    page = folder / PAGE
    save_page(render_page([item.outcome for item in finished], folder, not_run), page)
    print(f"\nAll results on one page: {page}")
