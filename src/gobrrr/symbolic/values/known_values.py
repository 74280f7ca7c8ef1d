"""Values of stand-ins that Python reads: as arrays, as text, as numbers in a list."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from gobrrr.symbolic.stand_ins import StandIns, real_call, value_of
from gobrrr.symbolic.target.modules import Replacements
from gobrrr.symbolic.values.assumed_values import assumption_of


@contextlib.contextmanager
def known_values_read(stand_ins: StandIns) -> Iterator[None]:
    """``.numpy()`` of a stand-in whose values are known gives them, on a CPU too.

    ``f"{loss:.3f}"`` and ``torch.tensor([loss, ...])`` read numbers, as of tensors with data.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    from_data = torch.tensor

    def numpy(self: Any, *, force: bool = False) -> Any:
        known = value_of(self)
        if known is None:
            return torch.Tensor.numpy(self, force=force)
        stand_ins.decided_by(assumption_of(known))
        return real_call(lambda: known.detach().numpy().copy(), (), {})

    put = Replacements()

    def text(self: Any, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def tensor(data: Any, *, dtype: Any = None, **options: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            return from_data(data, dtype=dtype, **options)
        found: list[Any] = []
        numbers = _numbers_in(data, found)
        if not any(isinstance(item, FakeTensor) for item in found):
            return from_data(data, dtype=dtype, **options)
        if dtype is None:
            # Tensors in a list have a say in the dtype of what it makes.
            dtype = functools.reduce(torch.promote_types, map(_dtype_in_list, found))
        return from_data(numbers, dtype=dtype, **options)

    put(FakeTensor, "numpy", numpy)
    put(FakeTensor, "__format__", text)
    put(torch, "tensor", tensor)
    try:
        yield
    finally:
        put.undo()


def _numbers_in(data: Any, leaves: list[Any]) -> Any:
    """Nested lists with the number of each stand-in in its place, which the program waits for.

    What stood in the lists is appended to ``leaves``.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(data, (list, tuple)):
        return [_numbers_in(item, leaves) for item in data]
    leaves.append(data)
    return data.item() if isinstance(data, FakeTensor) else data


def _dtype_in_list(item: Any) -> Any:
    """The dtype of a list of such items."""
    import torch

    if isinstance(item, torch.Tensor):
        return item.dtype
    if isinstance(item, float):
        return torch.get_default_dtype()
    return torch.bool if isinstance(item, bool) else torch.int64
