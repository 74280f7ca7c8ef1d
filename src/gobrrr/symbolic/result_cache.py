"""What an operator gave for arguments of these shapes, made again without asking PyTorch.

A step runs the same operators on the same shapes over and over, and what a stand-in's operator
returns is a matter of shapes, strides and dtypes alone. PyTorch has such a cache too, but its own
dispatch to it takes several times what making the result takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

# What depends on more than the arguments' shapes: the size of a storage, or a constant's values.
_NOT_KEPT = frozenset(
    {"as_strided", "as_strided_", "lift", "lift_fresh", "lift_fresh_copy", "resize_", "resize_as_",
     "set_", "_resize_output_", "_local_scalar_dense"}
)  # fmt: skip
_PLAIN = (bool, int, str)


class _NoKeyError(Exception):
    """An argument that a key cannot be made of."""


class _Part(NamedTuple):
    """One tensor of a result.

    Attributes:
        source: position among the tensors that were given, of which it is a view, or which it is;
            -1: it has memory of its own.
        shape: ``None``: it is the tensor that was given.
        strides: in elements.
        offset: in elements.
        dtype: of PyTorch.
    """

    source: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: Any = None


class ResultCache:
    """Runs operators on stand-ins, each combination of shapes once.

    Args:
        fake_mode: the mode of the stand-ins.
    """

    def __init__(self, fake_mode: Any) -> None:
        import torch

        self._results: dict[Any, tuple[Any, tuple[_Part | None, ...]]] = {}
        try:
            self._make, self._make_view = _makers(fake_mode)
            self._works = True
        except (AttributeError, TypeError):
            # A version of PyTorch that makes stand-ins in another way: every operator is run, which
            # gives the same results later.
            self._works = False
        self._modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
        self._describe = _describer()
        self._state = (torch.is_inference_mode_enabled, torch.get_default_dtype)
        self.hits = 0

    def run(self, func: Any, args: Any, kwargs: Any, inputs: list[Any]) -> Any:
        """``func(*args, **kwargs)``; ``inputs`` are the tensors among the arguments, in order."""
        # Under modes besides that of the stand-ins (a trace's) the operator has to be seen.
        if not self._works or not _may_keep(func) or self._modes() != 1:
            return func(*args, **kwargs)
        try:
            key = self._key(func, args, kwargs)
        except _NoKeyError:
            return func(*args, **kwargs)
        known = self._results.get(key)
        if known is None:
            result = func(*args, **kwargs)
            kept = _taken_down(result, inputs)
            if kept is not None:
                self._results[key] = kept
            return result
        self.hits += 1
        kind, parts = known
        made = [None if part is None else self._remake(part, inputs) for part in parts]
        return kind(made) if kind is not None else made[0]

    def _remake(self, part: _Part, inputs: list[Any]) -> Any:
        if part.source < 0:
            return self._make(part)
        source = inputs[part.source]
        return source if part.shape is None else self._make_view(part, source)

    def _key(self, func: Any, args: Any, kwargs: Any) -> Any:
        state = [ask() for ask in self._state]
        if not kwargs:
            return (func, *state, *map(self._describe, args))
        named = [(name, self._describe(value)) for name, value in kwargs.items()]
        return (func, *state, *map(self._describe, args), *named)


@functools.lru_cache(maxsize=1)
def _describer() -> Callable[[Any], Any]:
    """What of an argument decides on the shapes of a result, as a part of a key."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    strided = torch.strided
    settings = {torch.dtype, torch.layout, torch.memory_format, torch.device}

    def described(value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.layout is not strided:
                raise _NoKeyError
            return (
                value.shape, value.stride(), value.storage_offset(), value.dtype,
                value.requires_grad, value.is_neg(), value.is_conj(), value.is_inference(),
            )  # fmt: skip
        if kind in _PLAIN:
            # 1, 1.0 and True are equal, and give results of different dtypes.
            return kind, value
        if kind is float:
            if value != value:
                raise _NoKeyError
            return kind, value
        if kind is list or kind is tuple:
            return kind, *map(described, value)
        if kind in settings:
            return value
        raise _NoKeyError

    return described


@functools.lru_cache(maxsize=4096)
def _may_keep(func: Any) -> bool:
    """Whether shapes decide on the result of an operator."""
    import torch

    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
    name = func._schema.name.partition("::")[2]
    # ``index`` has a shape that depends on data where it is given a mask, and then says so.
    return (
        func.namespace == "aten"
        and name not in _NOT_KEPT
        and (name == "index" or not tags.intersection(func.tags))
    )


def _taken_down(result: Any, inputs: list[Any]) -> tuple[Any, tuple[_Part | None, ...]] | None:
    """A result in parts; ``None`` if it cannot be made from such."""
    kind = type(result) if type(result) in (list, tuple) else None
    items = list(result) if kind is not None else [result]
    parts: list[_Part | None] = []
    for item in items:
        if item is None:
            parts.append(None)
            continue
        part = _part(item, inputs)
        if part is None:
            return None
        parts.append(part)
    own = [item.untyped_storage()._cdata for item, part in zip(items, parts)
           if part is not None and part.source < 0]  # fmt: skip
    return (kind, tuple(parts)) if len(set(own)) == len(own) else None


def _part(item: Any, inputs: list[Any]) -> _Part | None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    for position, given in enumerate(inputs):
        if item is given:
            return _Part(position)
    if (
        type(item) is not FakeTensor
        or item.layout is not torch.strided
        or item.device.type != "cpu"
        or item.constant is not None
        or item.requires_grad
        or item.is_conj()
        or item.is_neg()
        or item.is_quantized
    ):
        return None
    storage = item.untyped_storage()
    shape, strides = tuple(item.shape), item.stride()
    sources = {
        id(given): position
        for position, given in enumerate(inputs)
        if given.untyped_storage()._cdata == storage._cdata
    }
    if len(sources) > 1:
        return None
    if sources:
        (source,) = sources.values()
        return _Part(source, shape, strides, item.storage_offset(), item.dtype)
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    if item.storage_offset() or storage.nbytes() != span * item.element_size():
        return None
    return _Part(-1, shape, strides, 0, item.dtype)


def _makers(fake_mode: Any) -> tuple[Callable[[_Part], Any], Callable[[_Part, Any], Any]]:
    """Make a stand-in with memory of its own, and one that is a view of another.

    As the constructor of ``FakeTensor`` does it; what that notes on a tensor is the same for all.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    host, meta = torch.device("cpu"), torch.device("meta")
    below, empty = torch._C._DisableTorchDispatch, torch.empty_strided
    subclass, in_inference = torch.Tensor._make_subclass, torch.is_inference_mode_enabled
    # What becomes of a program that asks for the address of a stand-in's data.
    lenient = fake_mode._allow_unsafe_data_ptr_access
    seal = (
        torch._C._set_warn_deprecated_on_mutable_data_ptr
        if lenient
        else torch._C._set_throw_on_mutable_data_ptr
    )

    def bare(part: _Part) -> Any:
        return empty(part.shape, part.strides, dtype=part.dtype, device=meta)

    guard = below()
    try:
        example = FakeTensor(fake_mode, bare(_Part(-1, (1,), (1,), 0, torch.float32)), host)
    finally:
        del guard
    notes = dict(vars(example))

    def stand_in(element: Any) -> Any:
        made = subclass(
            FakeTensor, element, False, dispatch_device=True, device_for_backend_keys=host
        )
        seal(made)
        vars(made).update(notes)
        return made

    def make(part: _Part) -> Any:
        guard = below()
        try:
            return stand_in(bare(part))
        finally:
            del guard

    def make_view(part: _Part, source: Any) -> Any:
        if in_inference() and not source.is_inference():
            # A view of an ordinary tensor is one as well.
            with torch.inference_mode(False):
                return view_of(part, source)
        return view_of(part, source)

    def view_of(part: _Part, source: Any) -> Any:
        storage = source.untyped_storage()
        guard = below()
        try:
            element = bare(part)
            element.set_(storage, part.offset, part.shape, part.strides)
            return stand_in(element)
        finally:
            del guard

    return make, make_view
