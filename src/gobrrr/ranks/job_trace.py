"""The profiled steps of all ranks as one trace for ui.perfetto.dev, on one clock where it is known.

The format: Google's "Trace Event Format", JSON; times in microseconds from the first step.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gobrrr.attribution.collectives import same_calls
from gobrrr.ranks.job_clocks import clocks_of
from gobrrr.ranks.rank_record import RankRecord, names_of_steps, timeline_of
from gobrrr.ranks.rank_spans import STREAMS
from gobrrr.timeline.files import write_output
from gobrrr.timeline.names import printable_json

# Threads of a rank's process in the trace, after those of its own.
_STEPS, _COLLECTIVES = 1_000_000, 1_000_001
# A shorter wait gets no arrow: what comes together looks so.
_LEAST_WAIT_NS = 50_000


def trace_of_job(records: Sequence[RankRecord]) -> dict[str, Any]:
    """One process for each rank: its threads, its steps, its collectives; arrows for waiting.

    An arrow leads from a collective that waits to the same collective of the rank that came last.
    Ranks whose clock nothing ties to the first one's begin at 0 too, which their names say; no
    arrow joins them to it. Of ranks that did not all take the same steps there are no arrows.
    """
    clocks = clocks_of(records)
    first: dict[int, int] = {}
    for record, clock in zip(records, clocks):
        if record.steps:
            begin = record.steps[0][0] - clock.ahead_ns
            first[clock.of] = min(begin, first.get(clock.of, begin))
    zeros = [clock.ahead_ns + first.get(clock.of, 0) for clock in clocks]
    events: list[dict[str, Any]] = []
    for record, clock, zero in zip(records, clocks, zeros):
        title = f"rank {record.rank}"
        if clock.of != clocks[0].of:
            title += f" (its clock against that of rank {records[0].rank} is unknown)"
        events += _events(record, title, zero)
    if not any(record.alone for record in records):
        events += _arrows(records, zeros, [clock.of for clock in clocks])
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace_of_job(path: str | os.PathLike[str], records: Sequence[RankRecord]) -> None:
    """Writes ``trace_of_job``, compressed if the name ends in ``.gz``.

    Raises:
        InputError: the path cannot be written.
    """
    data = printable_json(msgspec.json.encode(trace_of_job(records)))
    write_output(path, gzip.compress(data, 6) if os.fspath(path).endswith(".gz") else data)


def _events(record: RankRecord, title: str, zero: int) -> Iterator[dict[str, Any]]:
    rank = record.rank
    named = {_STEPS: "steps", _COLLECTIVES: "collectives"}
    named |= {thread: _title(thread) for thread in sorted({span[3] for span in record.spans})}
    yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": title}}
    for thread, name in named.items():
        yield {"ph": "M", "pid": rank, "tid": thread, "name": "thread_name", "args": {"name": name}}
    for name, (start, end) in zip(names_of_steps(record), record.steps):
        yield _span(rank, _STEPS, name, start - zero, end - zero)
    for name, start, end, thread in record.spans:
        yield _span(rank, thread, name, start - zero, end - zero)
    for call in record.calls:
        name, size, dtype, ranks, group = record.collectives[call.which]
        details = {
            "bytes": size, "dtype": dtype, "ranks": ranks, "group": group, "phase": call.phase,
            "module": call.module,
        }  # fmt: skip
        # Collectives overlap: each is a span of its own, by its start.
        yield _span(
            rank, _COLLECTIVES, name or "collective", call.start_ns - zero, call.end_ns - zero
        ) | {"args": details}


def _title(thread: int) -> str:
    if thread >= STREAMS:
        return f"stream {thread - STREAMS}"
    return f"thread {thread}" if thread else "the loop's thread"


def _span(rank: int, thread: int, name: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    return {
        "ph": "X", "pid": rank, "tid": thread, "name": name, "ts": start_ns / 1e3,
        "dur": max(0, end_ns - start_ns) / 1e3,
    }  # fmt: skip


def _arrows(
    records: Sequence[RankRecord], zeros: Sequence[int], clocks: Sequence[int]
) -> Iterator[dict[str, Any]]:
    number = 0
    for found in same_calls([timeline_of(record) for record in records]):
        # Without a name other kinds of collectives may be meant.
        if not found.name or len({clocks[i] for i in found.members}) != 1:
            continue
        for rows in zip(*(rows.tolist() for rows in found.rows)):
            calls = [records[i].calls[row] for i, row in zip(found.members, rows)]
            came = [call.start_ns - zeros[i] for i, call in zip(found.members, calls)]
            last = max(range(len(came)), key=lambda place: came[place])
            for place, member in enumerate(found.members):
                if came[last] - came[place] < _LEAST_WAIT_NS:
                    continue
                number += 1
                for ph, at, rank in (("s", place, member), ("f", last, found.members[last])):
                    yield {
                        "ph": ph, "bp": "e", "cat": "waits for", "name": "waits for", "id": number,
                        "pid": records[rank].rank, "tid": _COLLECTIVES, "ts": came[at] / 1e3,
                    }  # fmt: skip
