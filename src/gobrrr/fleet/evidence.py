"""The tables of a run -> what its ranks are compared by, without reading a trace again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gobrrr.attribution.collectives import Exposure
from gobrrr.attribution.leaves import LEAVES, Attribution, KernelShares
from gobrrr.fleet.schema import LEAF_COLUMNS
from gobrrr.ranks.ranks import RankEvidence
from gobrrr.timeline.data import Collective, Device, KernelKind, Kernels, Timeline, no_spans
from gobrrr.timeline.intervals import Pieces

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class StepTable:
    """The steps of all ranks, sorted by rank and step; leaves in ns (NaN: unknown)."""

    rank: Int64
    name: tuple[str, ...]
    start_ns: Int64
    end_ns: Int64
    leaves_ns: Float64

    @classmethod
    def of(cls, table: pa.Table) -> StepTable:
        """From the table ``steps``."""
        table = _sorted(table, "step")
        leaves = [_numbers(table, name, np.nan) for name in LEAF_COLUMNS]
        return cls(
            rank=_numbers(table, "rank"),
            name=tuple(table["name"].to_pylist()),
            start_ns=_numbers(table, "start_ns"),
            end_ns=_numbers(table, "end_ns"),
            leaves_ns=np.array(leaves).T.reshape(-1, len(LEAVES)) * 1e9,
        )


@dataclass(frozen=True)
class CallTable:
    """The collectives of all ranks, sorted by rank and call; -1 is unknown.

    ``kind`` indexes ``collectives``; the exposed stretches of row i are those from ``offset[i]`` to
    ``offset[i + 1]``.
    """

    rank: Int64
    kind: Int64
    collectives: tuple[Collective, ...]
    sequence: Int64
    bytes_moved: Int64
    in_step: NDArray[np.bool_]
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Float64
    offset: Int64
    exposed_from_ns: Int64
    exposed_to_ns: Int64

    @classmethod
    def of(cls, table: pa.Table) -> CallTable:
        """From the table ``collectives``."""
        table = _sorted(table, "call")
        kind, collectives = _kinds(table)
        begins, ends = table["exposed_from_ns"], table["exposed_to_ns"]
        pieces = np.cumsum(pc.list_value_length(begins).to_numpy())
        return cls(
            rank=_numbers(table, "rank"),
            kind=kind,
            collectives=collectives,
            sequence=_numbers(table, "sequence", -1),
            bytes_moved=_numbers(table, "bytes", -1),
            in_step=_numbers(table, "step", -1) >= 0,
            start_ns=_numbers(table, "start_ns"),
            end_ns=_numbers(table, "end_ns"),
            exposed_ns=_numbers(table, "exposed_s") * 1e9,
            offset=np.concatenate(([0], pieces)).astype(np.int64),
            exposed_from_ns=pc.list_flatten(begins).to_numpy(),
            exposed_to_ns=pc.list_flatten(ends).to_numpy(),
        )


def evidence_of_run(
    ranks: Sequence[int], world_size: int | None, steps: StepTable, calls: CallTable
) -> list[RankEvidence]:
    """What is known of each rank whose steps are those of a device; ``ranks`` are sorted."""
    found = []
    for rank in ranks:
        of_steps, of_calls = _rows_of(steps.rank, rank), _rows_of(calls.rank, rank)
        if of_steps.start < of_steps.stop and not np.isnan(steps.leaves_ns[of_steps]).any():
            found.append(_evidence(rank, world_size, steps, of_steps, calls, of_calls))
    return found


def _rows_of(column: Int64, rank: int) -> slice:
    low, high = np.searchsorted(column, [rank, rank + 1])
    return slice(int(low), int(high))


def _evidence(
    rank: int,
    world_size: int | None,
    steps: StepTable,
    of_steps: slice,
    calls: CallTable,
    of_calls: slice,
) -> RankEvidence:
    start, end = calls.start_ns[of_calls], calls.end_ns[of_calls]
    count = len(start)
    none = np.full(count, -1, np.int64)
    windows = np.stack([steps.start_ns[of_steps], steps.end_ns[of_steps]], axis=1)
    timeline = Timeline(
        names=("",),
        calls=(),
        host=no_spans(),
        kernels=Kernels(
            start_ns=start,
            end_ns=end,
            stream=np.zeros(count, np.int32),
            kind=np.full(count, KernelKind.COLLECTIVE, np.uint8),
            name=np.zeros(count, np.int32),
            op=none,
            launch=none,
            bytes_moved=calls.bytes_moved[of_calls],
            collective=calls.kind[of_calls],
            twin=none,
            call_number=calls.sequence[of_calls],
        ),
        steps=windows,
        step_names=steps.name[of_steps],
        device=Device("", ""),
        rank=rank,
        world_size=world_size,
        collectives=calls.collectives,
    )
    offset = calls.offset[of_calls.start : of_calls.stop + 1]
    pieces = slice(int(offset[0]), int(offset[-1]))
    duration = np.where(calls.in_step[of_calls], end - start, 0).astype(np.float64)
    leaves = steps.leaves_ns[of_steps]
    mean = leaves.mean(axis=0)
    return RankEvidence(
        timeline=timeline,
        attribution=Attribution(
            step_ns=float(mean.sum()),
            leaves_ns=dict(zip(LEAVES, mean.tolist())),
            kernels=_no_shares(),
            windows=tuple(dict(zip(LEAVES, row)) for row in leaves.tolist()),
        ),
        exposure=Exposure(calls.exposed_ns[of_calls] / len(windows), duration / len(windows)),
        owned=Pieces(
            np.repeat(np.arange(count), np.diff(offset)),
            calls.exposed_from_ns[pieces],
            calls.exposed_to_ns[pieces],
        ),
    )


def _no_shares() -> KernelShares:
    whole, none = np.empty(0, np.int64), np.empty(0)
    return KernelShares(whole, none, none, none, none, none, none, none, np.empty(0, np.uint8))


def _kinds(table: pa.Table) -> tuple[Int64, tuple[Collective, ...]]:
    """Distinct (name, group, size of the group), and which one each row is."""
    columns = [
        _one_array(pc.fill_null(table[name], empty)).dictionary_encode()
        for name, empty in (("name", ""), ("group", ""), ("group_size", 0))
    ]
    codes = [np.asarray(column.indices, np.int64) for column in columns]
    sizes = [max(1, len(column.dictionary)) for column in columns]
    mixed = (codes[0] * sizes[1] + codes[1]) * sizes[2] + codes[2]
    first, kind = np.unique(mixed, return_index=True, return_inverse=True)[1:]
    texts = [column.dictionary.to_pylist() for column in columns]
    found = []
    for row in first.tolist():
        name, group, size = (text[code[row]] for text, code in zip(texts, codes))
        found.append(Collective(name, group=group or None, group_size=size or None))
    return kind.astype(np.int64), tuple(found)


def _sorted(table: pa.Table, then: str) -> pa.Table:
    table = table.combine_chunks()
    order = np.lexsort((_numbers(table, then), _numbers(table, "rank")))
    return table.take(pa.array(order))


def _numbers(table: pa.Table, name: str, unknown: Any = None) -> Any:
    column = table[name]
    if unknown is not None and column.null_count:
        column = pc.fill_null(column, pa.scalar(unknown, column.type))
    return column.to_numpy()


def _one_array(column: Any) -> Any:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], whole.type)
    return whole
