"""Calls of torch's Python functions that no operator tells of, seen while steps are diagnosed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.attention.dropout import watching_attention
from gobrrr.fixes.gradients import counting_checkpoints
from gobrrr.fixes.patterns.training_by_hand import watching_kept_graphs


@contextmanager
def watching_calls() -> Iterator[Callable[[Facts], Facts]]:
    """Yields what adds the calls so far to facts."""
    with (
        counting_checkpoints() as checkpoints,
        watching_kept_graphs() as kept,
        watching_attention() as attention,
    ):
        yield lambda facts: replace(
            facts, checkpoints=checkpoints[0] > 0, graphs_kept=tuple(kept),
            attention_calls=tuple(attention),
        )  # fmt: skip
