"""One small op after another, one for each tensor of a model: ``torch._foreach_*``."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import goes_back
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.fix import Prospect
from gobrrr.fixes.optimizers import FOREACH_OPTIMIZER, FUSED_OPTIMIZER
from gobrrr.timeline.quantities import count, percent, time_text

_IN_PLACE = frozenset(
    f"aten::{name}_"
    for name in ("mul", "add", "sub", "div", "lerp", "copy", "addcmul", "addcdiv", "zero", "fill",
                 "clamp", "clamp_min", "clamp_max", "sqrt", "neg", "sign")
)  # fmt: skip
_NORMS = frozenset(("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm"))
# Fewer tensors than this at one line are no loop over a model's.
_FEWEST_TENSORS = 16
# Of Python and dispatch between the ops, what one op for all tensors leaves away.
_LOW, _EXPECTED = 0.25, 0.6
# An optimizer that nobody set loops over tensors on a processor: told where that is much of a step.
_MANY_TENSORS, _MUCH = 64, 0.2


def _walks(op: OpFact) -> int | None:
    """Storage of the whole tensor that an op of such a loop works on; ``None``: of no loop."""
    if op.name not in _IN_PLACE and op.name not in _NORMS:
        return None
    given = next(iter(op.call.tensors), None)
    if given is None or op.nodes or given.offset or not given.is_contiguous:
        return None
    # Counters (batches that a normalisation has seen) are integers.
    return given.storage if given.dtype.startswith(("float", "bfloat")) else None


def _overhead_s(op: OpFact) -> float:
    return op.host_s + op.fixed_s


def _find_loop(facts: Facts) -> Found | None:
    if not facts.in_order or not facts.trains:
        return None
    own = bool(facts.optimizers) and not any(each.of_torch for each in facts.optimizers)
    by_line: dict[str, list[OpFact]] = defaultdict(list)
    walked: dict[str, set[int]] = defaultdict(set)
    for op in facts.ops:
        if not op.source or op.module or op.phase == "backward":
            continue
        if op.phase == "optimizer" and not own:
            continue
        # What is made on the way goes with it.
        by_line[op.source].append(op)
        storage = _walks(op)
        if storage is not None:
            walked[op.source].add(storage)
    lines = [
        line
        for line, storages in walked.items()
        # What ranks copy into buckets meanwhile is no loop of the program's.
        if len(storages) >= _FEWEST_TENSORS and not goes_back(line)
    ]
    lines.sort(key=lambda line: -sum(map(_overhead_s, by_line[line])))
    if not lines:
        return None
    ops = [op for line in lines for op in by_line[line]]
    overhead_s = sum(map(_overhead_s, ops))
    tensors = max(len(walked[line]) for line in lines)
    names = ", ".join(dict.fromkeys(op.name.removeprefix("aten::") for op in ops))
    return saves(
        f"{count(len(ops))} ops a step ({names}) for {count(tensors)} tensors, one after another",
        tuple(lines[:3]), _LOW * overhead_s, _EXPECTED * overhead_s, overhead_s,
        f"{time_text(overhead_s)} of Python, dispatch and fixed cost "
        f"({percent(min(1.0, overhead_s / facts.step_s))} of the step) beside "
        f"{time_text(sum(op.kernel_s for op in ops))} of kernels",
    )  # fmt: skip


def _find_optimizer(facts: Facts) -> Found | None:
    refused = [o for o in facts.optimizers if o.of_torch and o.foreach is False and not o.fused]
    unset = [o for o in facts.optimizers if o.of_torch and o.foreach is None and not o.fused]
    ops = [op for op in facts.ops if op.phase == "optimizer"]
    overhead_s = sum(map(_overhead_s, ops))
    if not refused:
        many = sum(o.tensors for o in unset) >= _MANY_TENSORS
        if facts.on_gpu or not many or overhead_s < _MUCH * facts.step_s:
            return None
    # What puts all tensors together has what it saves for one: the better of both.
    found = [fix.considered(facts) for fix in (FUSED_OPTIMIZER, FOREACH_OPTIMIZER)]
    prospects = [each for each in found if isinstance(each, Prospect) and each.expected_s > 0]
    if not prospects:
        return None
    best = max(prospects, key=lambda each: each.expected_s)
    name = (refused or unset)[0].name
    set_so = "foreach=False" if refused else "neither foreach nor fused"
    lines = tuple(dict.fromkeys(op.source for op in ops if op.source))
    return saves(
        f"{name} has {set_so}",
        lines[:3], best.low_s, best.expected_s, best.high_s, best.because,
    )  # fmt: skip


PER_TENSOR_LOOP = Cause(
    name="per_tensor_loop",
    title="a loop runs one small op per tensor (moving average, torch._foreach_)",
    words=("torch._foreach_mul_", "torch._foreach_lerp_", "EMA", "exponential moving average",
           "AveragedModel", "update_parameters"),
    find=_find_loop,
    remedy="torch._foreach_lerp_(averages, parameters, 1 - decay) on lists made once; "
    "torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay)); "
    "torch.nn.utils.clip_grad_norm_(..., foreach=True)",
)  # fmt: skip
OPTIMIZER_LOOP = Cause(
    name="optimizer_without_foreach",
    title="the optimizer updates one tensor after another (foreach, fused)",
    words=("foreach=False", "fused=True", "foreach optimizer", "optimizer.step slow",
           "single tensor optimizer"),
    find=_find_optimizer,
    remedy="torch.optim.AdamW(..., fused=True), or foreach=True where there is no fused one",
    verified_by="fused_optimizer",
)  # fmt: skip
