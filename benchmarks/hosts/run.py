"""A job over two hosts: is its slow link told, and its slow rank, with clocks that differ?

Two network namespaces of this machine stand for two hosts: each has a name, a temporary folder,
and a monotonic clock of its own (the second one's is ahead by ``CLOCK_AHEAD_S``); a virtual cable
joins them, limited with ``tc`` (token bucket) in both directions where a case says so.
``torchrun`` starts ``benchmarks/ranks/program.py`` on both (1.6 MB of gradients a step), as a user
would. ``cases.json`` holds the cases. Keys:

- *slow link*: no rank is named; transfer (``memory.network``) is the largest leaf of the job's
  step; the bus bandwidth of the largest collective is within 10 % of what the cable carries of
  data (``PAYLOAD`` of its rate), because one flow goes through it in each direction.
- *fault*: the rank and the part of the step that the delay was put into; the time lost within
  10 % of the program's own clock, as in ``benchmarks/ranks``.
- *late*: that rank, within 10 % of its delay, and none slow in its steps (judged only as far as
  the report says it: clocks of two hosts may not tell, and then nothing is to be said;
  ``late_told``).
- *nothing*: no rank is named.
- in all: two hosts, and a residual of the clocks that is stated.

    PYTHONPATH=. python benchmarks/hosts/run.py --out FILE

As root, with ``ip`` and ``tc``; 18 cases, 6 minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser, skip
from benchmarks.ranks.run import CAUSES, told

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent / "ranks" / "program.py"
LIMIT_S = 240.0
WITHIN = 0.10
# Data of a full Ethernet frame over the bytes that the token bucket counts: a segment of TCP with
# time stamps over segment, headers of TCP and IP, and the frame's own header.
PAYLOAD = 1448 / 1514
CLOCK_AHEAD_S = 5000
ADDRESSES = ("10.213.0.1", "10.213.0.2")


@dataclass(frozen=True)
class Host:
    """One namespace: its name, its end of the cable."""

    name: str
    cable: str


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_hosts(mbit: int | None) -> Iterator[tuple[Host, Host]]:
    """Two namespaces with a cable between them; gone afterwards, with all processes' sockets."""
    hosts = tuple(
        Host(f"gobrrr{os.getpid()}{end}", f"gb{os.getpid() % 10**6}{end}") for end in "ab"
    )
    try:
        for host in hosts:
            _do("ip", "netns", "add", host.name)
        first, second = hosts
        _do("ip", "link", "add", first.cable, "netns", first.name, "type", "veth",
            "peer", "name", second.cable, "netns", second.name)  # fmt: skip
        for host, address in zip(hosts, ADDRESSES, strict=True):
            inside = ("ip", "netns", "exec", host.name)
            _do(*inside, "ip", "addr", "add", f"{address}/24", "dev", host.cable)
            _do(*inside, "ip", "link", "set", "lo", "up")
            _do(*inside, "ip", "link", "set", host.cable, "up")
            if mbit is not None:
                _do(*inside, "tc", "qdisc", "add", "dev", host.cable, "root", "tbf",
                    "rate", f"{mbit}mbit", "burst", "64kb", "latency", "400ms")  # fmt: skip
        yield first, second
    finally:
        for host in hosts:
            subprocess.run(("ip", "netns", "del", host.name), capture_output=True, check=False)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """One job; what its diagnosis says beside what is so."""
    with tempfile.TemporaryDirectory() as name, two_hosts(case["mbit"]) as hosts:
        folder = Path(name)
        children = [start(case, hosts[i], i, folder) for i in range(2)]
        try:
            for child in children:
                child.wait(LIMIT_S)
        finally:
            for host in hosts:
                end_all_in(host)
            for child in children:
                child.wait()
        outputs = [(folder / host.name / "said").read_text() for host in hosts]
        found = folder / "d.json"
        outcome: dict[str, Any] = {"case": case, "codes": [child.returncode for child in children]}
        if not found.exists():
            return outcome | {"error": "\n".join(outputs)[-2000:], "right": False}
        truth = told(folder / f"rank{case['rank'] or 0}.json")
        return outcome | judged(case, gobrrr.load(found), truth["spent_s"] if truth else None)


