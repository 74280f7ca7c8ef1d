"""The parts of ``run_all.py``: each answers one question and returns what JSON can hold."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.programs import PROGRAMS, SMALL, Program
from benchmarks.gpu.setting import Setting

import gobrrr

# Fixes by the program of the setting that has their flaw; advice alone is predicted, not tried.
APPLIED = {
    "transformer": (
        "tf32", "bf16_autocast", "fp16_autocast", "compile", "fused_optimizer", "foreach_optimizer",
        "fp8", "triton_kernel",
    ),
    "convolutions": ("channels_last",),
    "attention": ("fused_attention",),
    "many_small_ops": ("cuda_graph", "compile_reduce_overhead", "inference_mode"),
}  # fmt: skip
SMALL_APPLIED = {"attention": ("bf16_autocast",), "many_small_ops": ("cuda_graph",)}


# Of one part of programs: compiling takes most of it.
PROGRAMS_S = 130


def identity(setting: Setting) -> Any:
    """What it is, and the versions."""
    import torch

    from gobrrr.devices import identify

    return {**asdict(identify("gpu")), "torch": torch.__version__, "gobrrr": gobrrr.__version__}


def ceilings_against_sheet(setting: Setting) -> Any:
    """Measured rates beside the data sheet's."""
    from gobrrr.devices import ceilings_for_this_machine, ceilings_from_datasheet

    found = ceilings_for_this_machine(kind="gpu", refresh=True)
    sheet = ceilings_from_datasheet(found.device)
    stated = {} if sheet is None else {name: row.value for name, row in sheet.rows.items()}
    rows = {
        name: {
            "measured": row.value, "unit": row.unit, "sheet": stated.get(name),
            "share": row.value / stated[name] if stated.get(name) else None,
        }
        for name, row in found.rows.items()
    }  # fmt: skip
    return {"device": found.device, "rows": rows, "notices": found.notices}


def profiler_cost(setting: Setting) -> Any:
    """Host ns per event that the profiler records, three times."""
    backend = _backend()
    return {"event_ns": [backend.profiler_event_ns() for _ in range(3)]}


def _backend() -> Any:
    from gobrrr.devices import identify
    from gobrrr.devices.backends import backend_of

    return backend_of(identify("gpu").kind)


def live_against_trace(setting: Setting) -> Any:
    """The same step live, and from a trace of it."""
    work = setting.transformer()
    live = setting.diagnose(work)
    profiler = _backend().profiler()
    profiler.start()
    for _ in range(6):
        work.step()
        profiler.mark()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.stop(path)
        traced = gobrrr.diagnose_trace(path)
    return {
        name: {
            "step_s": found.step.time_s.median, "split": asdict_of(found.split),
            "leaves": found.leaves, "kernels": found.counters.get("kernels"),
        }
        for name, found in (("live", live), ("trace", traced))
    }  # fmt: skip


def asdict_of(record: Any) -> Any:
    """A record of a diagnosis as plain data."""
    import msgspec

    return msgspec.to_builtins(record)


def spikes(setting: Setting) -> Any:
    """How much of a spike, timed alone, the right leaves show."""
    import torch

    # What the host does shows where the device waits for it.
    bases = {"device": setting.transformer(trains=False), "host": setting.many_small_ops()}
    side = setting.scaled(4096)
    a = torch.randn(side, side, device=setting.device)
    v = torch.randn(side * side, device=setting.device)
    out = torch.empty_like(v)
    host = torch.randn(side * side)
    host = host if setting.device == "cpu" else host.pin_memory()

    def busy_python() -> None:
        ends = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < ends:
            pass

    def many_views() -> None:
        for _ in range(300):
            v.view(side, side)

    kinds: dict[str, tuple[str, Callable[[], Any], str]] = {
        "compute": ("device", lambda: torch.mm(a, a), "compute."),
        "memory": ("device", lambda: torch.add(v, v, out=out), "memory.device."),
        "copies": ("device", lambda: out.copy_(host, non_blocking=True), "memory.copies"),
        "python": ("host", busy_python, "overhead.python"),
        "dispatch": ("host", many_views, "overhead.dispatch"),
        "synchronise": ("device", lambda: v[0].item(), "overhead."),
        "hidden python": ("device", busy_python, "overhead.python"),
    }
    steps = {name: setting.diagnose(work.step, restore=False) for name, work in bases.items()}
    found = {}
    for kind, (name, spike, leaf) in kinds.items():
        base, work = steps[name], bases[name]

        def spiked(spike: Callable[[], Any] = spike, work: gobrrr.Workload = work) -> Any:
            spike()
            return work.step()

        there = setting.diagnose(spiked, restore=False)
        found[kind] = {
            "base": name,
            "alone_s": _alone_s(spike),
            "leaves_grew_s": _under(there, leaf) - _under(base, leaf),
            "step_grew_s": there.step.time_s.median - base.step.time_s.median,
            "step_s": base.step.time_s.median,
            "leaves": {
                k: there.leaves[k] - v for k, v in base.leaves.items() if there.leaves[k] != v
            },
        }
    return found


