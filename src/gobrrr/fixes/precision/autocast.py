"""Autocast to 16 bits: one context around a step's forward pass and loss, as a user would write it.

Autocast keeps the 16-bit copies of weights until its context is left. One context for each call of
a module would cast them again at each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.fusion.groups import seconds_to_move
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import AroundCalls, BeforeLoop, in_16_bits
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    PRECISION,
    Considered,
    Effect,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.precision.precision import (
    MATRIX_LEAVES,
    calls_in_16_bits_s,
    faster_matrices_s,
    matrix_ops,
    rates_of,
)
from gobrrr.fixes.programs import with_setting
from gobrrr.fixes.scripts import around_outermost_calls, attribute, before_optimizer_steps
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload


def _consider(dtype: str, facts: Facts) -> Considered:
    if dtype == "float16" and facts.trains:
        return RuledOut("float16 gradients underflow without a GradScaler; bf16 needs none")
    nothing = too_little(facts, *MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    rates = rates_of(facts, dtype)
    if isinstance(rates, RuledOut):
        return rates
    ops = matrix_ops(facts)
    if not ops:
        return RuledOut("there is no float32 matrix product")
    now_s, after_s = faster_matrices_s(ops, *rates)
    casts, cast_bytes = _casts(facts, ops)
    per_op_s = _per_op_s(facts)
    cast_s = casts * per_op_s + (seconds_to_move(facts, cast_bytes) or 0.0) * 1.5
    calls_s = calls_in_16_bits_s(facts, ops)
    saved_s = now_s - after_s - cast_s - calls_s
    return prospect_or_not(
        facts, saved_s - 0.4 * abs(now_s - after_s) - cast_s, saved_s,
        now_s * (1 - rates[0] / rates[1]) - 0.5 * calls_s,
        f"{len(ops)} float32 matrix products take {time_text(now_s)}; at "
        f"{rates[1] / rates[0]:.2g}x the rate {time_text(after_s)}, plus {casts} casts for "
        f"{time_text(cast_s)}"
        + (f" and dearer calls for {time_text(calls_s)}" if calls_s else ""),
    )  # fmt: skip


def _per_op_s(facts: Facts) -> float:
    rate = facts.rate("host.dispatches")
    return 2.0 / rate if rate else 2e-6


def _casts(facts: Facts, ops: list[OpFact]) -> tuple[int, float]:
    """Casts that autocast adds, and their bytes: each input of a matrix product once a step.

    A cast reads 4 bytes and writes 2 for each element; weights are cast once in each forward.
    """
    seen: set[tuple[int, tuple[int, ...]]] = set()
    count, moved = 0, 0.0
    for op in ops:
        if op.phase == "backward":
            continue
        for storage, size in op.reads:
            key = (storage, (int(size),))
            if key not in seen:
                seen.add(key)
                count += 1
                moved += 1.5 * size
        if not op.reads:
            count += 2
            moved += 1.5 * (op.bytes_moved or 0.0)
    # The backward pass casts the gradients of the weights back.
    return (2 * count, 2 * moved) if facts.trains else (count, moved)


def _kind_of_device() -> str:
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if kind is None else str(kind.type)


def _autocast(dtype: str) -> AbstractContextManager[Any]:
    import torch

    kind = _kind_of_device()
    if not torch.is_autocast_enabled(kind):
        changed(f"autocast {dtype}")
    setting: AbstractContextManager[Any] = torch.autocast(kind, dtype=getattr(torch, dtype))
    return setting


def _apply(dtype: str) -> Callable[[Workload], AbstractContextManager[Workload]]:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        yield with_setting(work, partial(_autocast, dtype), forward_only=True)

    return apply


class _OneContext(threading.local):
    """A context that is entered before a step's first call, and left before its backward pass.

    Calls without gradients (evaluation, generation) have one of their own: what is cast for them
    has no history, and would leave a training step's weights without gradients.
    """

    def __init__(self) -> None:
        self._left_by: ExitStack | None = None
        self._with_gradients = False

    def enter(self, make: Callable[[], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
        """Before an outermost call, which is made inside of what is returned."""
        import torch

        gradients = torch.is_grad_enabled()
        if gradients != self._with_gradients:
            self.leave()
        if self._left_by is None and torch.is_autocast_enabled(_kind_of_device()):
            # The script's own is left before the backward pass, and ours would turn it on again.
            return make()
        if self._left_by is None:
            self._left_by = ExitStack()
            self._left_by.enter_context(make())
            self._with_gradients = gradients
        return nullcontext()

    def leave(self) -> None:
        """Before anything that goes back through the graph, or changes weights."""
        if self._left_by is not None:
            left_by, self._left_by = self._left_by, None
            left_by.close()


@contextmanager
def _in_script(dtype: str) -> Iterator[None]:
    import torch

    one = _OneContext()
    low = getattr(torch, dtype)

    def call(module: Any, original: Any, args: Any, kwargs: Any) -> Any:
        if next(module.parameters(), None) is None:
            return original(module, *args, **kwargs)
        with one.enter(partial(_autocast, dtype)):
            result = original(module, *args, **kwargs)
        # The script goes on in float32, where a loss belongs.
        return map_tensors(result, lambda t: t.float() if t.dtype == low else t)

    def leaving(function: Any) -> Any:
        def go(*args: Any, **kwargs: Any) -> Any:
            one.leave()
            return function(*args, **kwargs)

        return go

    with ExitStack() as stack:
        stack.callback(one.leave)
        stack.enter_context(around_outermost_calls(call))
        stack.enter_context(before_optimizer_steps(lambda optimizer: one.leave()))
        for name in ("backward", "grad"):
            original = getattr(torch.autograd, name)
            stack.enter_context(attribute(torch.autograd, name, leaving(original)))
        yield


def _fix(dtype: str, name: str) -> Fix:
    return Fix(
        name=name,
        title=f"{dtype} autocast",
        leaves=(*MATRIX_LEAVES, "memory.device.roof"),
        may_change=(NUMERICS, MEMORY),
        consider=partial(_consider, dtype),
        snippet=(
            f"with torch.autocast(device_type, dtype=torch.{dtype}):  # one, around all of these\n"
            "    output = model(*inputs)\n    loss = loss_function(output, targets)\n"
            "loss.backward()"
        ),
        apply=_apply(dtype),
        in_script=partial(_in_script, dtype),
        in_source=(
            AroundCalls(f"torch.autocast(next({{model}}.parameters()).device.type, torch.{dtype})"),
            BeforeLoop(in_16_bits(dtype)),
        ),
        effect=Effect(bytes_left=0.5, matrix_dtype=dtype),
        changes_made=changes_of(f"autocast {dtype}"),
        claims=(PRECISION,),
        precision=dtype,
    )  # fmt: skip


BF16_AUTOCAST = _fix("bfloat16", "bf16_autocast")
FP16_AUTOCAST = _fix("float16", "fp16_autocast")
