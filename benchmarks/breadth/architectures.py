"""All architectures: every type of transformers that ``architectures.json`` has, and diffusers'."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from benchmarks.breadth import diffusers_models, transformers_models
from benchmarks.breadth.case import Case

TABLE = Path(__file__).with_name("architectures.json")
LIVE = 60


def all_architectures() -> list[Case]:
    """All of them by name, ``transformers/TYPE`` and ``diffusers/CLASS``."""
    networks = json.loads(TABLE.read_text())["networks"]
    cases = [
        Case(
            f"transformers/{model_type}",
            "architecture",
            functools.partial(
                transformers_models.build, model_type, transformers_models.Recipe(**row)
            ),
        )
        for model_type, row in networks.items()
    ]
    cases += [
        Case(f"diffusers/{name}", "architecture", build)
        for name, build in diffusers_models.all_models().items()
    ]
    return sorted(cases, key=lambda case: case.name)


def live_architectures() -> list[Case]:
    """The sixty that are diagnosed live, evenly spread over the sorted names."""
    cases = all_architectures()
    return [cases[number * len(cases) // LIVE] for number in range(LIVE)]
