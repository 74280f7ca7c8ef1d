"""Runs every experiment of ``gobrrr lab``; writes all outcomes into one file, and the plots.

``--from DIR`` takes outcomes that ``gobrrr lab`` has written there instead of measuring.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import msgspec

from gobrrr.devices import ceilings_for_this_machine
from gobrrr.lab import experiment_names, find_experiment
from gobrrr.lab.experiment import Outcome
from gobrrr.lab.running import run_all
from gobrrr.lab.setting import Setting
from gobrrr.lab.storage import PLOT_FORMATS, load_outcome
from gobrrr.timeline.files import write_atomically

PLOTS = Path(__file__).parents[2] / "docs" / "lab"


def measure(folder: Path) -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Before any experiment's time begins.
    ceilings_for_this_machine(kind="gpu" if device == "cuda" else "cpu")
    experiments = [find_experiment(name) for name in experiment_names()]
    run_all(experiments, Setting(device=device), folder, budget_s=None, say=print)


def collect(folder: Path, out: Path, plots: Path) -> None:
    """One file of all outcomes found in ``folder``, and their plots."""
    outcomes: list[Outcome] = []
    for name in experiment_names():
        path = folder / f"{name}.json"
        if not path.exists():
            print(f"{name}: not there")
            continue
        outcomes.append(load_outcome(path))
        for form in PLOT_FORMATS:
            plot = folder / f"{name}.{form}"
            if plot.exists():
                plots.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(plot, plots / plot.name)
    for outcome in outcomes:
        verdicts = [claim.verdict for claim in outcome.claims]
        print(f"{outcome.name:<13} {outcome.duration_s:5.1f} s  {', '.join(verdicts)}")
    content = msgspec.json.format(msgspec.json.encode({"outcomes": outcomes}), indent=1)
    write_atomically(out, content + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plots", type=Path, default=PLOTS)
    parser.add_argument("--from", dest="folder", type=Path)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        collect(arguments.folder, arguments.out, arguments.plots)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))
        collect(Path(folder), arguments.out, arguments.plots)


if __name__ == "__main__":
    main()
