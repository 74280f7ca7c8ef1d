"""What only the program's author can change: gobrrr points at the line and does the sum."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.diagnosis.facts import LEAST_SAVING, Facts, OpFact, lines_of
from gobrrr.diagnosis.fusion.groups import find_groups, seconds_to_move
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.patterns.dataflow import Flow, cost_s, flow_of, only_for_the_host
from gobrrr.timeline.names import FROM
from gobrrr.timeline.quantities import percent, si, time_text

# What a device waits for once the host has waited for it.
_AFTER_A_WAIT = ("synchronisation", "python", "dispatch", "launch")


def _consider_syncs(facts: Facts) -> Considered:
    count = int(facts.counters.get("reads_of_one_value", 0))
    held_s = facts.leaf_s("overhead.synchronisation")
    if not facts.on_gpu:
        return _reads_on_cpu(facts, count)
    waits_s = facts.counters.get("host_waits_s", held_s)
    if not facts.counters.get("synchronisations", 0.0) and held_s <= 0:
        return RuledOut("the host never waits for the device")
    # A host that does not wait is as fast as its own work, and runs ahead of the device: what the
    # device then waits for is gone, up to the time that the host waited.
    idle_s = facts.leaf_s(*(f"overhead.{cause}" for cause in _AFTER_A_WAIT))
    # Where each wait's own is known, a host that is late elsewhere in the step does not count.
    after_s = facts.counters.get("idle_after_waits_s", waits_s)
    saved_s = max(held_s, min(idle_s, after_s))
    # Host and device then work beside each other, and the step takes as long as the longer of the
    # two does: what is saved is the shorter at most, and no more than they do not overlap now.
    host_s = max(facts.step_s - waits_s, 0.0)
    device_s = max(facts.step_s - facts.host_overhead_s, 0.0)
    saved_s = max(min(saved_s, host_s, device_s, facts.step_s - max(host_s, device_s)), 0.0)
    sources = [i.source for i in facts.idle if i.cause == "synchronisation" and i.source]
    reads = facts.named(READ_OF_ONE_VALUE)
    sources += lines_of(reads)
    own = [line for line in sources if FROM not in line]
    if sources and not own:
        return RuledOut(f"the host waits for the device at lines of libraries alone ({sources[0]})")
    if _is_result(facts) and facts.counters.get("synchronisations", 0.0) <= len(reads):
        return RuledOut("what the host waits for is the step's result")
    return prospect_or_not(
        facts, 0.4 * saved_s, 0.8 * saved_s, saved_s,
        f"the host waits {time_text(waits_s)} per step for the device (.item(), print, boolean "
        f"masks, copies to the host); the device then idles {time_text(saved_s)} until the host "
        "launches new work",
        tuple(dict.fromkeys(own))[:3],
    )  # fmt: skip


def _is_result(facts: Facts) -> bool:
    """Whether all values that a step reads go into what it returns."""
    returned = {place for place, _ in facts.returned or ()}
    reads = {place for place, op in enumerate(facts.ops) if op.name == READ_OF_ONE_VALUE}
    return bool(reads) and reads <= returned


def _reads_on_cpu(facts: Facts, count: int) -> Considered:
    """A CPU waits for no queue: what it takes to compute, read and print the values."""
    flow = flow_of(facts)
    printed = [] if flow is None else [facts.ops[p] for p in only_for_the_host(facts, flow)]
    if printed and all(op.name == READ_OF_ONE_VALUE for op in printed):
        # Nothing is computed for them: what was there is looked at.
        printed = []
    if not count and not printed:
        return RuledOut("no value is read back to the host")
    if facts.returned is None and not facts.is_script:
        return RuledOut("whether the values that are read back are the step's result is unknown")
    if flow is not None and printed and not _has_another_end(facts, flow):
        return RuledOut("the values that are read back are all that the step computes")
    saved_s = sum(map(cost_s, printed))
    if saved_s < LEAST_SAVING * facts.step_s:
        return RuledOut(
            f"{count} values are read per step, but on a CPU there is no queue to wait for; for "
            "torch.compile each is a graph break"
        )
    return prospect_or_not(
        facts, 0.7 * saved_s, 0.97 * saved_s, 1.3 * saved_s,
        f"{len(printed)} ops, with the Python between them, compute values that are only read "
        f"back (.item(), print, logs): {time_text(saved_s)} per step; reading them every 100 "
        "steps saves nearly all of it",
        lines_of(printed),
    )  # fmt: skip


def _has_another_end(facts: Facts, flow: Flow) -> bool:
    """Whether a step trains, changes or returns something: else the values are what it is for."""
    return facts.trains or bool(facts.returned or flow.writes_outside)


def _consider_reuse(facts: Facts) -> Considered:
    nothing = too_little(facts, "memory.page_faults", "overhead.allocation", "memory.device")
    if nothing is not None:
        return nothing
    fresh = [op for op in facts.of_class("elementwise") if op.fresh_bytes > 0
             and op.phase != "backward"]  # fmt: skip
    if facts.trains:
        return RuledOut("the backward pass needs the results of the forward pass")
    faults_s = sum(op.page_faults_s for op in fresh)
    # An update in place reads and writes one buffer; a store to another one fetches it first.
    moving = [op for op in fresh if (op.vector_flops or 0.0) < 64 * op.fresh_bytes]
    memory_s = sum(op.roof_s or 0.0 for op in moving)
    saved_s = faults_s + 0.25 * memory_s
    return prospect_or_not(
        facts, 0.5 * faults_s, saved_s, faults_s + 0.4 * memory_s,
        f"{len(fresh)} elementwise ops write newly allocated outputs: {time_text(faults_s)} of "
        f"page faults and {time_text(memory_s)} of memory traffic; in place they need about "
        "three quarters of it",
        lines_of(fresh),
    )  # fmt: skip


def _consider_kernel(facts: Facts) -> Considered:
    if not facts.on_gpu:
        return RuledOut("Triton kernels run on GPUs; on a CPU torch.compile generates the kernel")
    groups = [g for g in find_groups(facts) if g.bytes_before > 0]
    if not groups:
        return RuledOut("no elementwise op or normalisation to fuse")
    worst = max(groups, key=lambda g: sum(op.kernel_s for op in g.ops))
    now_s = sum(op.kernel_s for op in worst.ops)
    least_s = seconds_to_move(facts, worst.bytes_after)
    if least_s is None:
        return RuledOut("this device's memory bandwidth is unknown")
    saved_s = now_s - least_s / 0.85
    names = ", ".join(dict.fromkeys(op.name.removeprefix("aten::") for op in worst.ops))
    return prospect_or_not(
        facts, 0.0, saved_s, now_s - least_s,
        f"{names} take {time_text(now_s)}; one fused kernel must move "
        f"{si(worst.bytes_after, 'B')}, which takes at least {time_text(least_s)}",
        lines_of(worst.ops),
    )  # fmt: skip


def prefix_computed_again(facts: Facts) -> Considered:
    """Decoding that computes the whole prefix again for each token: what a cache would save."""
    lengths: dict[tuple[str, str], list[OpFact]] = defaultdict(list)
    for op in facts.ops:
        if (op.matrix_flops or 0.0) > 0 and op.module and op.phase != "backward":
            lengths[op.module, op.name].append(op)
    growing = [ops for ops in lengths.values() if _grows(ops)]
    if facts.trains or not growing:
        return RuledOut("no module is called repeatedly on inputs that grow")
    again_s = 0.0
    for ops in growing:
        rows = [max(n for shape in op.shapes for n in shape[:-1]) for op in ops]
        # With a cache each call does one row more, not all of them.
        again_s += sum(op.kernel_s * (1 - 1 / n) for op, n in zip(ops[1:], rows[1:]))
    share = again_s / max(sum(op.kernel_s for ops in growing for op in ops), 1e-12)
    kernels_s = sum(op.kernel_s for op in facts.ops)
    saved_s = kernels_s * share
    return prospect_or_not(
        facts, 0.3 * saved_s, 0.6 * saved_s, saved_s,
        f"the same modules are called {len(growing[0])} times on inputs that grow by one token: "
        f"{percent(share)} of their work repeats earlier work, which a KV cache avoids",
        lines_of(op for ops in growing for op in ops),
    )  # fmt: skip


def _grows(ops: list[OpFact]) -> bool:
    if len(ops) < 3 or not all(op.shapes for op in ops):
        return False
    rows = [max((n for shape in op.shapes[:2] for n in shape[:-1]), default=0) for op in ops]
    steps = {b - a for a, b in pairwise(rows)}
    return len(steps) == 1 and steps.pop() > 0


def _consider_shapes(facts: Facts) -> Considered:
    multiple = 8 if facts.on_gpu else 16
    uneven = [
        op for op in facts.ops
        if (op.matrix_flops or 0.0) > 0 and any(n > 64 and n % multiple for s in op.shapes
                                                for n in s[-2:])
    ]  # fmt: skip
    if not facts.on_gpu:
        return RuledOut("on a CPU matrix products of odd sizes lose time at their edges only")
    if not uneven:
        return RuledOut(f"every matrix product's sizes are multiples of {multiple}")
    below_s = sum(op.below_s or 0.0 for op in uneven)
    odd = sorted({n for op in uneven for s in op.shapes for n in s[-2:] if n > 64 and n % multiple})
    padded = -(-odd[-1] // 64) * 64
    return prospect_or_not(
        facts, 0.0, 0.5 * below_s, below_s,
        f"matrix products with sizes such as {odd[-1]} take {time_text(below_s)} longer than "
        f"at the ceilings; pad to {padded}, a multiple of 64",
        lines_of(uneven),
    )  # fmt: skip


REMOVE_SYNCS = Fix(
    "remove_syncs", "Read values back less often", ("overhead.synchronisation",), (),
    _consider_syncs, "total += loss.detach()  # and .item() once, after the loop",
)  # fmt: skip
REUSE = Fix(
    "in_place", "Reuse buffers (in-place ops, out=)",
    ("memory.page_faults", "overhead.allocation", "memory.device.roof"), (MEMORY,),
    _consider_reuse, "x.mul_(2)  # or torch.mul(x, 2, out=buffer)",
)  # fmt: skip
TRITON_KERNEL = Fix(
    "triton_kernel", "A custom Triton kernel",
    ("memory.device.roof", "memory.device.below"), (NUMERICS,), _consider_kernel,
    "@triton.jit\ndef fused(...): ...",
)  # fmt: skip
KV_CACHE = Fix(
    "kv_cache", "A KV cache between tokens",
    ("compute.matrix.roof", "compute.matrix.below", "memory.device.roof"), (MEMORY,),
    prefix_computed_again,
    "out = model(token, past_key_values=cache, use_cache=True)  # one token at a time",
)  # fmt: skip
PADDED_SHAPES = Fix(
    "padded_shapes", "Padded sizes that fill the matrix unit", ("compute.matrix.below",), (MEMORY,),
    _consider_shapes, "vocabulary = 50304  # instead of 50257",
)  # fmt: skip
