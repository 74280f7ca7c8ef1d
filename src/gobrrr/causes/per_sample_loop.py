"""A module that Python calls once for each sample of a batch, where one call would do."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.fixes.facts import Facts, OpFact, lines_of
from gobrrr.fixes.loops import repeated_products
from gobrrr.timeline.quantities import count, percent, time_text


def _find(facts: Facts) -> Found | None:
    loops = repeated_products(facts)
    if not loops:
        return None
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
        f"the first call: {count(len(ops))} ops, of which the way to them and their fixed cost "
        f"take {time_text(host_s / fewer)} ({percent(host_s / fewer / facts.step_s)} of the step)",
        lines_of(products), 0.5 * host_s, 0.8 * host_s + 0.2 * below_s, host_s + below_s,
    )  # fmt: skip


PER_SAMPLE_LOOP = Cause(
    name="per_sample_loop",
    title="a model is called once for each sample in a Python loop (one batched call)",
    words=("loop over batch", "batched forward", "torch.stack inputs", "torch.func.vmap"),
    find=_find,
    remedy="model(torch.stack(samples)) in place of [model(sample) for sample in samples]; "
    "torch.func.vmap where the function takes one sample",
    verified_by="vectorise_loop",
)
