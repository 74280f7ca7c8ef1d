"""What each collective in a trace moved, and between how many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.observe.group_names import group_title
from gobrrr.recordings.args import DTYPES, parse_call
from gobrrr.recordings.columns import TraceColumns
from gobrrr.timeline.data import Collective
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import nearest
from gobrrr.timeline.ops import ITEM_SIZE_BYTES

Int64 = NDArray[np.int64]

# Names of ``c10::ScalarType``, which collectives record.
_SCALAR_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip
RANGE_PREFIX = "nccl:"


def find_collectives(
    columns: TraceColumns, texts: tuple[str, ...], parent: Int64, launch: Int64
) -> tuple[tuple[Collective, ...], Int64, Int64]:
    """Distinct collectives and, for each device row, the index of its own and its call number.

    Both are -1 where not recorded. The call number counts the calls of a process group.

    A record comes from the kernel's own arguments, else from the operator around its launch (both
    since PyTorch 2.2), else from the ``nccl:`` range around it, whose shapes say the bytes.
    """
    own = columns.device.column("collective")
    host = columns.host
    recorded = host.column("collective")
    records = [_recorded(key) for key in columns.collectives]
    number = own.astype(np.int64)
    call = columns.device.column("number")
    if len(host):
        asked = nearest(parent, recorded >= 0)
        number = _around(number, launch, asked, recorded)
        call = _around(call, launch, asked, host.column("number"))
        is_range = np.array([text.startswith(RANGE_PREFIX) for text in texts], bool)
        ranges = nearest(parent, is_range[host.column("name")])
        # Ranges are numbered behind the records, by their name and raw shapes.
        keys = columns.calls()
        found = distinct(host.column("key")[distinct(ranges[ranges >= 0])])
        found = found[found >= 0]
        position = np.full(len(keys) + 1, -1, np.int64)
        position[found] = len(records) + np.arange(len(found))
        records += [_ranged(texts[keys[k][0]], keys[k]) for k in found.tolist()]
        number = _around(number, launch, ranges, position[host.column("key")])
    return tuple(records), number, call


def _around(number: Int64, launch: Int64, enclosing: Int64, value: NDArray[Any]) -> Int64:
    """Fills what is still unknown from the span that encloses the launch."""
    around = np.where(launch >= 0, enclosing[launch], -1)
    inherited = np.where(around >= 0, value[around], -1)
    return np.where(number >= 0, number, inherited)


def _recorded(key: tuple[Any, ...]) -> Collective:
    name, elements_in, elements_out, dtype, size, group, ranks, described = key
    known = _SCALAR_TYPES.get(str(dtype), DTYPES.get(str(dtype), ""))
    item = ITEM_SIZE_BYTES.get(known)
    return Collective(
        name=str(name),
        bytes_in=_times(elements_in, item),
        bytes_out=_times(elements_out, item),
        dtype=known,
        group_size=size if isinstance(size, int) and size > 0 else None,
        group=_group(group, ranks, described),
    )


def _group(name: Any, ranks: Any, described: Any) -> str | None:
    """A process group, apart from others of its name: groups of one dimension of a mesh share one.

    ``ranks``: as PyTorch writes them, ``[0, 1, 2, 3]``; of many only the first and last.
    """
    if name in (None, -1):
        return None
    listed = str(ranks or "").strip("[] ")
    try:
        numbers = [int(rank) for rank in listed.split(",")]
    except ValueError:
        return f"{name} (ranks {listed})" if listed else str(name)
    return group_title(str(name), numbers, str(described or ""))


def _times(count: Any, item: int | None) -> int | None:
    return count * item if isinstance(count, int) and count >= 0 and item is not None else None


def _ranged(name: str, key: tuple[Any, ...]) -> Collective:
    tensors = parse_call(name, *key[1:]).tensors
    sizes = [tensor.unique_bytes for tensor in tensors]
    known = bool(sizes) and None not in sizes
    return Collective(
        name=name,
        bytes_in=sum(size for size in sizes if size is not None) if known else None,
        dtype=tensors[0].dtype if tensors else "",
    )


def moved_bytes(recorded: Int64, collectives: tuple[Collective, ...], collective: Int64) -> Int64:
    """Sizes of copies as recorded; of collectives the larger of what goes in and comes out."""
    sizes = [max(_size(c.bytes_in), _size(c.bytes_out)) for c in collectives]
    table = np.array([*sizes, -1], np.int64)
    return np.where(recorded >= 0, recorded, table[collective])


def _size(value: int | None) -> int:
    return -1 if value is None else value
