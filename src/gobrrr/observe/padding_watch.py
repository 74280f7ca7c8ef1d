"""How much of what a model is given is padding: read from masks, and from tokens at rows' ends.

Memory of the processor is read where it lies: no op runs, and nothing of a GPU is read.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.observe.program_facts import PaddingFact
from gobrrr.observe.source_lines import user_line

# Calls that are looked at, and elements of a tensor: what is larger is looked at in its first rows.
_MOST_CALLS, _MOST_ELEMENTS = 64, 1 << 17
# Fewer columns are no sequence.
_FEWEST_COLUMNS = 8
# Masks of other things: of segments, of what counts for the loss.
_OTHER_MASKS = ("token_type", "loss", "completion", "segment", "label", "response", "assistant")
_KINDS = {"torch.bool": np.bool_, "torch.int64": np.int64, "torch.int32": np.int32,
          "torch.uint8": np.uint8, "torch.int8": np.int8, "torch.float32": np.float32}  # fmt: skip

Array = NDArray[Any]


class PaddingWatch:
    """Looks at the arguments of outermost calls while a program warms up."""

    def __init__(self) -> None:
        self.seen: list[PaddingFact] = []
        self._left = _MOST_CALLS

    def look(self, args: Any, kwargs: Any, caller: FrameType) -> None:
        """Note the padding in the arguments of one call."""
        if self._left <= 0:
            return
        self._left -= 1
        found = None
        import torch

        # A class of the user's may do anything when asked, and a mode of its, or of a fix's, would
        # take the question for a read of the program's.
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            found = padding_of(args, kwargs)
        if found is not None:
            given, padded, total = found
            self.seen.append(PaddingFact(given, user_line(caller) or "", padded, total))


def padding_of(args: Any, kwargs: Any) -> tuple[str, int, int] | None:
    """``mask`` or ``tokens``, how many of its elements are padding, and of how many.

    What a mask says comes before what tokens look like, and an attention mask's before any other's;
    ``None``: no argument says anything. A matrix of zeros and ones with a name of its own is a mask
    where the name says so.
    """
    masks: list[tuple[str, int, int]] = []
    tokens: list[tuple[str, int, int]] = []
    for name, value in _tensors((*enumerate(args), *kwargs.items())):
        array = _array_of(value)
        if array is None:
            continue
        low, high = array.min(), array.max()
        if low >= 0 and high <= 1:
            called = str(name)
            if array.dtype.kind == "f" and not ("mask" in called and np.isin(array, (0, 1)).all()):
                # Data between 0 and 1.
                continue
            if isinstance(name, str) and (
                "mask" not in called or any(word in called for word in _OTHER_MASKS)
            ):
                continue
            padded = _padded_by_mask(array)
            if padded is None and "mask" in called and low == high:
                padded = 0
            if padded is not None:
                own = "attention_mask" in called or "padding_mask" in called
                masks.insert(0 if own else len(masks), ("mask", padded, array.size))
        elif array.dtype.kind == "i" and low >= 0:
            padded = _padded_tokens(array)
            if padded is not None:
                tokens.append(("tokens", padded, array.size))
    return next(iter((*masks, *tokens)), None)


def _tensors(items: Any, deep: int = 1) -> Iterator[tuple[Any, Any]]:
    for name, value in items:
        if type(value) in (list, tuple) and deep:
            yield from _tensors(enumerate(value), deep - 1)
        elif isinstance(value, dict) and deep:
            yield from _tensors(value.items(), deep - 1)
        else:
            yield name, value


def _array_of(tensor: Any) -> Array | None:
    """A matrix in the processor's memory, as NumPy reads it; its first rows if it is large."""
    import torch

    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
        return None
    kind = _KINDS.get(str(tensor.dtype))
    if kind is None or tensor.device.type != "cpu" or tensor.dim() != 2:
        return None
    rows, columns = tensor.shape
    if rows < 1 or columns < _FEWEST_COLUMNS or not tensor.is_contiguous() or tensor.requires_grad:
        return None
    rows = min(rows, max(1, _MOST_ELEMENTS // columns))
    size = rows * columns * np.dtype(kind).itemsize
    address = tensor.data_ptr()
    held = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
    if not address or held < size:
        # Its memory was given back, or it never had any.
        return None
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype=kind).reshape(rows, columns)


def _padded_by_mask(array: Array) -> int | None:
    """Elements of the value that stands for padding: each row is one run of each value.

    One side of all rows is real: the first column if padding comes last. A causal mask's rows are
    longer by one each, and say nothing of padding.
    """
    values = array != 0
    for rows in (values, values[:, ::-1]):
        real = rows[0, 0]
        if not (rows[:, 0] == real).all():
            continue
        kept = rows == real
        # No row becomes real again.
        if (kept[:, 1:] > kept[:, :-1]).any():
            continue
        lengths = kept.sum(axis=1)
        if lengths.min() == rows.shape[1]:
            return None
        if len(lengths) > 2 and (np.abs(np.diff(lengths)) == 1).all():
            return None
        return int(rows.size - lengths.sum())
    return None


def _padded_tokens(array: Array) -> int | None:
    """Elements of the value that ends (or begins) rows in runs and stands nowhere else."""
    for rows in (array, array[:, ::-1]):
        ends, how_often = np.unique(rows[:, -1], return_counts=True)
        # The smallest of those that end as many rows: padding is 0 as a rule.
        value = ends[how_often.argmax()]
        same = rows == value
        tail = np.logical_and.accumulate(same[:, ::-1], axis=1).sum(axis=1)
        if tail.max() >= 2 and int(tail.sum()) == int(same.sum()):
            return int(tail.sum())
    return None
