"""Of flex attention's block mask, the share of blocks that are not empty."""

from __future__ import annotations

from typing import Any

from gobrrr.symbolic.stand_ins import real_call, value_of

# Pairs of a query and a key for which a mask function is asked: some seconds on one core.
MOST_PAIRS = 1 << 29
# Pairs asked at once, so that the answers take little memory.
PAIRS_AT_ONCE = 1 << 22
_COUNT = "_gobrrr_blocks"


def share_of_blocks(mask: Any, queries: int, keys: int) -> float | None:
    """The share of all blocks that a block mask leaves; ``None`` where it is not known.

    ``mask``: as ``BlockMask.as_tuple`` gives it. The number of blocks is that of the mask's own
    tables where their values are known, and else what its function of indices leaves, which is
    what ``create_block_mask`` makes these tables of.
    """
    partly, wholly = mask[2], mask[4]
    rows = partly.numel()
    if not queries or not rows:
        return 1.0
    count = _in_tables(partly, wholly)
    if count is None:
        # Every layer is given the same mask, in each step.
        count = getattr(partly, _COUNT, None)
    if count is None:
        count = _left_by_function(mask, tuple(map(int, partly.shape)))
        setattr(partly, _COUNT, count)
    return None if count is None else min(1.0, count / (rows * -(-keys // int(mask[-2]))))


def _in_tables(*tables: Any) -> int | None:
    count = 0
    for blocks in tables:
        if blocks is not None:
            known = value_of(blocks)
            if known is None:
                return None
            count += int(real_call(lambda known=known: known.sum().item(), (), {}))
    return count


def _left_by_function(mask: Any, shape: tuple[int, ...]) -> int | None:
    """Blocks in which a mask's function leaves a pair; ``None`` if it asks more than indices."""
    from torch.nn.attention import flex_attention

    queries, keys, function = int(mask[0]), int(mask[1]), mask[-1]
    block = int(mask[-3]), int(mask[-2])
    # A mask given as tables has a function that leaves everything.
    stated = function is not getattr(flex_attention, "noop_mask", None)
    fits = len(shape) == 3 and shape[2] == -(-queries // block[0])
    if not stated or not fits or shape[0] * shape[1] * queries * keys > MOST_PAIRS:
        return None
    try:
        return int(real_call(_count, (function, shape[:2], (queries, keys), block), {}))
    except Exception:  # a function of tensors that are stand-ins, or one that torch refuses too
        return None


def _count(
    function: Any, of: tuple[int, ...], lengths: tuple[int, int], block: tuple[int, int]
) -> int:
    import torch

    # As ``create_mask`` calls it: of single indices.
    asked = torch.vmap(function, in_dims=(None, None, None, 0))
    asked = torch.vmap(asked, in_dims=(None, None, 0, None))
    queries, keys = lengths
    columns = torch.arange(keys)
    at_once = max(1, PAIRS_AT_ONCE // (keys * block[0])) * block[0]
    padding = -keys % block[1]
    count = 0
    for b in range(of[0]):
        for h in range(of[1]):
            for first in range(0, queries, at_once):
                rows = torch.arange(first, min(first + at_once, queries))
                left = asked(torch.tensor(b), torch.tensor(h), rows, columns)
                if left.device.type != "cpu" or hasattr(left, "fake_mode"):
                    raise ValueError("the mask depends on data")
                left = left.expand(len(rows), keys)
                left = torch.nn.functional.pad(left, (0, padding, 0, -len(rows) % block[0]))
                tiles = left.unflatten(1, (-1, block[1])).unflatten(0, (-1, block[0]))
                count += int(tiles.any(3).any(1).sum().item())
    return count
