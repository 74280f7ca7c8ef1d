"""What the framework was asked to do: an operator call with its arguments, as plain data.

One vocabulary for both origins: a dispatch recorder (which sees everything) and a profiler trace
(which sees inputs only, and sometimes no strides). What was not recorded is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Union

# Bytes per element, by the dtype names of ``str(torch.dtype)`` without the ``torch.`` prefix.
ITEM_SIZE_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
    "qint8": 1, "quint8": 1, "qint32": 4, "float4_e2m1fn_x2": 1,
}  # fmt: skip
# Values that one element holds, where that is more than one.
VALUES_IN_ELEMENT: dict[str, int] = {"float4_e2m1fn_x2": 2}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, dtype and layout of one tensor argument.

    Attributes:
        shape: sizes, in elements.
        dtype: ``"float32"`` and so on; ``""`` where the trace did not record it.
        strides: in elements; ``None`` where not recorded (contiguous is then assumed).
        storage: an id that two tensors share exactly if they share memory; ``None`` if unknown.
            Not part of equality, so that calls of the same shape group together.
        device: ``"cpu"``, ``"cuda:0"``; ``""`` where not recorded.
        offset: first element within the storage, in elements; ``None`` where not recorded. Tells
            two views of one storage (q, k and v of one projection) from one tensor used twice.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    storage: int | None = field(default=None, compare=False)
    device: str = field(default="", compare=False)
    offset: int | None = field(default=None, compare=False)

    @property
    def numel(self) -> int:
        """Elements that an index can name (a stride-0 dimension counts in full)."""
        return prod(self.shape)

    @property
    def unique_elements(self) -> int:
        """Elements in memory: an expanded dimension counts once, overlapping windows their span."""
        return _unique_elements(self.shape, self.strides)

    @property
    def item_size_bytes(self) -> int | None:
        """Bytes of one element; ``None`` if the dtype is unknown."""
        return ITEM_SIZE_BYTES.get(self.dtype)

    @property
    def unique_bytes(self) -> int | None:
        """Bytes of memory that hold the tensor; ``None`` if the dtype is unknown."""
        size = self.item_size_bytes
        return None if size is None else size * self.unique_elements

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order (true where strides were not recorded)."""
        if self.strides is None:
            return True
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1 and s != expected:
                return False
            expected *= n
        return True


# Steps repeat few layouts many thousand times.
@lru_cache(maxsize=4096)
def _unique_elements(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    if strides is None:
        return prod(shape)
    count = span = 1
    for n, stride in zip(shape, strides):
        if n == 0:
            return 0
        if stride:
            count *= n
            span += (n - 1) * stride
    return min(count, span)


Arg = Union[TensorSpec, int, float, bool, str, None, tuple["Arg", ...]]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an operator.

    Attributes:
        name: qualified name without overload, ``"aten::addmm"``.
        args: in the order of the operator's schema, keyword arguments and defaults filled in.
            A scalar argument that a trace did not record is ``None``; a list is a tuple.
        outputs: result tensors, or ``None`` where not recorded (traces). A formula must then
            derive them from the inputs.
        overload: ``"Tensor"``, ``"out"``, ...; ``""`` where not recorded.
        missed: (bytes read, bytes written) that it does not find in each level of the device's
            memory but the last (``roofline.residency``); ``()`` where that is not known.
    """

    name: str
    args: tuple[Arg, ...] = ()
    outputs: tuple[TensorSpec, ...] | None = None
    overload: str = ""
    missed: tuple[tuple[float, float], ...] = ()
    # Asked for many times of each call; found when first asked for.
    _tensors: tuple[TensorSpec, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            known = hash((self.name, self.args, self.outputs, self.overload, self.missed))
            object.__setattr__(self, "_hash", known)
        return known

    def __reduce__(self) -> tuple[type[OpCall], tuple[Any, ...]]:
        # Another process has other hashes of strings.
        return OpCall, (self.name, self.args, self.outputs, self.overload, self.missed)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All input tensors, lists flattened, in order."""
        known = self._tensors
        if known is None:
            found: list[TensorSpec] = []
            _collect(self.args, found)
            known = tuple(found)
            object.__setattr__(self, "_tensors", known)
        return known

    @property
    def sharing(self) -> tuple[int, ...]:
        """Which of its tensors are the same memory: of each, the place of the first that is.

        ``x * x`` reads half of what ``x * y`` does, and calls compare equal without regard to
        storages: what is known by call and sharing holds for every call with both.
        """
        tensors = self.tensors if self.outputs is None else (*self.tensors, *self.outputs)
        if len(tensors) < 2:
            return ()
        first: dict[tuple[int | None, int | None], int] = {}
        return tuple(
            first.setdefault((t.storage, t.offset), place) if t.storage is not None else place
            for place, t in enumerate(tensors)
        )

    @property
    def form(self) -> tuple[object, ...]:
        """The same for two calls exactly if they are equal, in plain tuples.

        These compare far faster than calls do: for who asks once of each of many.
        """
        outputs = None if self.outputs is None else _form(self.outputs)
        return (self.name, _form(self.args), outputs, self.overload, self.missed)

    @property
    def likeness(self) -> tuple[object, ...]:
        """The same for two calls exactly if what is known of one holds for the other.

        They are equal, share memory among their own tensors alike (``sharing``), and their tensors
        lie on the same devices. In plain tuples, as ``form``.
        """
        places: dict[object, int] = {}
        args = _likeness(self.args, places)
        outputs = None if self.outputs is None else _likeness(self.outputs, places)
        return (self.name, args, outputs, self.overload, self.missed)


def _collect(args: tuple[Arg, ...], found: list[TensorSpec]) -> None:
    for arg in args:
        if isinstance(arg, TensorSpec):
            found.append(arg)
        elif isinstance(arg, tuple):
            _collect(arg, found)


def _form(args: tuple[Arg, ...]) -> tuple[object, ...]:
    return tuple(
        [
            (arg.shape, arg.dtype, arg.strides)
            if isinstance(arg, TensorSpec)
            else (_form(arg) if isinstance(arg, tuple) else arg)
            for arg in args
        ]
    )


def _likeness(args: tuple[Arg, ...], places: dict[object, int]) -> tuple[object, ...]:
    """Arguments without their storages, but with which of them share one."""
    found: list[object] = []
    for arg in args:
        if isinstance(arg, TensorSpec):
            new = len(places)
            # What is not known to be shared is not.
            where: object = new if arg.storage is None else (arg.storage, arg.offset)
            place = places.setdefault(where, new)
            found.append((arg.shape, arg.dtype, arg.strides, arg.device, place))
        elif isinstance(arg, tuple):
            found.append(_likeness(arg, places))
        else:
            found.append(arg)
    return tuple(found)
