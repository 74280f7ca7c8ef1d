"""The article's claims as experiments, one module each. Imported by the command alone.

To add one: a module with an ``EXPERIMENT``, and its name here.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from gobrrr.timeline.errors import InputError

if TYPE_CHECKING:
    from gobrrr.lab.experiment import Experiment

# Name as typed -> module, in the article's order.
EXPERIMENTS: tuple[tuple[str, str], ...] = (
    ("tensor-cores", "gobrrr.lab.tensor_cores"),
    ("op-classes", "gobrrr.lab.op_classes"),
    ("fusion", "gobrrr.lab.fusion"),
    ("activations", "gobrrr.lab.activations"),
    ("intensity", "gobrrr.lab.intensity"),
    ("overhead", "gobrrr.lab.overhead"),
    ("run-ahead", "gobrrr.lab.run_ahead"),
    ("batch", "gobrrr.lab.batch"),
    ("remat", "gobrrr.lab.remat"),
    ("generations", "gobrrr.lab.generations"),
    ("dit", "gobrrr.lab.dit"),
    ("regimes", "gobrrr.lab.regimes"),
)


def experiment_names() -> tuple[str, ...]:
    """All names, in the article's order."""
    return tuple(name for name, _ in EXPERIMENTS)


def find_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    for known, module in EXPERIMENTS:
        if known == name:
            found: Experiment = import_module(module).EXPERIMENT
            return found
    there = f"there are {', '.join(experiment_names())} and all"
    near = difflib.get_close_matches(name, experiment_names(), n=1)
    hint = f"did you mean {near[0]}? {there[0].upper()}{there[1:]}" if near else there
    raise InputError(f"no experiment {name!r}; {hint}")
