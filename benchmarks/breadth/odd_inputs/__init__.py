"""Odd and bad inputs, each with the kind of answer that it must get."""

from __future__ import annotations

from benchmarks.breadth.odd_inputs import programs, settings, sizes_and_values
from benchmarks.breadth.odd_inputs.case import OddInput


def all_odd_inputs() -> list[OddInput]:
    """All of them, in the order of the files."""
    files = (sizes_and_values, programs, settings)
    return [question for file in files for question in file.QUESTIONS.cases.values()]
