"""Results whose size depends on data: by what is known of it, or by a size given as an example.

What PyTorch marks as of a dynamic shape (``torch.Tag.dynamic_output_shape``), each by the rule of
its own kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.symbolic.stand_ins import real_call

ValueOf = Callable[[Any], Any]


def sized(
    func: Any,
    args: Any,
    kwargs: Any,
    size: int | None,
    value_of: ValueOf,
    known: Callable[..., Any],
) -> Any:
    """The result of ``func``, as stand-ins.

    Args:
        func: an operator whose result has a size that depends on data.
        args: its positional arguments, stand-ins among them.
        kwargs: the others.
        size: the user's example; ``None`` if there is none.
        value_of: the value of a stand-in, as a real tensor; ``None`` if unknown.
        known: a stand-in for a real tensor, whose values are then known; ``on_host`` says that it
            lies there.

    Returns:
        ``None`` if the size is needed and not given, or ``func`` is not one of those known here.
    """
    name = func._schema.name.partition("::")[2]
    named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    named |= dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
    exact = _EXACT.get(name)
    if exact is not None:
        found = exact(named, size, value_of, known)
        if found is not None:
            return found
    rule = _BY_EXAMPLE.get(name)
    return None if rule is None or size is None else rule(named, size)


def _index(named: Any, size: int | None, value_of: ValueOf, known: Callable[..., Any]) -> Any:
    """``tensor[masks]``: a mask stands for as many index tensors as it has dimensions."""
    import torch

    replaced: list[Any] = []
    for item in named["indices"]:
        if item is None or item.dtype not in (torch.bool, torch.uint8):
            replaced.append(item)
            continue
        value = value_of(item)
        if value is not None:
            replaced += [known(part) for part in _nonzero(value)]
        elif size is not None:
            replaced += [item.new_empty((size,), dtype=torch.int64) for _ in range(item.dim())]
        else:
            return None
    return torch.ops.aten.index.Tensor(named["self"], replaced)


def _nonzero(mask: Any) -> Any:
    return real_call(lambda: mask.nonzero(as_tuple=True), (), {})


def _number(function: Callable[[], Any]) -> int:
    """A whole number computed from real tensors."""
    return int(real_call(lambda: int(function()), (), {}))


def _masked_select(
    named: Any, size: int | None, value_of: ValueOf, known: Callable[[Any], Any]
) -> Any:
    import torch

    mask = value_of(named["mask"])
    if mask is None:
        return None
    shape = torch.broadcast_shapes(named["self"].shape, mask.shape)
    return named["self"].new_empty((_number(lambda: mask.expand(shape).sum()),))


def _pack(named: Any, size: int | None, value_of: ValueOf, known: Callable[..., Any]) -> Any:
    """Steps of each length one after the other; the batch of each step, on the host."""
    tensor, lengths = named["input"], value_of(named["lengths"])
    batch, steps = tensor.shape[:2] if named["batch_first"] else reversed(tensor.shape[:2])
    if lengths is None and size is None:
        return None
    counts = [min(size or 0, steps)] * batch if lengths is None else _list(lengths)
    sizes = [sum(count > step for count in counts) for step in range(max(counts, default=0))]
    packed = tensor.new_empty((sum(counts), *tensor.shape[2:]))
    return packed, known(real_call(_whole_numbers, (sizes,), {}), on_host=True)


def _list(value: Any) -> list[int]:
    return [int(item) for item in real_call(lambda: value.flatten().tolist(), (), {})]


def _whole_numbers(values: list[int]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.int64)


def _ctc_loss(named: Any, size: int | None, value_of: ValueOf, known: Callable[..., Any]) -> Any:
    """The losses, and the forward variables of each step, blanks between the labels.

    ``aten/src/ATen/native/cuda/LossCTC.cu``: 2 x the longest target + 1. Of a batch of padded
    targets whose lengths are not known, the longest takes all of the width.
    """
    import torch

    scores, targets, lengths = named["log_probs"], named["targets"], named["target_lengths"]
    batch = scores.shape[1] if scores.dim() == 3 else 1
    if isinstance(lengths, torch.Tensor):
        value = value_of(lengths)
        counts = None if value is None else _list(value)
    else:
        counts = list(lengths)
    if counts is not None:
        longest = max(counts, default=0)
    elif size is not None:
        longest = size
    elif targets.dim() == 2:
        longest = targets.shape[1]
    else:
        return None
    return (
        scores.new_empty((batch,) if scores.dim() == 3 else ()),
        scores.new_empty((batch, scores.shape[0], 2 * longest + 1)),
    )


def _lstsq(named: Any, size: int | None, value_of: ValueOf, known: Callable[..., Any]) -> Any:
    """By the driver of GPUs, ``gels``, which takes full rank: the rank is not looked for."""
    import torch

    left, right = named["self"], named["b"]
    rows, columns = left.shape[-2:]
    vector = left.dim() - 1 == right.dim()
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[: -1 if vector else -2])
    wide = () if vector else (right.shape[-1],)
    driver = named.get("driver") or "gels"
    return (
        left.new_empty((*batch, columns, *wide)),
        left.new_empty((*batch, *wide) if rows > columns and driver != "gelsy" else (0,)),
        left.new_empty((0,) if driver == "gels" else batch, dtype=torch.int64),
        left.new_empty((*batch, min(rows, columns)) if driver in ("gelsd", "gelss") else (0,)),
    )


def _flat(named: Any, size: int) -> Any:
    return named["self"].new_empty((size,))


def _unique(named: Any, size: int) -> Any:
    import torch

    tensor = named["self"]
    places = torch.empty_like(tensor, dtype=torch.int64)
    return (tensor.new_empty((size,)), places, tensor.new_empty((size,), dtype=torch.int64))


def _unique_consecutive(named: Any, size: int) -> Any:
    return _unique(named, size) if named.get("dim") is None else _unique_dim(named, size)


def _unique_dim(named: Any, size: int) -> Any:
    import torch

    tensor, dim = named["self"], named["dim"]
    shape = list(tensor.shape)
    places = tensor.new_empty((shape[dim],), dtype=torch.int64)
    shape[dim] = size
    return (tensor.new_empty(shape), places, tensor.new_empty((size,), dtype=torch.int64))


def _repeats(named: Any, size: int) -> Any:
    return named["repeats"].new_empty((size,))


def _nonzeros(named: Any, size: int) -> Any:
    import torch

    return named["self"].new_empty((size, named["self"].dim()), dtype=torch.int64)


def _bins(named: Any, size: int) -> Any:
    import torch

    weights = named.get("weights")
    dtype = torch.int64 if weights is None else torch.promote_types(weights.dtype, torch.float32)
    return named["self"].new_empty((max(size, named.get("minlength") or 0),), dtype=dtype)


# Rules that may do without an example, and those that need one.
_EXACT: dict[str, Callable[[Any, int | None, ValueOf, Callable[..., Any]], Any]] = {
    "index": _index,
    "masked_select": _masked_select,
    "_pack_padded_sequence": _pack,
    "_ctc_loss": _ctc_loss,
    "linalg_lstsq": _lstsq,
}
_BY_EXAMPLE: dict[str, Callable[[Any, int], Any]] = {
    "masked_select": _flat,
    "nonzero": _nonzeros,
    "argwhere": _nonzeros,
    "bincount": _bins,
    "repeat_interleave": _repeats,
    "_unique": lambda named, size: _unique(named, size)[:2],
    "_unique2": _unique,
    "unique_consecutive": _unique_consecutive,
    "unique_dim": _unique_dim,
    "unique_dim_consecutive": _unique_dim,
}
