"""Recomputation that is cheaper than reloading: the memory budget of AOTAutograd's partitioner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.compilation import NAMES, cannot_compile
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import (
    FIRST_STEP,
    MEMORY,
    NUMERICS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.programs import as_program, with_setting
from gobrrr.fixes.scripts import before_first_call

# Share of the activations (1: all that the partitioner would keep; 0: checkpoint everything).
BUDGET = 0.5


def _consider(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("nothing is kept for a backward pass")
    ruled_out = cannot_compile(facts)
    if ruled_out is not None:
        return ruled_out
    if "memory_budget" not in facts.asked:
        return RuledOut(
            "trades time for memory: off unless asked for (--only memory_budget,compile)"
        )
    forward_s = sum(op.time_s for op in facts.ops if op.phase == "forward")
    return prospect_or_not(
        facts, -0.5 * forward_s, -0.25 * forward_s, 0.25 * facts.step_s,
        f"keeps {BUDGET:.0%} of the activations and recomputes the cheapest of the others",
    )  # fmt: skip


def _budget() -> AbstractContextManager[Any]:
    from torch._functorch import config

    patched: AbstractContextManager[Any] = config.patch(activation_memory_budget=BUDGET)
    return patched


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    import torch

    program = as_program(work)
    # The setting is read while the first step compiles.
    yield with_setting(replace(program, model=torch.compile(program.model)), _budget)


@contextmanager
def _in_script() -> Iterator[None]:
    with _budget(), before_first_call(lambda module: module.compile()):
        yield


MEMORY_BUDGET = Fix(
    name="memory_budget",
    title=f"torch.compile with {BUDGET:.0%} of the activations kept",
    leaves=("memory.device.roof", "memory.page_faults"),
    may_change=(NUMERICS, MEMORY, FIRST_STEP),
    consider=_consider,
    snippet=(
        "torch._functorch.config.activation_memory_budget = 0.5\nmodel = torch.compile(model)"
    ),
    apply=_apply,
    in_script=_in_script,
    excludes=(*NAMES, "activation_checkpointing"),
)
