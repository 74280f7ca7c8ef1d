"""Traces of many ranks from those of a few: repeated, with other clocks, and one host slow.

    python benchmarks/fleet/make_ranks.py OUT --ranks 1000 --megabytes 10

Rank r of the job has the events of rank r mod 8 of the recorded one, repeated as steps until there
are enough of them; each host of eight ranks has a clock of its own. On the slow host loading takes
longer at the beginning of every step: its ranks come later to the step's first collective, in which
all others wait for them, and everything after it is later on all ranks. The text of a repetition is
the same for all ranks of its kind, so it is compressed once: gzip files may have several parts.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

ARGUMENT_IDS = ("correlation", "External id", "external id", "Sequence number", "Ev Idx")
LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
# Of what a step repeats, in microseconds: room between two of them, and how far clocks are apart.
BETWEEN_US, CLOCK_US = 500.0, 700_000.0
PER_HOST = 8


@dataclass(frozen=True)
class Base:
    """One recorded rank: its events from time 0, and its part in the first collective (in us).

    ``loop`` is the process and thread of its loop.
    """

    head: dict[str, Any]
    events: list[dict[str, Any]]
    start_us: float
    duration_us: float
    length_us: float
    loop: tuple[Any, Any]

    @property
    def end_us(self) -> float:
        """Where the first collective ends."""
        return self.start_us + self.duration_us


def read_bases(folder: Path) -> list[Base]:
    """The recorded ranks, on one clock."""
    found = []
    for path in sorted(folder.glob("rank*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        spans = [e for e in trace.pop("traceEvents") if e.get("ph") in ("X", "s", "f", "t")]
        # Marks of steps are made anew.
        kept = [e for e in spans if not e.get("name", "").startswith("ProfilerStep#")]
        found.append((trace, [e for e in kept if e.get("cat") != "Trace"]))
    zero = min(event["ts"] for _, events in found for event in events)
    bases = []
    for head, events in found:
        events = [{**event, "ts": event["ts"] - zero} for event in events]
        calls = [e for e in events if e.get("cat") == "kernel" and e["name"].startswith("nccl")]
        first = min(calls, key=lambda event: event["ts"])
        length = max(event["ts"] + event.get("dur", 0) for event in events)
        ops = Counter((e["pid"], e["tid"]) for e in events if e.get("cat") == "cpu_op")
        loop = ops.most_common(1)[0][0]
        bases.append(Base(head, events, first["ts"], first["dur"], length, loop))
    return bases


def repetition(base: Base, slow: bool, delay_us: float, all_us: float) -> list[dict[str, Any]]:
    """The events of one step, from 0; ``all_us``: how much later the first collective ends."""
    early = delay_us if slow else 0.0

    def later(at_us: float) -> float:
        return at_us + (all_us if at_us >= base.end_us else early)

    events = []
    for event in base.events:
        start = later(event["ts"])
        moved = {**event, "ts": round(start, 3)}
        if "dur" in event:
            moved["dur"] = round(max(0.0, later(event["ts"] + event["dur"]) - start), 3)
        events.append(moved)
    if slow:
        events.append(_span(base, LOADING, delay_us))
    return events


def _span(base: Base, name: str, duration_us: float) -> dict[str, Any]:
    pid, tid = base.loop
    return {
        "ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": tid, "ts": 0.0,
        "dur": duration_us, "args": {},
    }  # fmt: skip


def text_of(base: Base, slow: bool, delay_us: float, all_us: float, steps: int) -> bytes:
    """The events of so many steps, as they stand in a list."""
    events = repetition(base, slow, delay_us, all_us)
    period = base.length_us + all_us + BETWEEN_US
    ids = 1 + max(
        value
        for event in events
        for value in (event.get("id"), *(event.get("args", {}).get(k) for k in ARGUMENT_IDS))
        if isinstance(value, int)
    )
    lines: list[bytes] = []
    for step in range(steps):
        mark = _span(base, f"ProfilerStep#{step}", period - 1.0)
        for event in (mark, *events):
            moved = {**event, "ts": round(event["ts"] + step * period, 3)}
            if isinstance(event.get("id"), int):
                moved["id"] = event["id"] + step * ids
            args = event.get("args")
            if args:
                moved["args"] = {
                    key: value + step * ids
                    if key in ARGUMENT_IDS and isinstance(value, int)
                    else value
                    for key, value in args.items()
                }
            lines.append(msgspec.json.encode(moved))
    return b",\n".join(lines)


def make_ranks(
    recorded: Path, out: Path, ranks: int, megabytes: float, slow_host: int, delay_ms: float
) -> int:
    """Writes the traces; returns how many bytes of JSON they are.

    Args:
        recorded: the folder of the recorded ranks.
        out: gets a folder for each host.
        ranks: how many to make.
        megabytes: of JSON, of each.
        slow_host: which host is slow, by its number.
        delay_ms: how much longer loading takes there, in each step.
    """
    bases = read_bases(recorded)
    delay_us = delay_ms * 1e3
    shortest = min(base.duration_us for base in bases)
    members = {r % PER_HOST for r in range(ranks) if r // PER_HOST == slow_host}
    # The last of the slow ranks to come is the last of all; it then waits for nobody.
    all_us = max((delay_us - bases[m].duration_us + shortest for m in members), default=0.0)
    all_us = max(0.0, all_us)
    longest = max(base.length_us for base in bases)
    # As many for each, so that ranks record the same steps.
    mean = sum(len(msgspec.json.encode(base.events)) for base in bases) / len(bases)
    steps = max(1, round(megabytes * 1e6 / mean))
    parts: dict[tuple[int, bool], tuple[bytes, int]] = {}
    total = 0
    for rank in range(ranks):
        host, member = divmod(rank, PER_HOST)
        base, slow = bases[member], host == slow_host
        if (member, slow) not in parts:
            text = text_of(replace(base, length_us=longest), slow, delay_us, all_us, steps)
            parts[member, slow] = gzip.compress(text, 1), len(text)
        packed, size = parts[member, slow]
        head = {
            **base.head,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000 + round(host * CLOCK_US * 1e3),
        }
        begin = json.dumps(head)[:-1].encode() + b', "traceEvents": [\n'
        folder = out / f"node{host:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{rank}.json.gz").write_bytes(
            gzip.compress(begin) + packed + gzip.compress(b"\n]}")
        )
        total += len(begin) + size + 3
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--recorded", type=Path, default=Path("../shared/traces/v100_dlrm_8ranks"))
    parser.add_argument("--ranks", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--slow-host", type=int, default=1)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    given = parser.parse_args()
    made = make_ranks(
        given.recorded, given.out, given.ranks, given.megabytes, given.slow_host, given.delay_ms
    )
    print(f"{made / 1e6:.1f} MB of JSON")