def _under(found: Any, prefix: str) -> float:
    return float(sum(value for leaf, value in found.leaves.items() if leaf.startswith(prefix)))


def _alone_s(call: Callable[[], Any], times: int = 11) -> float:
    timer = _backend().timer()
    timer.start_block()
    for _ in range(times):
        call()
        timer.mark()
    return float(median(timer.end_block()[1:])) * 1e-9


def idle_causes(setting: Setting) -> Any:
    """What a device waits for in three programs whose reason is known."""
    busy, waiting = setting.transformer(trains=False), setting.many_small_ops()

    def reading() -> float:
        return float(busy.step().sum().item())

    steps = {"busy": busy.step, "waiting": waiting.step, "reading": reading}
    return {
        name: {
            "overhead": {k: v for k, v in found.leaves.items() if k.startswith("overhead.")},
            "idle": [asdict_of(row) for row in found.idle[:10]],
            "step_s": found.step.time_s.median, "regime": found.regime,
        }
        for name, found in ((n, setting.diagnose(s, restore=False)) for n, s in steps.items())
    }  # fmt: skip


def two_streams(setting: Setting) -> Any:
    """Two products one after the other, and beside each other."""
    import torch

    side = setting.scaled(1024)
    a, b = (torch.randn(side, side, device=setting.device) for _ in range(2))
    streams = _backend().streams()
    if streams is None:
        return {"streams": None}

    def one_by_one() -> Any:
        return torch.add(torch.mm(a, a), torch.mm(b, b))

    def beside() -> Any:
        with streams.beside():
            first = torch.mm(a, a)
        second = torch.mm(b, b)
        streams.join()
        return torch.add(first, second)

    return {
        name: {
            "step_s": found.step.time_s.median, "leaves": found.leaves,
            "device_time": asdict_of(found.device_time),
        }
        for name, found in (
            (step.__name__, setting.diagnose(step, restore=False)) for step in (one_by_one, beside)
        )
    }  # fmt: skip


def own_cost(setting: Setting) -> Any:
    """Seconds that a diagnosis takes, and a step with nothing attached before and after it."""
    work = setting.transformer()
    before_s = _alone_s(work.step)
    began = time.perf_counter()
    found = setting.diagnose(work)
    took_s = time.perf_counter() - began
    return {
        "diagnosis_s": took_s, "step_before_s": before_s, "step_after_s": _alone_s(work.step),
        "step_diagnosed_s": found.step.time_s.median,
    }  # fmt: skip


def fixes(setting: Setting) -> Any:
    """Every fix that needs a GPU: what it was predicted to save, and what it saved."""
    found: dict[str, Any] = {}
    applied_s, advised_s = ("2s", "1s") if setting.small else ("8s", "5s")
    for program, names in (SMALL_APPLIED if setting.small else APPLIED).items():
        work = getattr(setting, program)()
        for name in names:
            found[name] = _tried(work, name, applied_s)
            print(name, str(found[name])[:300], flush=True)
    for name, (flawed, mended) in by_hand(setting).items():
        found[name] = {
            **_tried(flawed, name, advised_s),
            "flawed_s": _alone_s(flawed), "mended_s": _alone_s(mended),
        }  # fmt: skip
    return found


def _tried(work: Any, name: str, budget: str) -> dict[str, Any]:
    try:
        result = gobrrr.fix(work, only=name, budget=budget, progress=False)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {
        "step_s": result.diagnosis.step.time_s.median,
        "ruled_out": result.ruled_out.get(name),
        "findings": [asdict_of(f) for f in result.findings if f.fix == name],
    }


