"""A large trace from a small one: its events repeated, with times, ids and step numbers shifted.

python benchmarks/trace/make_trace.py SMALL.json.gz BIG.json[.gz] --megabytes 320
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec

STEP = re.compile(r"^ProfilerStep#(\d+)$")
ARGUMENT_IDS = ("correlation", "External id", "external id", "Sequence number", "Ev Idx")


def shifted(event: dict[str, Any], time_us: int, ids: int, steps: int) -> dict[str, Any]:
    """One event of a later repetition."""
    event = dict(event)
    if isinstance(event.get("ts"), (int, float)):
        event["ts"] = round(event["ts"] + time_us, 3)
    if isinstance(event.get("id"), int):
        event["id"] += ids
    args = event.get("args")
    if isinstance(args, dict):
        event["args"] = {
            key: value + ids if key in ARGUMENT_IDS and isinstance(value, int) else value
            for key, value in args.items()
        }
    mark = STEP.match(event.get("name", ""))
    if mark:
        event["name"] = f"ProfilerStep#{int(mark[1]) + steps}"
    return event


def repeat(small: Path, big: Path, megabytes: float) -> int:
    """Writes the large trace; returns its size in bytes before compression."""
    text = small.read_bytes()
    trace = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    events = trace.pop("traceEvents")
    spans = [e for e in events if e.get("ph") == "X" and "ts" in e]
    length_us = int(max(e["ts"] + e["dur"] for e in spans) - min(e["ts"] for e in spans)) + 1000
    ids = 1 + max(
        value
        for e in events
        for value in (
            e.get("id", 0) if isinstance(e.get("id"), int) else 0,
            *((e.get("args") or {}).get(key, 0) for key in ARGUMENT_IDS),
        )
        if isinstance(value, int)
    )
    steps = len({e["name"] for e in spans if STEP.match(e["name"])})
    written = 0
    with gzip.open(big, "wb", 5) if big.suffix == ".gz" else big.open("wb") as file:
        head = json.dumps(trace)[:-1] + ', "traceEvents": [\n'
        file.write(head.encode())
        written += len(head)
        repetition = 0
        while written < megabytes * 1e6:
            for event in events:
                line = msgspec.json.encode(
                    shifted(event, repetition * length_us, repetition * ids, repetition * steps)
                )
                if written > len(head):
                    line = b",\n" + line
                file.write(line)
                written += len(line)
            repetition += 1
        file.write(b"\n]}")
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("small", type=Path)
    parser.add_argument("big", type=Path)
    parser.add_argument("--megabytes", type=float, default=320.0)
    given = parser.parse_args()
    print(f"{repeat(given.small, given.big, given.megabytes) / 1e6:.1f} MB of JSON")
