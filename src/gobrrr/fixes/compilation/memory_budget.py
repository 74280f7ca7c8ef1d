"""Recomputation that is cheaper than reloading: the memory budget of AOTAutograd's partitioner.

``torch.compile`` cuts the joint graph of forward and backward pass where the fewest bytes have to
be kept (a minimum cut), and can be told to keep a share of those only:
``torch._functorch.config.activation_memory_budget``. It then solves a knapsack for the cheapest
recomputation. What that does to the peak of a step, gradients and buffers of the backward pass
included, only a measurement tells; so each share is a fix of its own, and together with ``compile``
(a share of 1) they make a curve of memory against time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.compilation.compile import (
    COMPILE_FIXES,
    cannot_compile,
)
from gobrrr.fixes.edits import AfterImports
from gobrrr.fixes.fix import (
    CODE,
    FIRST_STEP,
    KEPT_ACTIVATIONS,
    MEMORY,
    NUMERICS,
    RANDOMNESS,
    Considered,
    Effect,
    Fix,
    Prospect,
    RuledOut,
)
from gobrrr.fixes.programs import as_program, with_setting
from gobrrr.fixes.scripts import before_first_call, compile_in_place
from gobrrr.observe.compiler_counters import graphs_compiled
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload

FAMILY = "memory_budget"
# Shares of what the minimum cut keeps, which is 1; 0 would keep the inputs alone and compute the
# whole forward pass again at once, with all of its memory.
BUDGETS = (0.75, 0.5, 0.25, 0.1)
_SETTING = "activation_memory_budget"
_COMPILE = COMPILE_FIXES[0]


def has_setting() -> bool:
    """Whether this torch has the setting: its name is private, and may go with any release."""
    try:
        from torch._functorch import config
    except ImportError:
        return False
    return hasattr(config, _SETTING)


def name_of(budget: float) -> str:
    """What the fix for a share is called.

    >>> name_of(0.75)
    'memory_budget_75'
    """
    return f"{FAMILY}_{budget * 100:.0f}"


def recomputed_s(facts: Facts, budget: float) -> float:
    """Least seconds of forward ops to compute again so that this share of their results is kept.

    The cheapest per byte first. The compiler keeps other things than eager ops write, and fuses
    what it computes again: a first guess.
    """
    forward = [op for op in facts.ops if op.phase == "forward" and op.fresh_bytes > 0]
    left = (1.0 - budget) * sum(op.fresh_bytes for op in forward)
    seconds = 0.0

    def price(op: OpFact) -> float:
        return op.kernel_s / op.fresh_bytes

    for op in sorted(forward, key=price):
        part = min(1.0, left / op.fresh_bytes)
        seconds += part * op.kernel_s
        left -= part * op.fresh_bytes
        if left <= 0:
            break
    return seconds


def _consider(budget: float, facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("no activations are kept for a backward pass")
    ruled_out = cannot_compile(facts)
    if ruled_out is not None:
        return ruled_out
    if not facts.has_memory_budget:
        return RuledOut(f"this PyTorch has no torch._functorch.config.{_SETTING}")
    again_s = recomputed_s(facts, budget)
    compiled = _COMPILE.consider(facts)
    low_s, expected_s, high_s = 0.0, 0.0, 0.0
    if isinstance(compiled, Prospect):
        low_s, expected_s, high_s = compiled.low_s, compiled.expected_s, compiled.high_s
    # Tried whatever it costs in time: memory is what it was asked for.
    return Prospect(
        low_s - 2 * again_s, expected_s - again_s, high_s,
        f"compiled, with {percent(budget)} of the activations kept and the cheapest of the "
        f"others recomputed: about {time_text(again_s)} of the forward pass",
    )  # fmt: skip


def _kept(budget: float) -> AbstractContextManager[Any]:
    from torch._functorch import config

    patched: AbstractContextManager[Any] = config.patch(**{_SETTING: budget})
    return patched


def _fix(budget: float) -> Fix:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        import torch

        program = as_program(work)
        # The loss stays as it is, as in the snippet.
        changed = replace(program, model=torch.compile(program.model))
        # Read when the forward pass is compiled, which the first call does, not this one.
        yield with_setting(changed, lambda: _kept(budget))

    @contextmanager
    def in_script() -> Iterator[None]:
        with _kept(budget), before_first_call(compile_in_place):
            yield

    return Fix(
        name=name_of(budget),
        title=f"torch.compile with {percent(budget)} of the activations kept",
        leaves=("memory.device.roof", "memory.page_faults"),
        may_change=(NUMERICS, MEMORY, FIRST_STEP, RANDOMNESS),
        consider=lambda facts: _consider(budget, facts),
        snippet=(
            f"torch._functorch.config.{_SETTING} = {budget:g}\nmodel = torch.compile(model)"
        ),
        apply=apply,
        in_script=in_script,
        in_source=(
            AfterImports(
                (
                    "import torch._functorch.config",
                    f"torch._functorch.config.{_SETTING} = {budget:g}",
                )
            ),
            *_COMPILE.in_source,
        ),
        changes_made=graphs_compiled,
        effect=Effect(fuses=True),
        claims=(CODE, KEPT_ACTIVATIONS),
        only_if_asked="trades time for memory",
        variant_of=_COMPILE.name,
        family=FAMILY,
        setting=budget,
    )  # fmt: skip


MEMORY_BUDGET_FIXES: tuple[Fix, ...] = tuple(_fix(budget) for budget in BUDGETS)
