"""Fused and foreach optimizers: one op for all tensors in place of a dozen for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.fusion.groups import seconds_to_move
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.edits import Keyword
from gobrrr.fixes.fix import (
    OPTIMIZER,
    UNBOUNDED,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.scripts import before_optimizer_steps
from gobrrr.fixes.spread import OPTIMIZERS
from gobrrr.live.watch.fused_optimizers import has_fused
from gobrrr.live.watch.optimizer_facts import is_of_torch
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload

# Values of a parameter's size that one fused update reads and writes (4 bytes each): parameter,
# gradient and two moments read, three of them written.
_MOVED_PER_ELEMENT = {"Adam": 7, "AdamW": 7, "SGD": 5, "Adagrad": 5}
FUSED = tuple(_MOVED_PER_ELEMENT)
_FOREACH = (*FUSED, "RMSprop", "Adadelta", "NAdam", "RAdam", "Rprop", "ASGD")
# Devices whose tensors are on "cuda" in PyTorch.
_CUDA = ("cuda", "hip")
# Groups of parameters whose setting was changed in this process.
_changed: Counter[str] = Counter()
# Dispatch of the fused op itself and the Python that builds its lists of tensors, per tensor.
# Measured with torch 2.13 on a Zen 4 core: AdamW(fused=True) over 200 tensors of 64 elements. On a
# GPU that is its host's work, of which a device that is behind sees nothing.
_PER_TENSOR_S, _PER_STEP_S = 4e-6, 30e-6
# What a foreach step's host does beyond that: for each tensor of an Adam it counts a step and reads
# it twice, for the bias corrections, and in each op unpacks and checks its place in two lists (each
# alone, torch 2.13, a Xeon, 80 and 300 tensors, as of ``DISPATCH_S``; the checks assumed to take as
# long as unpacking). For each op a launch, and another, as one holds a few dozen tensors (the part
# ``cost`` on an H200's host: an addition 6.2 us, a launch 4.4,
# benchmarks/results/gpu_first-mends_nvidia-h200_2026-11-27.json).
_STEP_COUNT_S, _IN_LIST_S, _FOREACH_OP_S = 2e-6, 0.25e-6, 10.6e-6
_COUNTS_STEPS = ("Adam", "AdamW")


def _in_optimizer(facts: Facts) -> tuple[float, float, int]:
    """(overhead, kernels) in seconds and the ops of the optimizer."""
    ops = [op for op in facts.ops if op.phase == "optimizer"]
    overhead_s = sum(op.host_s + op.fixed_s for op in ops)
    return overhead_s, sum(op.kernel_s for op in ops), int(sum(op.count for op in ops))


def _ruled_out(facts: Facts) -> RuledOut | None:
    if not facts.trains:
        return RuledOut("no optimizer runs in this step")
    if not facts.optimizers:
        return RuledOut("gobrrr sees no optimizer: give a gobrrr.Workload with optimizer=...")
    return None


def _consider_fused(facts: Facts) -> Considered:
    ruled_out = _ruled_out(facts)
    if ruled_out is not None:
        return ruled_out
    able = [o for o in facts.optimizers if o.of_torch and o.name in FUSED]
    if not able:
        names = ", ".join(o.name for o in facts.optimizers)
        return RuledOut(f"{names} has no fused implementation")
    if all(o.fused for o in able):
        return RuledOut("the optimizer is fused already")
    refused = [o.name for o in able if facts.device_kind in _CUDA and o.refused_on_cuda]
    if refused:
        return RuledOut(f"this version of PyTorch has no fused {refused[0]} for GPUs")
    if any("sparse" in op.name for op in facts.ops):
        return RuledOut("some gradients are sparse, which fused optimizers refuse")
    overhead_s, kernel_s, ops = _in_optimizer(facts)
    tensors = sum(o.tensors for o in able)
    moved = sum(4.0 * o.elements * _MOVED_PER_ELEMENT[o.name] for o in able)
    roof_s = seconds_to_move(facts, moved) or kernel_s
    after_s = _PER_STEP_S + _PER_TENSOR_S * tensors
    reached = constant("optimizer.reached", facts)
    moving_s = max(kernel_s - roof_s / reached.expected, 0.0)
    low_s, saved_s = 0.6 * (overhead_s - after_s), overhead_s - after_s + moving_s
    because = (
        f"{ops} ops for {tensors} tensors cost {time_text(overhead_s)} of overhead and "
        f"{time_text(kernel_s)} of kernels; one fused op costs about {time_text(after_s)} "
        f"and moves its bytes in {time_text(roof_s)}"
    )
    if facts.on_gpu:
        # A step takes as long as the longer of host and device: as far as the device waits for its
        # host, shorter kernels let it wait longer, and all that the fused op's host needs is seen.
        waits = min(facts.host_overhead_s / facts.step_s, 1.0) if facts.step_s > 0 else 0.0
        after_s = min(host_scale(facts) * after_s, overhead_s)
        host_s = overhead_s - waits * after_s
        foreach_s = _more_of_foreach_s(facts, [o.tensors for o in able if o.name in _COUNTS_STEPS])
        because = (
            f"{ops} ops for {tensors} tensors make the device wait {time_text(overhead_s)} and "
            f"take {time_text(kernel_s)} of kernels; one fused op moves its bytes in "
            f"{time_text(roof_s)}"
        )
        if foreach_s is None:
            because += f" and needs up to {time_text(after_s)} of its host"
        else:
            host_s = min(host_s, foreach_s)
            because += (
                f" and spares its host about {time_text(foreach_s)}; what the optimizer's Python "
                "does before either stays"
            )
        if moving_s > 0 and waits > 0:
            because += (
                f"; shorter kernels save nothing while the device waits ({percent(waits)} of the "
                "step)"
            )
        low_s, saved_s = 0.5 * host_s, host_s + (1.0 - waits) * moving_s
        because += unmeasured(reached)
    return prospect_or_not(
        facts, low_s, saved_s, overhead_s + max(kernel_s - roof_s, 0.0), because,
        own_ends=facts.on_gpu,
    )  # fmt: skip


def _more_of_foreach_s(facts: Facts, counting: Sequence[int]) -> float | None:
    """Seconds of the host for foreach ops that a fused step spares; ``None``: none ran.

    ``counting``: tensors of each optimizer that counts its steps.
    """
    found = [op for op in facts.ops if op.phase == "optimizer" and "_foreach_" in op.name]
    if not found:
        return None
    ops, tensors = sum(op.count for op in found), sum(o.tensors for o in facts.optimizers)
    python_s = _STEP_COUNT_S * sum(counting) + _IN_LIST_S * tensors * ops
    return host_scale(facts) * python_s + _FOREACH_OP_S * ops


def _consider_foreach(facts: Facts) -> Considered:
    ruled_out = _ruled_out(facts)
    if ruled_out is not None:
        return ruled_out
    if not any(o.of_torch and o.name in _FOREACH for o in facts.optimizers):
        names = ", ".join(o.name for o in facts.optimizers)
        return RuledOut(f"{names} has no foreach implementation")
    if all(o.foreach or o.fused for o in facts.optimizers):
        return RuledOut("the optimizer updates all tensors together already")
    if facts.on_gpu and all(o.foreach is None for o in facts.optimizers):
        return RuledOut("on a GPU foreach is the default")
    overhead_s, _, ops = _in_optimizer(facts)
    # The ops stay; what goes is the Python and the dispatcher between those of one kind.
    saved_s = 0.5 * overhead_s
    return prospect_or_not(
        facts, -0.2 * overhead_s, saved_s, 0.8 * overhead_s,
        f"{ops} ops of the optimizer cost {time_text(overhead_s)} of Python and dispatch, of "
        "which the foreach implementation saves about half",
    )  # fmt: skip


def _to_fuse(facts: Facts) -> int:
    return sum(o.of_torch and o.name in FUSED and not o.fused for o in facts.optimizers)


def _to_put_together(facts: Facts) -> int:
    return sum(
        o.of_torch and o.name in _FOREACH and not (o.fused or o.foreach) for o in facts.optimizers
    )


def _fuse(optimizer: Any) -> None:
    import torch

    if not (is_of_torch(optimizer) and type(optimizer).__name__ in FUSED and has_fused(optimizer)):
        return
    for group in optimizer.param_groups:
        if group.get("fused"):
            continue
        group.update(fused=True, foreach=False)
        _changed["fused"] += 1
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            # Fused kernels read the step count where the parameter lives.
            if state and isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].to(parameter.device, torch.float32)
    optimizer._step_supports_amp_scaling = True


def _together(optimizer: Any) -> None:
    if not is_of_torch(optimizer) or type(optimizer).__name__ not in _FOREACH:
        return
    for group in optimizer.param_groups:
        if "foreach" in group and not group.get("fused") and not group["foreach"]:
            group["foreach"] = True
            _changed["foreach"] += 1


def _changes(change: Callable[[Any], None]) -> tuple[Any, Any]:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        if work.optimizer is not None:
            change(work.optimizer)
        yield work

    def in_script() -> AbstractContextManager[None]:
        return before_optimizer_steps(change)

    return apply, in_script


_LEAVES = ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_gap",
           "memory.device.below", "memory.device.roof")  # fmt: skip
_fuse_apply, _fuse_in_script = _changes(_fuse)
_together_apply, _together_in_script = _changes(_together)

FUSED_OPTIMIZER = Fix(
    name="fused_optimizer",
    title="Fused optimizer",
    leaves=_LEAVES,
    may_change=("numerics",),
    consider=_consider_fused,
    snippet="optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)",
    in_source=(Keyword(FUSED, (("fused", "True"),), ("foreach",), "fused", home="torch.optim"),),
    objects=_to_fuse,
    changes_made=lambda: _changed["fused"],
    apply=_fuse_apply,
    in_script=_fuse_in_script,
    effect=UNBOUNDED,
    claims=(OPTIMIZER,),
    changes_optimizer=True,
    judged_with=OPTIMIZERS,
)
FOREACH_OPTIMIZER = Fix(
    name="foreach_optimizer",
    title="Foreach optimizer",
    leaves=_LEAVES,
    may_change=("numerics", "memory"),
    consider=_consider_foreach,
    snippet="optimizer = torch.optim.AdamW(model.parameters(), ..., foreach=True)",
    in_source=(Keyword(_FOREACH, (("foreach", "True"),), unless="fused", home="torch.optim"),),
    objects=_to_put_together,
    changes_made=lambda: _changed["foreach"],
    apply=_together_apply,
    in_script=_together_in_script,
    claims=(OPTIMIZER,),
    changes_optimizer=True,
    judged_with=OPTIMIZERS,
)
