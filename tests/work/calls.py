"""Short ways to write operator calls by hand."""

from __future__ import annotations

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import Work, work_of


def tensor(
    *shape: int,
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
    storage: int | None = None,
    offset: int | None = None,
) -> TensorSpec:
    return TensorSpec(shape, dtype, strides, storage, "cpu", offset)


def work(name: str, *args: Arg, outputs: tuple[TensorSpec, ...] | None = None,
         overload: str = "") -> Work:  # fmt: skip
    found = work_of(OpCall(f"aten::{name}", args, outputs, overload))
    assert found is not None, f"no work for {name}"
    return found


def moved(found: Work) -> tuple[int | None, int | None, int | None]:
    """Bytes read, bytes written, unique bytes."""
    return found.bytes_read, found.bytes_written, found.unique_bytes
