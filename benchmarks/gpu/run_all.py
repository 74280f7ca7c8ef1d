"""What the first hour with a GPU must answer, in parts of at most ten minutes.

    PYTHONPATH=src:. python benchmarks/gpu/run_all.py --out FILE [--parts identity,ceilings,...]

Each part runs in its own try and writes ``<part>.json`` into the folder that is called as FILE is,
without its suffix; FILE says how each ended. Without ``--out`` the folder is ``$OUT`` or
``benchmarks/results/gpu``. ``--quick`` runs every part on little work, which shows that the script
works and says nothing of a device.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser, skip
from benchmarks.gpu import measurements
from benchmarks.gpu.programs import DTYPES, MODES
from benchmarks.gpu.setting import Setting

LIMIT_S = 600


@dataclass(frozen=True)
class Part:
    """One question: ``run`` gives what is saved."""

    name: str
    run: Callable[[Setting], Any]


PARTS: tuple[Part, ...] = (
    Part("identity", measurements.identity),
    Part("ceilings", measurements.ceilings_against_sheet),
    Part("profiler_cost", measurements.profiler_cost),
    Part("live_against_trace", measurements.live_against_trace),
    Part("spikes", measurements.spikes),
    Part("idle_causes", measurements.idle_causes),
    Part("two_streams", measurements.two_streams),
    Part("own_cost", measurements.own_cost),
    Part("fixes", measurements.fixes),
    Part("peak_memory", measurements.peak_memory),
    Part("batch_doubling", measurements.batch_doubling),
    Part("lab", measurements.lab),
    *(
        Part(f"programs_{dtype}_{mode}", measurements.predicted_programs(dtype, mode))
        for dtype in DTYPES
        for mode in MODES
    ),
)


class TooLongError(BaseException):
    """A part took longer than it may; no ``except Exception`` of the part's keeps it."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raises ``TooLongError`` in the block after so long, where signals can tell (not Windows)."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TooLongError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_part(part: Part, setting: Setting) -> dict[str, Any]:
    """The part's outcome, whatever becomes of it."""
    began = time.perf_counter()
    outcome: dict[str, Any] = {"part": part.name, "ok": True, "small": setting.small}
    try:
        with at_most(LIMIT_S):
            outcome["result"] = part.run(setting)
    except (Exception, TooLongError) as error:
        line = (str(error).splitlines() or [""])[0]
        outcome |= {"ok": False, "error": f"{type(error).__name__}: {line}"}
        outcome["traceback"] = traceback.format_exception(error)
    outcome["seconds"] = round(time.perf_counter() - began, 1)
    return outcome


def _name_of(device: str) -> str | None:
    """The GPU's name, where PyTorch has one; what another device was called."""
    import torch

    if device.partition(":")[0] != "cuda":
        return device
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else None


def main(arguments: list[str] | None = None) -> int:
    """Runs the parts; 1 if one of them failed."""
    options = parser(__doc__)
    options.epilog = (
        "Without --out the results are $OUT/gpu.json, or benchmarks/results/gpu.json where $OUT is "
        "not set; each part has a file of its own in the folder gpu beside it."
    )
    every = ",".join(part.name for part in PARTS)
    options.add_argument("--parts", default=every, metavar="NAMES", help=f"default: {every}")
    options.add_argument("--device", default="cuda", help="PyTorch's name for it")
    options.add_argument("--predict-as", help="data sheet to predict with; default: the device's")
    given = options.parse_args(arguments)
    names = given.parts.split(",")
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        options.error(f"no part is called {', '.join(sorted(unknown))}")
    name = _name_of(given.device)
    if name is None:
        skip("PyTorch sees no GPU here")
    if given.out is None:
        given.out = Path(os.environ.get("OUT") or "benchmarks/results") / "gpu.json"
    record = Record("gpu", given, device=name)
    folder = given.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(given.device, given.quick, folder, given.predict_as)
    summary = []
    for part in PARTS:
        if part.name in names:
            outcome = run_part(part, setting)
            path = folder / f"{part.name}.json"
            path.write_text(json.dumps(outcome, indent=1, default=str))
            summary.append({key: outcome.get(key) for key in ("part", "ok", "seconds", "error")})
            print(f"{part.name:<28} {outcome['seconds']:>7} s  {outcome.get('error', 'done')}")
            record.write({"parts": summary})
    return 0 if all(entry["ok"] for entry in summary) else 1


if __name__ == "__main__":
    raise SystemExit(main())
