"""Runs every experiment of ``gobrrr lab``; writes all outcomes into one file, and the plots.

``--from DIR`` takes outcomes that ``gobrrr lab`` has written there instead of measuring.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from benchmarks.command import Record, parser

from gobrrr.devices import ceilings_for_this_machine
from gobrrr.lab import experiment_names, find_experiment
from gobrrr.lab.experiment import Outcome
from gobrrr.lab.running import run_all
from gobrrr.lab.setting import Setting
from gobrrr.lab.storage import PLOT_FORMATS, load_outcome

PLOTS = Path(__file__).parents[2] / "docs" / "lab"
# With --quick: the experiments that take the least, and how long they may take together.
QUICK, QUICK_S = ("overhead",), 20.0


def measure(folder: Path, names: Sequence[str], budget_s: float | None) -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Before any experiment's time begins.
    ceilings_for_this_machine(kind="gpu" if device == "cuda" else "cpu")
    experiments = [find_experiment(name) for name in names]
    run_all(experiments, Setting(device=device), folder, budget_s=budget_s, say=print)


def collect(folder: Path, names: Sequence[str], record: Record, plots: Path | None) -> None:
    """One file of all outcomes found in ``folder``, and their plots (``None``: without)."""
    outcomes: list[Outcome] = []
    for name in names:
        path = folder / f"{name}.json"
        if not path.exists():
            print(f"{name}: not there")
            continue
        outcomes.append(load_outcome(path))
        for form in PLOT_FORMATS:
            plot = folder / f"{name}.{form}"
            if plots is not None and plot.exists():
                plots.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(plot, plots / plot.name)
    for outcome in outcomes:
        verdicts = [claim.verdict for claim in outcome.claims]
        print(f"{outcome.name:<13} {outcome.duration_s:5.1f} s  {', '.join(verdicts)}")
    record.write({"outcomes": msgspec.to_builtins(outcomes)})


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--plots", type=Path, default=PLOTS)
    options.add_argument("--from", dest="folder", type=Path)
    arguments = options.parse_args()
    names = QUICK if arguments.quick else tuple(experiment_names())
    plots = None if arguments.quick else arguments.plots
    record = Record("lab", arguments)
    if arguments.folder is not None:
        collect(arguments.folder, names, record, plots)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), names, QUICK_S if arguments.quick else None)
        collect(Path(folder), names, record, plots)


if __name__ == "__main__":
    main()
