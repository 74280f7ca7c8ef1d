"""What is copied whole to add a little: a cache of keys and values, any tensor that grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.timeline.ops import TensorSpec
from gobrrr.timeline.quantities import count, percent, si, time_text

# Of what is put together, the cache is this much at least: other tensors are of like sizes.
_CACHE = 0.75
# Copies of one line in one step, each longer than the one before, that are no chance.
_FEWEST_GROWING = 4


def _cache(op: OpFact) -> TensorSpec | None:
    """The tensor that is most of what a concatenation puts together; ``None``: none is."""
    given = [spec for spec in op.call.tensors if spec.numel]
    if op.name != "aten::cat" or len(given) < 2 or "float" not in given[0].dtype:
        return None
    # Along positions, of which features are not the last dimension: those of graphs are.
    along = [at for at, sizes in enumerate(zip(*(s.shape for s in given))) if len(set(sizes)) > 1]
    dimensions = len(given[0].shape)
    if dimensions < 3 or dimensions - 1 in along:
        return None
    largest = max(given, key=lambda spec: spec.numel)
    return largest if largest.numel >= _CACHE * _total(op) else None


def _grow(ops: Sequence[OpFact]) -> bool:
    """Whether each copies more than the last of its module did, in a few turns at least."""
    by_module: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        by_module[op.module].append(_total(op))
    longest = max(by_module.values(), key=len)
    grown = sum(later > earlier for earlier, later in pairwise(longest))
    return len(longest) >= _FEWEST_GROWING and grown >= 0.8 * (len(longest) - 1)


def _total(op: OpFact) -> int:
    return sum(spec.numel for spec in op.call.tensors)


def _copies(facts: Facts) -> list[OpFact]:
    """The concatenations of a cache."""
    if any(op.phase == "backward" for op in facts.ops):
        return []
    by_line: dict[str, list[OpFact]] = defaultdict(list)
    made: set[int | None] = set()
    # Where a step is one token the cache comes from the step before, in which it was shorter.
    from_before: set[str] = set()
    for op in facts.ops:
        cache = _cache(op)
        if cache is not None and op.source:
            by_line[op.source].append(op)
            if op.varies and cache.storage not in made:
                from_before.add(op.source)
        made |= {spec.storage for spec in op.call.outputs or ()}
    return [
        op
        for line, ops in by_line.items()
        if line in from_before or (facts.in_order and _grow(ops))
        for op in ops
    ]


def _find(facts: Facts) -> Found | None:
    copies = _copies(facts)
    if not copies:
        return None
    taken_s = sum(op.time_s for op in copies)
    caches = [cache for op in copies if (cache := _cache(op)) is not None]
    old = sum(cache.numel for cache in caches) / max(1, sum(map(_total, copies)))
    saved_s = old * taken_s
    return saves(
        f"torch.cat copies a cache that grows, {count(len(copies))} times a step, to add "
        f"{percent(1 - old)} to it",
        lines_of(copies), 0.4 * saved_s, 0.8 * saved_s, saved_s,
        f"{time_text(taken_s)} of the step ({percent(taken_s / facts.step_s)})",
    )  # fmt: skip


def _find_history(facts: Facts) -> Found | None:
    caches = set(map(id, _copies(facts)))
    copies = [op for op in facts.ops if op.grows and op.source and id(op) not in caches]
    if not copies:
        return None
    sizes = [max(spec.numel for spec in op.call.tensors) for op in copies]
    old, new = sum(sizes), sum(map(_total, copies)) - sum(sizes)
    item_bytes = copies[0].call.tensors[0].item_size_bytes or 0
    taken_s = sum(op.time_s for op in copies)
    saved_s = old / (old + new) * taken_s
    size = f" ({si(old * item_bytes, 'B')})" if item_bytes else ""
    return saves(
        f"torch.cat copies {count(old)} values{size} that steps before put together, to add "
        f"{count(new)}, and with each step more",
        # Whoever needs all of it at the end puts it together once.
        lines_of(copies), 0.5 * saved_s, saved_s, taken_s,
        f"{time_text(taken_s)} of the step ({percent(taken_s / facts.step_s)}) where it was "
        "recorded",
    )  # fmt: skip


CONCATENATED_CACHE = Cause(
    name="concatenated_cache",
    title="a key-value cache is concatenated for each token (torch.cat copies all of it)",
    words=("kv cache torch.cat", "StaticCache", "preallocated cache", "index_copy_",
           "slow token generation"),
    find=_find,
    remedy="a preallocated cache: cache[:, position] = new (index_copy_), StaticCache of "
    "transformers; attention reads cache[:, :position + 1]",
)  # fmt: skip
CONCATENATED_HISTORY = Cause(
    name="concatenated_history",
    title="a tensor is concatenated with itself each step, so that steps grow (torch.cat copies "
    "all of it)",
    words=("torch.cat in loop", "append to tensor", "growing tensor", "steps get slower",
           "training slows down"),
    find=_find_history,
    remedy="history.append(new) to a list, and one torch.cat(history) at the end; where each step "
    "reads all of it, a buffer of its final size: history[n : n + len(new)] = new",
)  # fmt: skip
