"""Programs of PyTorch's corners, a file per topic; each with what must come out."""

from __future__ import annotations

from benchmarks.breadth.case import Case
from benchmarks.breadth.programs import (
    attention,
    convolutions,
    embeddings,
    forms,
    indexing_and_random,
    losses_and_activations,
    networks,
    optimizers,
    pipelines,
    quantised,
    recurrent,
    spectral_and_linear_algebra,
    transforms,
)

_TOPICS = (
    recurrent, attention, embeddings, spectral_and_linear_algebra, convolutions,
    losses_and_activations, indexing_and_random, transforms, quantised, optimizers, forms, networks,
    pipelines,
)  # fmt: skip


def all_programs() -> list[Case]:
    """All programs, in the order of the topics; names are unique."""
    cases = [case for topic in _TOPICS for case in topic.PROGRAMS.cases.values()]
    names = {case.name for case in cases}
    if len(names) != len(cases):
        raise ValueError("two programs of different topics have one name")
    return cases
