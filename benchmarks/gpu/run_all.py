"""What a quarter of an hour with a GPU must answer, in parts by order of value.

    PYTHONPATH=src:. python -m benchmarks.gpu.run_all --out FILE [--parts state,...] [--seconds N]

A part is a module of ``benchmarks/gpu/parts`` with ``LIMIT_S`` and ``run``. Each runs in a process
of its own, which is ended with all that it has started when its time is over; meanwhile the card's
clocks, power and temperature are sampled. ``<part>.json`` lies in the folder called as FILE is,
without its suffix, and holds what the part had saved, whatever became of it; FILE holds them all.
``--quick`` runs every part on little work, which shows that the script works and says nothing of a
device.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.all import end
from benchmarks.command import ROOT, Record, parser, skip
from benchmarks.gpu.card import Card, Sampler
from benchmarks.gpu.setting import Setting

from gobrrr.timeline.files import write_atomically

PARTS = (
    "state", "residue", "sessions", "records", "cost", "spikes", "heat", "live", "scripts",
    "counters", "fixes", "held_out", "lab", "ranks", "trouble",
)  # fmt: skip
# Less than this share of a part's limit is not begun: it would end before it tells anything.
WORTH = 0.5
TAIL = 4000
FOLDER = Path(__file__).parent / "parts"


def limit_s(part: str) -> int:
    """The part's ``LIMIT_S``, read without importing what the part imports."""
    path = FOLDER / f"{part}.py"
    if not path.is_file():
        raise ValueError(f"there is no parts/{part}.py")
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == "LIMIT_S" for t in targets):
            return int(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    raise ValueError(f"{part}.py has no LIMIT_S")


def run_here(part: str, setting: Setting, path: Path) -> bool:
    """Runs the part in this process; ``path`` is written whole at each save and at the end."""
    outcome: dict[str, Any] = {"part": part, "ok": False, "error": "it did not end by itself"}
    began = time.monotonic()

    def save(result: Any) -> None:
        write(path, {**outcome, "seconds": round(time.monotonic() - began, 1), "result": result})

    try:
        run: Callable[..., Any] = importlib.import_module(f"benchmarks.gpu.parts.{part}").run
        result = run(setting, save)
        outcome |= {"ok": True, "error": None}
        save(result)
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        outcome["error"] = f"{type(error).__name__}: {line}"
        write(path, {**(_read(path) or {}), **outcome})
        traceback.print_exc()
    return bool(outcome["ok"])


def run_apart(part: str, limit: float, command: list[str], path: Path) -> dict[str, Any]:
    """Runs the part by ``command`` in a session of its own, for at most so many seconds."""
    path.unlink(missing_ok=True)
    began = time.monotonic()
    over = False
    with tempfile.TemporaryFile("w+b") as said:
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths())}, start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            over = True
        finally:
            end(child)
        said.seek(max(said.seek(0, os.SEEK_END) - TAIL, 0))
        tail = said.read().decode(errors="replace")
    outcome = _read(path) or {"part": part, "error": f"exit status {child.returncode}"}
    if over:
        outcome["error"] = f"ended after {limit:.0f} s"
    elif child.returncode and outcome.get("error") == "it did not end by itself":
        outcome["error"] = f"exit status {child.returncode}"
    outcome["ok"] = outcome["error"] is None
    return {**outcome, "seconds": round(time.monotonic() - began, 1), "tail": tail}


def _paths() -> Iterator[str]:
    # What is imported is the code beside this file, not what happens to be installed.
    yield from (str(ROOT / "src"), str(ROOT))
    if "PYTHONPATH" in os.environ:
        yield os.environ["PYTHONPATH"]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found


def write(path: Path, outcome: dict[str, Any]) -> None:
    """The file whole, or as it was before."""
    write_atomically(path, json.dumps(plain(outcome), default=str).encode())


