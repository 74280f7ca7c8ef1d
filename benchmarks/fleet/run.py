"""A fleet of N ranks: is the slow host named, how fast are traces read and ranks compared.

    PYTHONPATH=. python benchmarks/fleet/run.py --out FILE
    PYTHONPATH=. python benchmarks/fleet/run.py --ranks 10 100 --workers 1

The traces are those of a recorded job of eight ranks, repeated with other clocks and one slow host
(make_ranks.py). For each N: wall time, JSON per second of a processor (the work of the workers:
decompression, reading, attribution and tables), the merge, and the memory of a worker.
Where Ray is installed, up to ``--ray-up-to`` ranks also by tasks of a Ray cluster on this machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.command import Record, needed, parser, skip
from benchmarks.fleet.make_ranks import make_ranks

RECORDED = "v100_dlrm_8ranks"
SLOW_HOST, DELAY_MS = 1, 10.0
CAUSE = "overhead.data_loading"

BUILD = """
import hashlib, json, sys, time
from pathlib import Path
import msgspec
from gobrrr.fleet.build import FleetOptions, build_fleet
traces, out, engine, workers = sys.argv[1:]
options = FleetOptions(engine=engine, workers=int(workers) or None)
begin = time.perf_counter()
verdict = build_fleet([traces], Path(out), options)
wall = time.perf_counter() - begin
begin = time.perf_counter()
again = build_fleet([traces], Path(out), options)
print(json.dumps({
    "wall_s": wall, "read_s": verdict.read_s, "cpu_s": verdict.cpu_s, "merge_s": verdict.merge_s,
    "again_s": time.perf_counter() - begin, "read_again": again.read,
    "worker_bytes": verdict.worker_bytes, "errors": verdict.errors,
    "named": msgspec.to_builtins(verdict.runs[0].named),
    "found": hashlib.sha256(msgspec.json.encode(verdict.runs)).hexdigest()[:16],
    "table_bytes": sum(p.stat().st_size for p in Path(out).rglob("*.parquet")),
}))
"""


def one(
    traces: Path, out: Path, size: int, ranks: int, engine: str, workers: int
) -> dict[str, Any]:
    """One fleet, mapped and merged in a fresh process."""
    command = [sys.executable, "-c", BUILD, str(traces), str(out), engine, str(workers)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    named = found["named"] or {}
    return {
        "ranks": ranks,
        "engine": engine,
        "json_mb": round(size / 1e6, 1),
        "right_host": named.get("host") == f"node{SLOW_HOST:03}",
        "right_cause": named.get("part") == CAUSE,
        "excess_error": None
        if not named.get("excess_s")
        else named["excess_s"] / (DELAY_MS * 1e-3) - 1,
        "mb_per_s_and_core": size / 1e6 / found["cpu_s"],
        **found,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the rows say together.

    ``cpu_growth`` and ``wall_growth`` are time per rank with the most ranks over that with the
    fewest: 1 is linear. ``ray`` is ``None`` where it was not run.
    """
    local = [row for row in rows if row["engine"] == "local"]
    few, many = local[0], local[-1]
    by_ranks = {row["ranks"]: row for row in local}
    ray = [row for row in rows if row["engine"] == "ray"]
    return {
        "ranks": many["ranks"],
        "mb_per_s_and_core": many["mb_per_s_and_core"],
        **{
            f"{what}_growth": many[f"{what}_s"] / many["ranks"] / few[f"{what}_s"] * few["ranks"]
            for what in ("cpu", "wall")
        },
        "merge_s": many["merge_s"],
        "worker_mb": None if many["worker_bytes"] is None else many["worker_bytes"] / 1e6,
        "slow_host_named": all(row["right_host"] and row["right_cause"] for row in local),
        "ray": {
            "ranks": ray[-1]["ranks"],
            "mb_per_s_and_core": ray[-1]["mb_per_s_and_core"],
            "same_result": all(row["found"] == by_ranks[row["ranks"]]["found"] for row in ray),
        }
        if ray
        else None,
    }


def main() -> None:
    made = parser(__doc__, "traces")
    made.add_argument("--ranks", type=int, nargs="*", default=[10, 100, 1000])
    made.add_argument("--megabytes", type=float, default=10.0)
    made.add_argument("--workers", type=int, default=0, help="default: one per core")
    made.add_argument("--ray-up-to", type=int, default=100, metavar="RANKS", help="0: no Ray")
    made.add_argument("--folder", type=Path, help="for the traces (default: a temporary one)")
    given = made.parse_args()
    recorded = needed(given.shared / RECORDED, "recorded traces of a job")
    if find_spec("pyarrow") is None:
        skip("pyarrow is not installed")
    has_ray = find_spec("ray") is not None
    if given.quick:
        given.ranks, given.megabytes = [10], 0.2
    record = Record("fleet", given, "pyarrow", "duckdb", "ray", "isal", "numpy", "msgspec")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gobrrr-fleet-", dir=given.folder) as temporary:
        for ranks in given.ranks:
            traces = Path(temporary) / "traces"
            begin = time.perf_counter()
            size = make_ranks(recorded, traces, ranks, given.megabytes, SLOW_HOST, DELAY_MS)
            print(f"{ranks} ranks made in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
            on_ray = has_ray and ranks <= given.ray_up_to
            for engine in ("local", *(["ray"] if on_ray else [])):
                out = Path(temporary) / f"fleet-{engine}"
                rows.append(one(traces, out, size, ranks, engine, given.workers))
                print(json.dumps(rows[-1], indent=1))
                shutil.rmtree(out)
                record.write({"delay_ms": DELAY_MS, "summary": summary(rows), "rows": rows})
            shutil.rmtree(traces)
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
