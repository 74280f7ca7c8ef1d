"""What Python runs once for each sample of a batch, a module or ops, where one call would do."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import place_of
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.fix import Prospect
from gobrrr.fixes.patterns.loops import VECTORISE_LOOP, loops_over_slices, repeated_products
from gobrrr.timeline.quantities import count, percent, time_text


def _find(facts: Facts) -> Found | None:
    loops = repeated_products(facts)
    return _of_module(facts, loops) if loops else _of_lines(facts)


def _of_lines(facts: Facts) -> Found | None:
    loops = loops_over_slices(facts)
    saved = VECTORISE_LOOP.considered(facts)
    if not loops or not isinstance(saved, Prospect):
        return None
    first = loops[0]
    begin, end = (place_of(line) for line in (first.lines[0], first.lines[-1]))
    lines = f"lines {begin.number} to {end.number}" if begin and end else "these lines"
    ops = sum(len(loop.places) for loop in loops)
    return saves(
        f"{lines} run {count(len(first.places))} ops for {count(first.turns)} slices, one after "
        f"the other, and none needs what another made: {percent(ops / len(facts.ops))} of the "
        "ops of a step",
        first.lines[:3], saved.low_s, saved.expected_s, saved.high_s,
    )  # fmt: skip


def _of_module(facts: Facts, loops: Sequence[tuple[int, ...]]) -> Found:
    modules = {facts.ops[places[0]].module for places in loops}
    often = max(map(len, loops))
    ops = [op for op in facts.ops if op.module in modules and op.phase != "optimizer"]
    # One op in the place of one for each sample, in the backward pass as in the forward pass.
    fewer = 1 - 1 / often
    host_s = sum(op.host_s + op.fixed_s for op in ops) * fewer
    below_s = sum(op.below_s or 0.0 for op in ops)
    first = facts.ops[loops[0][0]].module
    named = f"{facts.module_classes.get(first, 'module')} {first}"
    products: list[OpFact] = [facts.ops[place] for places in loops for place in places]
    return saves(
        f"{named} is called {count(often)} times in a step, on inputs that are all there before "
        f"the first call, with {count(len(ops))} ops",
        lines_of(products), 0.5 * host_s, 0.8 * host_s + 0.2 * below_s, host_s + below_s,
        f"the way to them and their fixed cost take {time_text(host_s / fewer)} "
        f"({percent(host_s / fewer / facts.step_s)} of the step)",
    )  # fmt: skip


PER_SAMPLE_LOOP = Cause(
    name="per_sample_loop",
    title="a Python loop runs a model, or the same ops, once for each sample (one batched call)",
    words=(
        "loop over batch",
        "loop over samples",
        "batched forward",
        "torch.stack inputs",
        "torch.func.vmap",
    ),
    find=_find,
    remedy="model(torch.stack(samples)) in place of [model(sample) for sample in samples]; "
    "ops on the whole batch (mean over dim=(1, 2, 3), torch.where in place of if); "
    "torch.func.vmap where the function takes one sample",
    verified_by="vectorise_loop",
)  # fmt: skip