def plain(value: Any) -> Any:
    """As JSON can hold it: NaN and infinite numbers are unknown; no folder of this machine."""
    if isinstance(value, str):
        return value.replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", "")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@contextlib.contextmanager
def sampled() -> Iterator[Sampler | None]:
    """Samples of the card while the block runs; ``None`` where no card can be asked."""
    try:
        sampler = Sampler(Card())
    except Exception as error:
        print(f"no samples of the card: {type(error).__name__}: {error}", flush=True)
        yield None
        return
    try:
        yield sampler
    finally:
        sampler.stop()


def _name_of(device: str) -> str | None:
    """The GPU's name; what another device was called. No CUDA context is made in this process."""
    if device.partition(":")[0] != "cuda":
        return device
    try:
        name = Card().ask("Name")
        if isinstance(name, str):
            return name
    except Exception:
        pass
    import torch

    return "cuda" if torch.cuda.is_available() else None


def _options() -> argparse.ArgumentParser:
    options = parser(__doc__)
    options.epilog = (
        "Without --out the results are $OUT/gpu.json, or benchmarks/results/gpu.json where $OUT is "
        "not set; each part has a file of its own in the folder gpu beside it."
    )
    options.add_argument(
        "--parts", default=",".join(PARTS), metavar="NAMES", help=f"default: {','.join(PARTS)}"
    )
    options.add_argument("--device", default="cuda", help="PyTorch's name for it")
    options.add_argument("--predict-as", help="data sheet to predict with; default: the device's")
    options.add_argument(
        "--seconds", type=float, default=math.inf, metavar="N", help="for all parts together"
    )
    options.add_argument("--one", metavar="NAME", help="that part in this process, into --out")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs the parts; 1 if one of them failed."""
    options = _options()
    given = options.parse_args(arguments)
    if given.out is None:
        given.out = Path(os.environ.get("OUT") or "benchmarks/results") / "gpu.json"
    if given.one:
        setting = Setting(given.device, given.quick, given.out.parent, given.predict_as)
        return 0 if run_here(given.one, setting, given.out) else 1
    names = given.parts.split(",")
    if unknown := set(names) - set(PARTS):
        options.error(f"no part is called {', '.join(sorted(unknown))}")
    device = _name_of(given.device)
    if device is None:
        skip("PyTorch sees no GPU here")
    record = Record("gpu", given, device=device)
    folder = given.out.resolve().with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    outcomes = []
    with sampled() as sampler:
        for part in (part for part in PARTS if part in names):
            path = folder / f"{part}.json"
            part_began = time.monotonic()
            outcome = _run(part, given, path, given.seconds - (part_began - begin))
            if sampler is not None:
                outcome["card"] = sampler.since(part_began)
            write(path, outcome)
            outcomes.append(outcome)
            print(f"{part:<10} {outcome['seconds']:>7} s  {outcome['error'] or 'done'}", flush=True)
            write(given.out, record.whole({"parts": outcomes}))
    return 0 if all(outcome["ok"] for outcome in outcomes) else 1


def _run(part: str, given: argparse.Namespace, path: Path, left_s: float) -> dict[str, Any]:
    """How the part ended, or why it was not begun."""
    try:
        limit = limit_s(part)
    except (ValueError, SyntaxError) as error:
        return {"part": part, "ok": False, "seconds": 0.0, "error": f"not run: {error}"}
    if left_s < WORTH * limit:
        left = f"not run: {max(left_s, 0):.0f} s are left, its limit is {limit} s"
        return {"part": part, "ok": False, "seconds": 0.0, "error": left}
    command = [sys.executable, "-m", "benchmarks.gpu.run_all", "--one", part, "--out", str(path),
               "--device", given.device]  # fmt: skip
    command += ["--quick"] if given.quick else []
    command += ["--predict-as", given.predict_as] if given.predict_as else []
    return run_apart(part, min(limit, left_s), command, path)


if __name__ == "__main__":
    # Asked to end, it ends its part first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise SystemExit(main())
