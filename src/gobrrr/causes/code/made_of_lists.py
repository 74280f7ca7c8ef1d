"""Tensors that are made of lists of arrays or of tensors, and of tensors: element by element."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import most_at
from gobrrr.diagnosis.facts import Facts
from gobrrr.observe.program_facts import MadeFact
from gobrrr.timeline.quantities import count, percent, time_text

# What stacking the same numbers takes: bytes at the rate of a copy in cache or memory, and a call.
_STACKED_BYTES_PER_S, _PER_CALL_S = 1e9, 20e-6


def _find_made(facts: Facts, made: list[MadeFact], how: str, within_s: float) -> Found | None:
    program = facts.program
    if program is None or not program.recorded or not made:
        return None
    by_line: dict[str, list[MadeFact]] = defaultdict(list)
    for each in made:
        by_line[each.line].append(each)
    lines = sorted(by_line, key=lambda line: -sum(each.seconds for each in by_line[line]))
    taken_s = sum(each.seconds for each in made) / program.recorded
    # One slow moment of the recorded step would pass for all of them.
    taken_s = min(taken_s, most_at(facts, lines))
    elements = sum(each.elements for each in made) / program.recorded
    calls = len(made) / program.recorded
    left_s = 4 * elements / _STACKED_BYTES_PER_S + calls * _PER_CALL_S
    # A recorded step is no timed one: it is longer, and so is this.
    high_s = min(taken_s, within_s)
    return saves(
        f"torch.{made[0].function} of a {made[0].given} {how}: {count(round(elements))} elements "
        "a step",
        tuple(lines[:3]), 0.6 * (high_s - left_s), high_s - left_s, high_s,
        f"{time_text(taken_s)} ({percent(min(1.0, taken_s / facts.step_s))} of the step), where "
        f"copying them takes about {time_text(left_s)}",
    )  # fmt: skip


def _made_of(facts: Facts, *given: str) -> list[MadeFact]:
    made = () if facts.program is None else facts.program.made
    return [each for each in made if each.given in given and each.line]


def _without_kernels_s(facts: Facts) -> float:
    """No kernel runs while Python walks a list."""
    return facts.leaf_s("overhead.python", "overhead.data_loading", "overhead.dispatch")


def _of_lists(facts: Facts) -> Found | None:
    made = _made_of(facts, "list of arrays")
    return _find_made(facts, made, "walks every number in Python", _without_kernels_s(facts))


def _of_tensors(facts: Facts) -> Found | None:
    lists = _made_of(facts, "list of tensors")
    if lists:
        return _find_made(facts, lists, "copies one after the other", _without_kernels_s(facts))
    # Another type, or another device, takes a copy in any case; as_tensor makes no other.
    made = [
        each
        for each in _made_of(facts, "tensor")
        if each.function == "tensor" and not each.converts
    ]
    return _find_made(facts, made, "copies what is a tensor already", facts.step_s)


TENSOR_OF_ARRAYS = Cause(
    name="tensor_of_arrays",
    title="a tensor is made of a list of arrays, number by number (np.stack)",
    words=("creating a tensor from a list of numpy.ndarrays is extremely slow", "np.stack",
           "torch.tensor slow", "torch.from_numpy"),
    find=_of_lists,
    remedy="torch.from_numpy(np.stack(arrays))",
)  # fmt: skip
TENSOR_OF_TENSOR = Cause(
    name="tensor_of_tensor",
    title="torch.tensor copies what are tensors already (detach, torch.stack, one index)",
    words=(
        "to copy construct from a tensor",
        "sourceTensor.clone().detach()",
        "torch.as_tensor",
        "torch.tensor of a list of tensors",
        "torch.stack",
    ),
    find=_of_tensors,
    remedy="x.detach() or torch.as_tensor(x); x.detach().clone() if a copy is wanted; of a list "
    "torch.stack(tensors), or one index for all of them",
)
