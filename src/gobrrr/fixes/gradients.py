"""Gradients: ``set_to_none``, those that nobody uses, activation checkpointing on and off."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, lines_of
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import Keyword
from gobrrr.fixes.fix import (
    KEPT_ACTIVATIONS,
    MEMORY,
    RANDOMNESS,
    UNBOUNDED,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.programs import is_module, with_setting
from gobrrr.fixes.scripts import attribute, before_first_call
from gobrrr.fixes.spread import LESS_WORK
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload


def _consider_set_to_none(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("the step keeps no gradients")
    gradients = _added_to(facts)
    zeroing = [
        op for op in facts.named("aten::zero_", "aten::_foreach_zero_", "aten::fill_")
        if op.phase in ("optimizer", "other", "")
        or any(spec.storage in gradients for spec in op.call.tensors)
    ]  # fmt: skip
    if not zeroing:
        return RuledOut("no gradient is filled with zeros: set_to_none is the default")
    zero_s = sum(op.time_s + op.host_s for op in zeroing)
    # With a gradient in place the backward pass adds to it in place of handing it over.
    adding = [op for op in facts.named("aten::add_", "aten::add") if op.phase == "backward"]
    add_s = sum(op.time_s + op.host_s for op in adding)
    return prospect_or_not(
        facts, 0.3 * zero_s, zero_s + 0.5 * add_s, zero_s + add_s,
        f"filling gradients with zeros takes {time_text(zero_s)}, adding to them "
        f"{time_text(add_s)}",
        lines_of(zeroing),
    )  # fmt: skip


def _added_to(facts: Facts) -> set[int]:
    """The storages of gradients that were there before the backward pass, which adds to them."""
    return {
        spec.storage
        for op in facts.named("aten::add_")
        if op.phase == "backward"
        for spec in op.call.tensors[:1]
        if spec.storage is not None
    }


@contextmanager
def _setting_to_none() -> Iterator[None]:
    import torch

    with ExitStack() as stack:
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            stack.enter_context(attribute(owner, "zero_grad", _to_none(owner.zero_grad)))
        yield


def _to_none(original: Callable[..., None]) -> Callable[..., None]:
    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        changed("set_to_none", not set_to_none)
        original(self, set_to_none=True)

    return zero_grad


@contextmanager
def _apply_set_to_none(work: Workload) -> Iterator[Workload]:
    yield with_setting(work, _setting_to_none)


def _consider_unused(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("no gradients are computed here")
    if facts.unused_gradients is None:
        return RuledOut("gobrrr cannot see which gradients the optimizer uses: give a Workload")
    if not facts.unused_gradients:
        return RuledOut("every parameter with a gradient is in the optimizer")
    backward = [op for op in facts.ops if op.phase == "backward"]
    backward_s = sum(op.time_s + op.host_s for op in backward)
    # A weight's gradient is half of its layer's backward pass; what lies before the first layer
    # that trains needs no backward pass at all.
    share = facts.unused_gradients_share or 0.0
    saved_s = (0.95 if facts.unused_come_first else 0.5) * share * backward_s
    return prospect_or_not(
        facts, 0.5 * saved_s, saved_s, max(1.1 * saved_s, share * backward_s),
        f"{facts.unused_gradients} parameters ({percent(share)} of all elements) get gradients "
        f"that no optimizer reads; the backward pass takes {time_text(backward_s)}, half of it "
        "for the gradients of weights",
    )  # fmt: skip


@contextmanager
def _apply_unused(work: Workload) -> Iterator[Workload]:
    if work.optimizer is None:
        yield work
        return
    used = {id(p) for group in work.optimizer.param_groups for p in group["params"]}
    for parameter in work.model.parameters():
        if id(parameter) not in used:
            changed("unused_gradients", parameter.requires_grad)
            parameter.requires_grad_(False)
            parameter.grad = None
    yield work


def _matrix_flops(facts: Facts, phase: str) -> float:
    return sum(op.matrix_flops or 0.0 for op in facts.ops if op.phase == phase)


def _consider_no_checkpointing(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("nothing is recomputed: there is no backward pass")
    if not facts.checkpoints:
        return RuledOut("the program does not call torch.utils.checkpoint")
    # A backward pass has two products for each one of the forward pass, but for the first, whose
    # input is data; recomputed ops run inside it and carry its phase.
    forward, backward = (_matrix_flops(facts, phase) for phase in ("forward", "backward"))
    own = 2.0 * forward - _first_product_of_data(facts)
    again = min(max((backward - own) / forward, 0.0), 1.0) if forward > 0 else 1.0
    forward_s = sum(op.time_s + op.host_s for op in facts.ops if op.phase == "forward")
    again_s = again * forward_s
    return prospect_or_not(
        facts, 0.5 * again_s, again_s, 1.5 * again_s,
        f"the backward pass does {backward / max(forward, 1.0):.2f} times the forward pass's "
        f"matrix products, of which {own / max(forward, 1.0):.2f} are its own: {percent(again)} "
        f"of the forward pass ({time_text(forward_s)}) is recomputed; without checkpointing, "
        "activations stay in memory",
    )  # fmt: skip


def _first_product_of_data(facts: Facts) -> float:
    """FLOPs of the first product, whose input needs no gradient unless an embedding made it."""
    for op in facts.ops if facts.in_order else ():
        if "embedding" in op.name:
            return 0.0
        if op.phase == "forward" and op.matrix_flops:
            return op.matrix_flops
    return 0.0


@contextmanager
def counting_checkpoints() -> Iterator[list[int]]:
    """Counts calls of ``torch.utils.checkpoint.checkpoint`` in the one item of the list."""
    from torch.utils import checkpoint as home

    original = home.checkpoint
    count = [0]

    def call(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return original(*args, **kwargs)

    with _in_place_of(original, call):
        yield count


@contextmanager
def _in_place_of(original: Any, call: Any) -> Iterator[None]:
    """Another function under the name ``checkpoint`` wherever it was imported by that name."""
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("checkpoint") is original:
                stack.enter_context(attribute(module, "checkpoint", call))
        yield


@contextmanager
def _no_checkpoints() -> Iterator[None]:
    """``checkpoint(f, *args)`` is ``f(*args)``, also where it was imported by name."""
    from torch.utils import checkpoint as home

    original = home.checkpoint

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for name in ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop",
                     "preserve_rng_state"):  # fmt: skip
            kwargs.pop(name, None)
        changed("no_checkpointing")
        return function(*args, **kwargs)

    with _in_place_of(original, call):
        yield


def _disable_checkpointing(module: Any) -> None:
    for part in module.modules():
        if getattr(part, "gradient_checkpointing", False):
            part.gradient_checkpointing = False
            changed("no_checkpointing")


@contextmanager
def _apply_no_checkpointing(work: Workload) -> Iterator[Workload]:
    if is_module(work.model):
        _disable_checkpointing(work.model)
    yield with_setting(work, _no_checkpoints)


@contextmanager
def _no_checkpointing_in_script() -> Iterator[None]:
    with _no_checkpoints(), before_first_call(_disable_checkpointing):
        yield


def _consider_checkpointing(facts: Facts) -> Considered:
    if not facts.trains:
        return RuledOut("no activations are kept for a backward pass")
    forward_s = sum(op.time_s + op.host_s for op in facts.ops if op.phase == "forward")
    return prospect_or_not(
        facts, -1.2 * forward_s, -forward_s, 0.05 * facts.step_s,
        f"the forward pass is computed twice: {time_text(forward_s)} more",
    )  # fmt: skip


def _checkpoint_blocks(module: Any) -> None:
    """Checkpoints each block of the longest list of equal blocks."""
    import torch
    from torch.utils.checkpoint import checkpoint

    lists = [
        m for m in module.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))
    ]
    if not lists:
        return
    longest = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
    for block in longest:
        changed("activation_checkpointing")
        forward = block.forward
        block.forward = partial(checkpoint, forward, use_reentrant=False)


@contextmanager
def _apply_checkpointing(work: Workload) -> Iterator[Workload]:
    _checkpoint_blocks(work.model)
    yield work


SET_TO_NONE = Fix(
    name="set_to_none",
    judged_with=LESS_WORK,
    title="zero_grad(set_to_none=True)",
    leaves=("memory.device.roof", "memory.device.below", "overhead.dispatch"),
    may_change=(MEMORY,),
    consider=_consider_set_to_none,
    snippet="optimizer.zero_grad(set_to_none=True)",
    apply=_apply_set_to_none,
    in_script=_setting_to_none,
    changes_made=changes_of("set_to_none"),
    in_source=(Keyword(("zero_grad",), (("set_to_none", "True"),), place=0),),
    effect=UNBOUNDED,
    changes_optimizer=True,
)
UNUSED_GRADIENTS = Fix(
    name="unused_gradients",
    judged_with=LESS_WORK,
    title="No gradients for frozen parameters",
    leaves=("compute.matrix.roof", "compute.matrix.below", "memory.device.roof",
            "overhead.dispatch"),
    may_change=(MEMORY,),
    consider=_consider_unused,
    snippet="for p in frozen.parameters():\n    p.requires_grad_(False)",
    apply=_apply_unused,
    changes_made=changes_of("unused_gradients"),
    effect=UNBOUNDED,
    changes_optimizer=True,
)  # fmt: skip
NO_CHECKPOINTING = Fix(
    name="no_checkpointing",
    judged_with=LESS_WORK,
    title="No activation checkpointing",
    leaves=("compute.matrix.roof", "compute.matrix.below", "memory.device.roof",
            "overhead.dispatch"),
    may_change=(MEMORY, RANDOMNESS),
    consider=_consider_no_checkpointing,
    snippet="output = block(x)  # instead of checkpoint(block, x)",
    apply=_apply_no_checkpointing,
    in_script=_no_checkpointing_in_script,
    changes_made=changes_of("no_checkpointing"),
    effect=UNBOUNDED,
    claims=(KEPT_ACTIVATIONS,),
)  # fmt: skip
CHECKPOINTING = Fix(
    name="activation_checkpointing",
    title="Activation checkpointing",
    leaves=("memory.page_faults",),
    may_change=(MEMORY,),
    consider=_consider_checkpointing,
    snippet="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    apply=_apply_checkpointing,
    in_script=partial(before_first_call, _checkpoint_blocks),
    changes_made=changes_of("activation_checkpointing"),
    claims=(KEPT_ACTIVATIONS,),
    only_if_asked="saves memory and costs time",
)