def end_all_in(host: Host) -> None:
    """What still runs in a namespace: a launcher's workers have sessions of their own."""
    listed = subprocess.run(
        ("ip", "netns", "pids", host.name), capture_output=True, text=True, check=False
    )
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def start(case: dict[str, Any], host: Host, number: int, folder: Path) -> subprocess.Popen[str]:
    """The launcher on one host."""
    ranks = case["ranks_per_host"]
    # Nobody reads what is written where no delay is, and writing is one.
    truth = ("--truth", str(folder)) if case["fault"] not in ("none", "late") else ()
    job = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number),
        "--nproc-per-node", str(ranks), "--master-addr", ADDRESSES[0], "--master-port", "29611",
        "-m", "gobrrr", "run", "--quiet", "--stop", "--json", str(folder / "d.json"), str(PROGRAM),
        "--fault", case["fault"], "--rank", str(case["rank"] or 0),
        "--delay-ms", str(case["delay_ms"]), *truth,
    ]  # fmt: skip
    own = folder / host.name
    own.mkdir()
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": host.cable, "TMPDIR": str(own),
        "PYTHONPATH": str(Path(gobrrr.__file__).resolve().parents[1]),
    }  # fmt: skip
    with (own / "said").open("w") as said:
        return subprocess.Popen(
            [*on_host(host, number), *job],
            stdout=said, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip


def on_host(host: Host, number: int) -> list[str]:
    """What stands before a command that is to run on a host: its network, name and clock."""
    ahead = (
        ("--time", "--monotonic", str(CLOCK_AHEAD_S), "--fork", "--kill-child") if number else ()
    )
    return [
        "ip", "netns", "exec", host.name, "unshare", "--uts", *ahead,
        "sh", "-c", 'hostname "$0" && exec "$@"', f"host{number}",
    ]  # fmt: skip


def judged(case: dict[str, Any], diagnosis: Diagnosis, spent_s: float | None) -> dict[str, Any]:
    """What the report says of the job, and whether it is so."""
    job = diagnosis.job
    if job is None:
        return {
            "error": "the diagnosis is not of a job: " + " ".join(diagnosis.notices),
            "right": False,
        }
    moved = [c for c in diagnosis.collectives if c.bytes and c.bus_bytes_per_s]
    largest = max(moved, key=lambda c: (c.bytes or 0) * c.calls, default=None)
    found = {
        "hosts": job.hosts, "slowest": job.slowest, "cause": job.cause, "phase": job.phase,
        "lost_s": job.lost_s, "late_start": job.late_start, "late_start_s": job.late_start_s,
        "clock_residual_s": job.clock_residual_s, "missing": job.missing,
        "step_s": diagnosis.step_s, "leaves": diagnosis.leaves,
        "largest_leaf": max(diagnosis.leaves, key=lambda leaf: diagnosis.leaves[leaf]),
        "bus_bytes_per_s": largest.bus_bytes_per_s if largest else None,
        "notices": diagnosis.notices, "verdict": diagnosis.verdict,
    }  # fmt: skip
    fault = case["fault"]
    checks = {"hosts": job.hosts == 2, "clocks": job.clock_residual_s is not None}
    made: dict[str, Any] = {"found": found, "checks": checks}
    if case["mbit"] is not None and fault == "none":
        carried = case["mbit"] * 1e6 / 8 * PAYLOAD
        reached = found["bus_bytes_per_s"]
        made["bandwidth_error"] = reached / carried - 1 if reached else None
        checks["bandwidth"] = bool(reached) and abs(reached / carried - 1) <= WITHIN
        checks["network"] = found["largest_leaf"] == "memory.network"
    if fault in CAUSES:
        cause, phase = CAUSES[fault]
        checks["rank"] = job.slowest == case["rank"]
        checks["cause"] = job.cause == cause and phase in (None, job.phase)
        known = spent_s and job.lost_s is not None
        made |= {"truth_s": spent_s, "lost_error": job.lost_s / spent_s - 1 if known else None}
    else:
        checks["rank"] = job.slowest is None
    if fault == "late":
        made["late_told"] = job.late_start is not None
        known_s = case["delay_ms"] * 1e-3
        checks["late"] = job.late_start is None or (
            job.late_start == case["rank"] and abs(job.late_start_s / known_s - 1) <= WITHIN
        )
    else:
        checks["late"] = job.late_start is None
    return made | {"right": all(checks.values())}


def summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """How many are right, by check too; the errors of bandwidth and of time lost."""
    names = sorted({name for o in outcomes for name in o.get("checks", ())})
    checked = {name: [o["checks"][name] for o in outcomes if name in o.get("checks", ())]
               for name in names}  # fmt: skip
    lost = [abs(o["lost_error"]) for o in outcomes if o.get("lost_error") is not None]
    faults = [o for o in outcomes if o["case"]["fault"] in CAUSES]
    return {
        "cases": len(outcomes),
        "right": sum(o["right"] for o in outcomes),
        "by_check": {name: f"{sum(of)} of {len(of)}" for name, of in checked.items()},
        "bandwidth_errors": [o["bandwidth_error"] for o in outcomes if "bandwidth_error" in o],
        "time_lost_within_10_percent": sum(error <= WITHIN for error in lost),
        "time_lost_of": len(faults),
        "late_starts_told": [o["late_told"] for o in outcomes if "late_told" in o],
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="cases whose names hold this")
    given = options.parse_args()
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "unshare", "hostname"))):
        skip("two hosts need network namespaces: root, ip, tc, unshare and hostname")
    try:
        with two_hosts(100) as hosts:
            for number, host in enumerate(hosts):
                _do(*on_host(host, number), "true")
    except subprocess.CalledProcessError as error:
        skip(f"two hosts need namespaces: {error.stderr.strip()}")
    cases = json.loads((HERE / "cases.json").read_text())
    cases = [case for case in cases if given.only in case["name"]]
    if given.quick:
        # Over the link that is limited the least.
        cases = sorted(cases, key=lambda case: case["mbit"] or 0)[-1:]
    record = Record("hosts", given)
    outcomes: list[dict[str, Any]] = []
    for case in cases:
        try:
            outcomes.append(run_case(case))
        except subprocess.TimeoutExpired:
            outcomes.append({"case": case, "error": f"not done in {LIMIT_S:g} s", "right": False})
        last = outcomes[-1]
        told_of = last.get("checks", last.get("error"))
        print(case["name"], "right" if last["right"] else "WRONG", told_of, flush=True)
        record.write({"summary": summary(outcomes), "outcomes": outcomes})
    print(json.dumps(summary(outcomes), indent=1))
    failed = [outcome for outcome in outcomes if "found" not in outcome]
    if failed:
        print(f"{failed[0]['case']['name']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
