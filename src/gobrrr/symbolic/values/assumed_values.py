"""Choices that depend on data, assumed to be spread evenly over what they choose from.

A router of a mixture of experts takes the ``topk`` of scores that nobody knows here. What follows
(which experts are run, for how many tokens each) is a matter of those indices alone, so they get
values of the most even choice; all that is computed from them follows as from known values, and
says so where it decides something.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import lru_cache
from typing import Any

# Values of assumed choices are kept up to this many elements: one-hot masks of 2,048 tokens by 8
# of 256 experts are 4 million.
MOST_ASSUMED = 1 << 24
_ASSUMPTION = "_gobrrr_assumption"


class EvenChoice(str):
    """The sentence about a choice that a program reads or decides by: a token, the end of a loop.

    ``routing``: the sentence where it says which rows go where, and so the shapes of results.
    """

    routing: str

    def __new__(cls, sentence: str, routing: str) -> EvenChoice:
        """Both sentences, without a full stop."""
        made = super().__new__(cls, sentence)
        made.routing = routing
        return made


def assumption_of(value: Any) -> str | None:
    """The sentence that a value rests on; ``None`` for a value that is known."""
    return getattr(value, _ASSUMPTION, None)


def in_words(assumption: str, said: MutableMapping[str, int], *, rows: bool) -> str:
    """What to say of an assumption that a program goes on by; ``rows``: to tell rows apart.

    Where a choice's routing is spoken of, it is not said too that the program reads the choice.
    """
    if not isinstance(assumption, EvenChoice):
        return assumption
    if rows:
        said.pop(assumption, None)
    return assumption.routing if rows or assumption.routing in said else assumption


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """``func`` of real tensors, on the CPU.

    Where the CPU has no kernel for whole numbers and the target does (``histc``), in float64,
    which holds them up to 2^53.
    """
    import torch

    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError) as error:
        whole = [v.dtype for v in args if isinstance(v, torch.Tensor) and not v.is_floating_point()]
        if not whole or "not implemented for" not in str(error):
            raise
        doubled = [v.double() if isinstance(v, torch.Tensor) else v for v in args]
        made = func(*doubled, **kwargs)
        return made.to(whole[0]) if isinstance(made, torch.Tensor) else made


def rest_on(value: Any, assumption: str | None) -> None:
    """Note what a value rests on."""
    if assumption is not None:
        setattr(value, _ASSUMPTION, assumption)


@lru_cache(maxsize=1)
def _choices() -> dict[Any, tuple[int, int, int]]:
    """Operators that choose along a dimension: where the index is among the results, and the
    dimension among the arguments (-1: not at all), and the dimension where it is not given.
    """
    import torch

    aten = torch.ops.aten
    return {
        aten.topk.default: (1, 2, -1),
        aten.max.dim: (1, 1, 0),
        aten.argmax.default: (0, 1, 0),
        aten.multinomial.default: (0, -1, -1),
    }


def spread_evenly(
    func: Any, args: Any, kwargs: Any, result: Any, per_choice: int | None, source: str
) -> tuple[Any, Callable[[], Any], str] | None:
    """The index among the results of ``func``, what makes its values, and the assumption.

    Of a choice over ``n`` entries, row ``r`` takes entries ``r k`` to ``r k + k - 1``, counted
    round: over all rows each entry is taken equally often, to one. ``per_choice``: how often an
    entry is taken that is taken at all; where it is more than the even share, fewer entries are.
    ``None`` if ``func`` does not choose along a dimension.
    """
    where = _choices().get(func)
    if where is None:
        return None
    position, dim_at, default = where
    scores = args[0]
    dim = args[dim_at] if 0 < dim_at < len(args) else kwargs.get("dim", default)
    if dim is None or not scores.dim():
        return None
    index = result[position] if isinstance(result, (list, tuple)) else result
    entries = int(scores.shape[dim])
    shape = tuple(map(int, index.shape))
    if index.numel() == 0 or index.numel() > MOST_ASSUMED or entries == 0:
        return None
    each = shape[dim] if len(shape) == scores.dim() else 1
    taken = entries
    if per_choice is not None:
        taken = min(entries, max(each, -(-index.numel() // per_choice)))

    def make() -> Any:
        import torch

        order = torch.arange(index.numel())
        if len(shape) == scores.dim():
            moved = [n for i, n in enumerate(shape) if i != dim % len(shape)]
            order = order.reshape(*moved, each).movedim(-1, dim).contiguous()
        else:
            order = order.reshape(shape)
        # From the middle: the first and last entries of a vocabulary are often marks that end
        # a program's loop.
        return (((order % taken) + entries // 2) % entries).to(index.dtype)

    name = func._schema.name.partition("::")[2]
    of = "" if taken == entries else f"{taken:,} of "
    spread = (
        f"what {name} chooses is assumed to be spread evenly over {of}the {entries:,} entries that "
        "it chooses from"
    )
    return (
        index,
        make,
        EvenChoice(
            f"{spread}, where the program reads it or decides by it ({source})",
            f"{spread}, as in balanced routing ({source}); --size-hint sets another number of "
            "choices per entry",
        ),
    )
