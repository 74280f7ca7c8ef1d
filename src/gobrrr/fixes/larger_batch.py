"""A larger batch: what of a step does not grow with it, and nothing more specific explains."""

from __future__ import annotations

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.advice import REMOVE_SYNCS
from gobrrr.fixes.fix import MEMORY, NUMERICS, Considered, Fix, Prospect, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.loops import VECTORISE_LOOP
from gobrrr.fixes.patterns.recurrence import FUSED_RNN
from gobrrr.fixes.patterns.training_by_hand import OPTIMIZER_BY_HAND, update_loops
from gobrrr.timeline.quantities import percent, si, time_text

# Advice at a line of the program that takes time from overhead alone, each from ops of its own. A
# larger batch would spread that overhead too, but only once it has to be there.
_SPECIFIC = (REMOVE_SYNCS, VECTORISE_LOOP, FUSED_RNN, OPTIMIZER_BY_HAND)


def _consider(facts: Facts) -> Considered:
    all_s = facts.leaf_s("overhead") - facts.leaf_s("overhead.data_loading")
    explained: dict[str, float] = {}
    for fix in _SPECIFIC:
        found = fix.consider(facts)
        if isinstance(found, Prospect) and found.expected_s > 0:
            explained[fix.name] = found.expected_s
    fixed_s = max(all_s - sum(explained.values()), 0.0)
    # The optimizer's own dispatch is in the overhead already.
    optimizer_s = sum(op.kernel_s for op in facts.ops if op.phase == "optimizer")
    by_hand = [op for ops in update_loops(facts).values() for op in ops if op.phase != "optimizer"]
    optimizer_s += sum(op.kernel_s for op in by_hand)
    saved_s = (fixed_s + optimizer_s) / 2
    beside = f" beside what {' and '.join(explained)} can save" if explained else ""
    if saved_s < 0.02 * facts.step_s:
        return RuledOut(
            f"only {percent(fixed_s / facts.step_s, 1)} of the step does not grow with the "
            f"batch{beside}"
        )
    fresh = sum(op.fresh_bytes for op in facts.ops if op.phase in ("forward", ""))
    return prospect_or_not(
        facts, 0.6 * saved_s, saved_s, 1.3 * saved_s,
        f"{time_text(fixed_s)} of overhead{beside} and {time_text(optimizer_s)} of optimizer "
        f"kernels do not grow with the batch: doubling it saves {time_text(saved_s)} per batch of "
        f"today's size and takes up to {si(fresh, 'B')} more memory",
    )  # fmt: skip


LARGER_BATCH = Fix(
    "larger_batch", "A larger batch",
    ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_fixed_cost",
     "overhead.kernel_gap"),
    (NUMERICS, MEMORY), _consider, "DataLoader(dataset, batch_size=2 * batch_size)",
    changes_step=True,
)  # fmt: skip
