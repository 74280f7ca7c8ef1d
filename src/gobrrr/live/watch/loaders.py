"""What is known of a script's data loaders and of the data sets behind them."""

from __future__ import annotations

import inspect
import math
import types
from typing import Any

from gobrrr.observe.program_facts import LoaderFact

# Data sets are looked into this far: a subset of a subset of one.
_MOST_NESTED = 4
_METHODS = ("__getitem__", "__iter__", "__call__")
# Of a class, the methods that are followed to what they use.
_MOST_METHODS = 32
_PADDING = "transformers.data.data_collator"
_EMPTY = types.CellType()
# A list of fewer tensors holds columns rather than samples.
_MOST_TENSORS = 16
# What makes a tensor or a number of what is held, and computes nothing.
_PLAIN = frozenset(
    ("torch", "np", "numpy", "int", "float", "bool", "tuple", "tensor", "as_tensor", "from_numpy",
     "long", "int64", "float32", "item", "dtype", "unsqueeze", "squeeze", "view", "reshape")
)  # fmt: skip


def describe_loader(loader: Any) -> LoaderFact:
    """What a ``DataLoader`` was asked to do."""
    return _fact(
        loader.dataset,
        loader.collate_fn,
        workers=int(loader.num_workers),
        pins=bool(loader.pin_memory),
        batch_size=loader.batch_size,
        persistent=bool(loader.persistent_workers),
        drops_last=bool(loader.drop_last),
    )


def describe_iterator(iterator: Any) -> LoaderFact:
    """What the ``DataLoader`` behind one of its iterators was asked to do."""
    persistent = getattr(iterator, "_persistent_workers", None)
    return _fact(
        getattr(iterator, "_dataset", None),
        getattr(iterator, "_collate_fn", None),
        workers=int(iterator._num_workers),
        pins=bool(iterator._pin_memory),
        batch_size=getattr(getattr(iterator, "_index_sampler", None), "batch_size", None),
        # Without workers there are none that could.
        persistent=False if persistent is None else bool(persistent),
        drops_last=bool(getattr(iterator, "_drop_last", False)),
    )


def _fact(dataset: Any, collate: Any, **asked: Any) -> LoaderFact:
    from torch.utils.data import IterableDataset
    from torch.utils.data._utils.collate import default_collate, default_convert

    innermost = _innermost(dataset)
    return LoaderFact(
        collates=collate not in (None, default_collate, default_convert),
        dataset=type(dataset).__name__,
        length=_length(dataset),
        in_memory=_in_memory(innermost),
        only_indexes=_only_indexes(innermost),
        tokenizes=any(map(_is_tokenizer, _reached(dataset, collate))),
        iterable=issubclass(type(dataset), IterableDataset),
        sample_bytes=_sample_bytes(innermost),
        fetches_batches=callable(getattr(type(innermost), "__getitems__", None)),
        **asked,
    )


def _innermost(dataset: Any) -> Any:
    """What a subset is a subset of."""
    for _ in range(_MOST_NESTED):
        inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
        if type(dataset).__name__ != "Subset" or inner is None:
            break
        dataset = inner
    return dataset


def _reached(*owners: Any) -> list[Any]:
    """What the code of data sets and of functions that make batches uses of what they hold.

    Attributes, closures, globals. What pads batches (``transformers``) holds a tokenizer for its
    settings.
    """
    found: list[Any] = []
    for owner in owners:
        if (type(owner).__module__ or "").startswith(_PADDING):
            continue
        functions = _functions_of(owner)
        names = {name for function in functions for name in _names_in(function.__code__)}
        held = vars(owner) if hasattr(owner, "__dict__") else {}
        found += [value for name, value in held.items() if name in names]
        for function in functions:
            found += [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
            found += [function.__globals__.get(name) for name in _names_in(function.__code__)]
    return found


def _functions_of(owner: Any) -> list[types.FunctionType]:
    """A function itself; of an object its methods that make samples, and those that they name."""
    found: dict[str, types.FunctionType] = {}
    left = list(_METHODS)
    while left and len(found) < _MOST_METHODS:
        name = left.pop(0)
        method = inspect.getattr_static(type(owner), name, None)
        if inspect.isfunction(method) and name not in found:
            found[name] = method
            left += _names_in(method.__code__)
    return [*([owner] if inspect.isfunction(owner) else []), *found.values()]


def _names_in(code: types.CodeType) -> list[str]:
    """Globals and attributes that code names, with the comprehensions inside it."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [*code.co_names, *(name for each in inner for name in _names_in(each))]


def _is_tokenizer(value: Any) -> bool:
    home = type(value).__module__ or ""
    return home.startswith(("tokenizers", "transformers.tokenization"))


def _length(dataset: Any) -> int | None:
    """Of a data set of torch's, or one whose length is a plain method; a user's may do anything."""
    try:
        return len(dataset)
    except Exception:
        return None


def _in_memory(dataset: Any) -> bool:
    """Whether it holds, as tensors or arrays, as many rows as it has samples."""
    length = _length(dataset)
    held = vars(dataset) if hasattr(dataset, "__dict__") else {}
    if length is None:
        return False
    for each in held.values():
        if type(each) in (list, tuple):
            # A list of as many samples, or a few tensors that hold all of them.
            if len(each) == length and length and _rows(each[0]) is not None:
                return True
            if len(each) < _MOST_TENSORS and any(_rows(value) == length for value in each):
                return True
        elif _rows(each) == length:
            return True
    return False


def _sample_bytes(dataset: Any) -> float | None:
    """Of the tensors and arrays that hold its samples, for each; ``None``: it holds none so."""
    length = _length(dataset)
    if not length:
        return None
    held = vars(dataset) if hasattr(dataset, "__dict__") else {}
    found = 0.0
    for each in held.values():
        if type(each) in (list, tuple) and len(each) == length and _rows(each[0]) is not None:
            found += _bytes_of(each[0])
        else:
            columns = each if type(each) in (list, tuple) and len(each) < _MOST_TENSORS else (each,)
            found += sum(_bytes_of(one) / length for one in columns if _rows(one) == length)
    return found or None


def _bytes_of(value: Any) -> float:
    """Of a tensor or an array."""
    return float(math.prod(value.shape) * value.itemsize)


def _rows(value: Any) -> int | None:
    """How many rows a tensor or an array in memory has; ``None`` of anything else."""
    import numpy as np
    import torch

    kind = type(value)
    if not issubclass(kind, (torch.Tensor, np.ndarray)) or issubclass(kind, np.memmap):
        return None
    return int(value.shape[0]) if len(value.shape) else None


def _only_indexes(dataset: Any) -> bool:
    """Whether a sample is what the data set holds at an index, and no more is computed for it.

    By the names that its ``__getitem__`` reads: attributes that cannot be called, and ``_PLAIN``.
    """
    from torch.utils.data import TensorDataset

    if type(dataset) is TensorDataset:
        return True
    method = getattr(type(dataset), "__getitem__", None)
    if not inspect.isfunction(method) or not hasattr(dataset, "__dict__"):
        return False
    held = {name for name, value in vars(dataset).items() if not callable(value)}
    return set(method.__code__.co_names) <= held | _PLAIN
