"""What every benchmark shares: its command line, the head of its result, how the file is written.

A benchmark is ``benchmarks/TOPIC/run.py``. ``parser`` gives it ``--out`` and ``--quick``,
``Record`` writes its result with a head that says on what it was measured, ``skip`` ends it where
something that it needs is not here. ``benchmarks/all.py`` runs them all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gobrrr.timeline.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGE = ROOT / "src" / "gobrrr"
# Recorded traces and measured times that are too large for the repository, or not ours to publish.
SHARED = ROOT.parent / "shared"
# The exit status of a benchmark that needs what is not here (that of a skipped test in Automake).
SKIPPED = 77
Item = TypeVar("Item")


def parser(description: str | None, shared: str = "") -> argparse.ArgumentParser:
    """A parser with ``--out`` and ``--quick``, and ``--shared`` where data from elsewhere are read.

    Args:
        description: the benchmark's docstring; its first line is shown.
        shared: the folder of data within ``SHARED``, such as ``traces``; none are read by default.
    """
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--out", type=Path, help="write the result to this file")
    made.add_argument(
        "--quick",
        action="store_true",
        help="one tiny case, in seconds: shows that it still runs; its figures mean nothing",
    )
    if shared:
        made.add_argument(
            "--shared",
            type=Path,
            default=SHARED / shared,
            metavar="FOLDER",
            help=f"where the data are (default: ../shared/{shared})",
        )
    return made


def in_parallel(
    examine: Callable[[Item], dict[str, Any]], items: Sequence[Item]
) -> Iterator[dict[str, Any]]:
    """What each item gives, as they come; one at a time on each processor, pinned to it.

    What runs in a process of one thread then has a processor of its own.
    """
    free = sorted(os.sched_getaffinity(0))
    taken = iter(free)

    def pin() -> None:
        # Of this thread, and of the processes that it starts.
        os.sched_setaffinity(0, {next(taken)})

    with ThreadPoolExecutor(len(free), initializer=pin) as pool:
        for done in as_completed([pool.submit(examine, item) for item in items]):
            yield done.result()


def skip(why: str) -> NoReturn:
    """Says in one sentence what is not here, and ends with ``SKIPPED``."""
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def needed(path: Path, what: str) -> Path:
    """The path, if it exists; otherwise the benchmark is skipped."""
    if not path.exists():
        skip(f"{what} are not in {os.path.relpath(path)}")
    return path


class Record:
    """A result being made: its head is taken when the measurement begins.

    Args:
        topic: the benchmark's name.
        given: the parsed options, for ``--out`` and ``--quick``.
        packages: distributions whose versions matter besides Python, gobrrr and torch.
        device: what was measured, where it is not the processor of this machine.
    """

    def __init__(
        self, topic: str, given: argparse.Namespace, *packages: str, device: str | None = None
    ) -> None:
        self.out: Path | None = given.out
        if given.quick and self.out is not None and RESULTS in self.out.resolve().parents:
            sys.exit("figures of --quick mean nothing: --out has to lie outside benchmarks/results")
        self.head: dict[str, Any] = {
            "topic": topic,
            "date": datetime.now(timezone.utc).date().isoformat(),
            **commit(),
            "device": device or _processor(),
            "threads": _threads(),
            "versions": versions("gobrrr", "torch", *packages),
            "command": shlex.join([_relative(sys.argv[0]), *map(_shown, sys.argv[1:])]),
            "sources": sources(),
            "quick": bool(given.quick),
            "load_before": _load(),
        }

    def whole(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Head and body; what the body says of the head's keys counts."""
        return {**self.head, "load_after": _load(), **body}

    def write(self, body: Mapping[str, Any]) -> None:
        """Writes the file whole, if ``--out`` was given; again with more rows is fine."""
        if self.out is None:
            return
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out, (json.dumps(self.whole(body), indent=1) + "\n").encode())


def commit() -> dict[str, Any]:
    """``commit`` (short) and ``dirty``: whether tracked files differ from it; ``None``: unknown."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return {"commit": head, "dirty": bool(_git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def sources() -> dict[str, str]:
    """Room of gobrrr -> a hash of its files: whether the code behind a result is still that code.

    A commit says it too, but not after a history has been squashed or where it is not at hand.
    """
    found = {}
    for room in sorted(PACKAGE.iterdir()):
        if not room.is_dir() or room.name.startswith("__"):
            continue
        total = hashlib.sha256()
        for file in sorted(room.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(f"{file.relative_to(room).as_posix()}\0".encode())
                total.update(hashlib.sha256(file.read_bytes()).digest())
        found[room.name] = total.hexdigest()[:16]
    return found


def versions(*packages: str) -> dict[str, str | None]:
    """Versions of Python and of distributions; ``None`` where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _processor() -> str:
    from gobrrr.devices import identify

    return identify("cpu").name


def _threads() -> int | None:
    """PyTorch's threads; ``None`` if the benchmark does not use it."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _load() -> float | None:
    """Programs that wanted a processor, mean over the last minute; ``None`` on Windows."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _shown(argument: str) -> str:
    """An argument as anyone could type it: no folder of this machine."""
    option, equals, path = argument.rpartition("=")
    if not Path(path).is_absolute():
        return argument
    return f"{option}{equals}{_relative(path)}"


def _relative(path: str) -> str:
    found = Path(path).resolve()
    return str(found.relative_to(ROOT)) if ROOT in found.parents else found.name


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