def by_hand(setting: Setting) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Steps with the flaw of a fix that is advice alone, and the same steps without it."""
    import torch

    device = setting.device
    odd, even = setting.scaled(4096) + 1, setting.scaled(4096) + 64
    side = setting.scaled(1024)
    x = torch.randn(side, side, device=device)
    host = torch.randn(side, side)
    pinned = host if device == "cpu" else host.pin_memory()
    products = {n: torch.randn(n, n, device=device) for n in (odd, even)}
    rows = torch.randn(64, side, device=device)

    def copied(batch: Any) -> Callable[[], Any]:
        return lambda: torch.mm(batch.to(device, non_blocking=True), x)

    def several() -> Any:
        for _ in range(20):
            y = torch.mm(x, x)
        return y

    return {
        "pinned_memory": (copied(host), copied(pinned)),
        "padded_shapes": tuple(
            (lambda n=n: torch.mm(products[n], products[n])) for n in (odd, even)
        ),
        "remove_syncs": (lambda: several().sum().item(), lambda: several().sum()),
        "vectorise_loop": (
            lambda: torch.stack([torch.exp(row) for row in rows]), lambda: torch.exp(rows)
        ),
    }  # fmt: skip


def peak_memory(setting: Setting) -> Any:
    """What steps hold at their peak, by the device's allocator."""
    from gobrrr.verification.memory import device_peak_bytes, step_peak_bytes

    found = {}
    for name, work in (("training", setting.transformer()),
                       ("inference", setting.transformer(trains=False))):  # fmt: skip
        work.step()
        found[name] = {
            "peak_bytes": device_peak_bytes(work.step),
            "of_the_step_bytes": step_peak_bytes(work.step),
        }
    return found


def batch_doubling(setting: Setting) -> Any:
    """Twice the data: what grows, beside what the split says does not."""
    found = {}
    programs = [("waiting", setting.many_small_ops())]
    if not setting.small:
        programs.append(("busy", setting.transformer()))
    for name, work in programs:
        diagnosis = setting.diagnose(work, batch_test=True)
        growth = diagnosis.batch_doubling
        found[name] = asdict_of(growth) if growth is not None else diagnosis.notices
    return found


def lab(setting: Setting) -> Any:
    """The article's experiments on the device: exit code of ``gobrrr lab`` and its folder."""
    from gobrrr.cli import main

    folder = setting.out / "lab"
    if setting.small:
        # Where there is no GPU the experiments measure the processor: the list alone.
        return {"exit": main(["lab"]), "folder": str(folder)}
    return {
        "exit": main(["lab", "all", "--device", setting.device, "--out", str(folder),
                      "--budget", "40"]),
        "folder": str(folder),
    }  # fmt: skip


def predicted_programs(dtype: str, mode: str) -> Callable[[Setting], Any]:
    """A part: the programs in one dtype and mode, predicted for this device, then measured."""

    def run(setting: Setting) -> Any:
        from gobrrr.devices import identify

        sheet = setting.predict_as or identify("gpu").name
        programs = SMALL if setting.small else PROGRAMS
        found = {}
        ends = time.monotonic() + PROGRAMS_S
        for program in programs:
            if time.monotonic() > ends:
                found[program.name] = {"error": "not reached in time"}
                continue
            try:
                found[program.name] = _predicted(program, dtype, mode, setting, sheet)
            except Exception as error:
                found[program.name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(program.name, found[program.name], flush=True)
        return {"dtype": dtype, "mode": mode, "sheet": sheet, "programs": found}

    return run


def _predicted(program: Program, dtype: str, mode: str, setting: Setting, sheet: str) -> Any:
    import torch

    torch.manual_seed(0)
    model, inputs = program.build(torch, setting.device, getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if program.trains else None
    loss = (lambda y: y.float().square().mean()) if program.trains else None
    model = model.train(program.trains)

    def work(of: Any) -> gobrrr.Workload:
        return gobrrr.Workload(of, inputs, loss=loss, optimizer=optimizer)

    predicted = gobrrr.predict(work(model), sheet, compile=mode == "compiled", progress=False)
    ran = work(torch.compile(model) if mode == "compiled" and not setting.small else model)
    for _ in range(3):
        ran.step()
    measured_s = _alone_s(ran.step, times=5 if setting.small else 21)
    time_s = predicted.step.time_s
    return {
        "predicted_s": time_s.median, "low_s": time_s.low, "high_s": time_s.high,
        "measured_s": measured_s, "ratio": time_s.median / measured_s,
    }  # fmt: skip
