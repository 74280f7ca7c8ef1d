"""``gobrrr doctor``: what is here, what works and what does not."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gobrrr.devices.backends import gpus_here
from gobrrr.devices.cuda.probes import gpu_checks
from gobrrr.measure.load import usable_processors
from gobrrr.measure.torch_profiler import profiler_of_torch
from gobrrr.observe.private_names import lacking
from gobrrr.timeline.quantities import si

DESCRIPTION = """Report what gobrrr finds here and what works with it: versions, devices, compilers,
and the private parts of PyTorch, which may change. The exit code is always 0."""
EXAMPLES = """examples:
  gobrrr doctor
"""

_EVENT_FIELDS = ("start_ns", "duration_ns", "shapes", "dtypes", "sequence_nr", "start_thread_id")
_PACKAGES = ("numpy", "msgspec", "rich", "jinja2", "isal")


@dataclass(frozen=True, slots=True)
class Check:
    """One line: ``works`` is ``None`` for plain information."""

    subject: str
    finding: str
    works: bool | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``gobrrr doctor`` has no options."""


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Prints every check; a probe that fails is a finding, not an error."""
    parser.parse_args(arguments)
    for title, checks in (
        ("Here", here),
        ("PyTorch", torch_checks),
        ("What works", abilities),
    ):
        print(title)
        for check in checks():
            mark = {True: "ok", False: "--", None: "  "}[check.works]
            print(f"  {mark}  {check.subject:<26}{check.finding}")
    return 0


def here() -> Iterator[Check]:
    """Versions and the machine."""
    own = _version("gobrrr")
    yield Check("gobrrr", own or "not installed as a package")
    yield Check("Python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield Check("platform", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield Check("processor", _processor())
    for name in _PACKAGES:
        found = _version(name)
        missing = "not installed (reads gzip traces faster)" if name == "isal" else "not installed"
        yield Check(name, found or missing, found is not None)
    compiler = next(filter(None, map(shutil.which, _compilers())), None)
    yield Check("C++ compiler", compiler or "none found: no torch.compile", compiler is not None)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _compilers() -> tuple[str, ...]:
    chosen = os.environ.get("CXX")
    return ((chosen,) if chosen else ()) + ("g++", "clang++", "c++", "cl")


def _processor() -> str:
    usable = usable_processors()
    name = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            name = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {usable} usable cores"


def torch_checks() -> Iterator[Check]:
    """The installed torch and the parts of it that gobrrr needs and that are not public."""
    if find_spec("torch") is None:
        yield Check("torch", "not installed: pip install 'gobrrr[torch]'", False)
        return
    # Kineto writes two lines of its own to stderr for every profile (pytorch/kineto#1325).
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        torch = import_module("torch")
    except Exception as error:
        yield Check("torch", f"cannot be imported: {error}", False)
        return
    yield Check("torch", f"{torch.__version__}, {_build(torch)}", _new_enough(torch))
    yield Check(
        "threads", f"{torch.get_num_threads()} intra-op, {torch.get_num_interop_threads()} inter-op"
    )
    yield from _devices()
    for subject, probe in PROBES.items():
        try:
            finding = probe(torch)
            yield Check(subject, finding, True)
        except Exception as error:
            yield Check(subject, f"missing: {type(error).__name__}: {error}"[:120], False)
    for row in gpu_checks(torch):
        yield Check(*row)


def _build(torch: Any) -> str:
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if getattr(torch.version, "hip", None):
        return f"ROCm {torch.version.hip}"
    return "CPU build"


def _new_enough(torch: Any) -> bool:
    numbers = torch.__version__.split("+")[0].split(".")[:2]
    return tuple(int(number) for number in numbers) >= (2, 6)


def _devices() -> Iterator[Check]:
    gpus = gpus_here()
    for backend, found in gpus:
        size = "" if found.memory_bytes is None else f", {si(found.memory_bytes, 'B')}"
        yield Check(f"device ({found.kind})", f"{found.name}{size}", True)
        for sentence in backend.MISSING:
            yield Check(f"device ({found.kind})", sentence, None)
    if not gpus:
        yield Check("GPU", "none that torch can use; steps run on the CPU", None)


def _probe_events(torch: Any) -> str:
    from torch.profiler import ProfilerActivity

    with profiler_of_torch(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        torch.zeros(2) + 1
    events = list(recorded.profiler.kineto_results.events())
    event = next(e for e in events if e.name() == "aten::add")
    missing = [
        name
        for name in (
            "start_ns",
            "duration_ns",
            "shapes",
            "dtypes",
            "sequence_nr",
            "start_thread_id",
        )
        if not hasattr(event, name)
    ]
    if missing:
        raise AttributeError(f"events have no {', '.join(missing)}")
    return f"{len(events)} events of one addition read"


def _probe_traceback(torch: Any) -> str:
    from torch._C._profiler import gather_traceback, symbolize_tracebacks

    frames = symbolize_tracebacks([gather_traceback(python=True, script=False, cpp=False)])
    frame = frames[0][0]
    return f"the executing line of an op, {frame['name']}:{frame['line']}"


def _probe_dispatch(torch: Any) -> str:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.zeros(2) + 1
    return f"sees {', '.join(seen)}"


def _probe_optimizer_hooks(torch: Any) -> str:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: None).remove()
    return "global step hooks"


def _probe_module_hooks(torch: Any) -> str:
    from torch.nn.modules.module import register_module_forward_hook

    register_module_forward_hook(lambda *_: None, always_call=True).remove()
    return "global forward hooks that are called on exceptions too"


def _probe_recording(torch: Any) -> str:
    missing = lacking()
    if missing:
        raise AttributeError(f"no {', '.join(missing)}")
    return "ops are recorded with their lines and modules"


def _probe_flops(torch: Any) -> str:
    from torch.utils.flop_counter import flop_registry

    return f"{len(flop_registry)} formulas to compare with"


PROBES: dict[str, Callable[[Any], str]] = {
    "raw profiler events": _probe_events,
    "source lines": _probe_traceback,
    "dispatch mode": _probe_dispatch,
    "recorded ops": _probe_recording,
    "optimizer hooks": _probe_optimizer_hooks,
    "module hooks": _probe_module_hooks,
    "flop_counter": _probe_flops,
}


def abilities() -> Iterator[Check]:
    """Commands, and what they lack here."""
    torch_here = find_spec("torch") is not None
    needs = "" if torch_here else "needs torch: pip install 'gobrrr[torch]'"
    yield Check("gobrrr run", needs or "scripts, modules and functions", torch_here)
    yield Check("gobrrr ceilings", needs or "measured and cached", torch_here)
    yield Check("gobrrr trace", "any PyTorch profiler trace", True)
    yield Check("gobrrr report", "terminal, JSON, Markdown", True)
    if torch_here and "torch" in sys.modules and not gpus_here():
        yield Check("GPU steps", "not possible: no GPU that torch can use", False)
