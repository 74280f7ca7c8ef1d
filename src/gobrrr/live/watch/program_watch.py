"""Notes, while a program runs, what ``program_facts`` holds: collections, loaders, lines, modes."""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

from gobrrr.live.bare_steps import BareBlock
from gobrrr.live.watch.compilations import compilations
from gobrrr.live.watch.gone_back import GoneBack
from gobrrr.live.watch.loader_watch import watch_loader_workers
from gobrrr.live.watch.other_python_threads import OtherThreads
from gobrrr.live.watch.parallel_facts import data_parallel
from gobrrr.live.watch.saving_watch import watch_saving
from gobrrr.observe.padding_watch import PaddingWatch
from gobrrr.observe.program_facts import (
    CallFact,
    CollectionsFact,
    CompilationFact,
    DataParallelFact,
    LoaderFact,
    MarkFact,
    NoteFact,
    OptimizerFact,
    ProgramFacts,
)
from gobrrr.observe.source_lines import format_line, is_user_file, user_line
from gobrrr.timeline.step_kinds import CallKey, Mark, StepWindow

_MOST_COLLECTIONS, _MOST_LINES = 50_000, 3
# Shorter collections look through young objects alone, and are not kept.
LONG_NS = 300_000
# Libraries that known causes are about.
LIBRARIES = ("tokenizers", "PIL", "cv2", "tqdm", "wandb", "tensorboard", "transformers")
_MOST_FRAMES = 60
_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "TORCHELASTIC_RUN_ID",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "OMP_WAIT_POLICY", "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
)  # fmt: skip


# An hour of them: a program that is never diagnosed keeps no more.
MOST_NOTES = 200_000


class _Collection(NamedTuple):
    """A garbage collection: the user's line, and the file and line that it began at."""

    begin_ns: int
    end_ns: int
    generation: int
    line: str
    place: tuple[str, int]


class _Note(NamedTuple):
    """Where the main thread was, in which modes, and how much time that stands for.

    ``collected_ns``: the garbage collector's part of it, which is no line's.
    """

    time_ns: int
    stands_for_ns: int
    collected_ns: int
    place: tuple[str, str, str, str]
    modes: tuple[str, ...]


class ProgramWatch:
    """Notes between ``install`` and ``remove``; ``facts`` tells what came of it.

    Args:
        clock: that of the windows.
        mark: is given each named stretch.
        modules: those that were called from outside any other.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        mark: Callable[[Mark], None],
        modules: Callable[[], Sequence[Any]] = tuple,
    ) -> None:
        self._clock = clock
        self._mark = mark
        self._undo: list[Callable[[], None]] = []
        self._collections: list[_Collection] = []
        self._collecting_ns = self._collected_ns = 0
        self._loaders: dict[LoaderFact, None] = {}
        self._notes: deque[_Note] = deque(maxlen=MOST_NOTES)
        self._modules = modules
        self._data_parallel: tuple[DataParallelFact, ...] = ()
        self._optimizers: tuple[OptimizerFact, ...] = ()
        # Those of the program that have stepped, as far as whoever watches its steps knows them.
        self.optimizers: Callable[[], Iterable[Any]] = tuple
        self.threads = OtherThreads()
        self.padding = PaddingWatch()
        self.gone_back = GoneBack()

    def install(self) -> None:
        """Begin."""
        # Whose a file is, is asked in the midst of the program's imports, where Python 3.11 cannot
        # begin another: the first answer imports what the interpreter was built with.
        is_user_file(os.__file__)
        gc.callbacks.append(self._on_gc)
        self._undo.append(lambda: gc.callbacks.remove(self._on_gc))
        self._undo.append(watch_saving(self._clock, self._mark))
        self._undo.append(watch_loader_workers(self._clock, self._mark, self._loaders))

    def remove(self) -> None:
        """Leave nothing behind; what was noted stays."""
        while self._undo:
            with contextlib.suppress(ValueError):
                self._undo.pop()()

    def note(self, frame: FrameType, now_ns: int, stands_for_ns: int) -> None:
        """Where the main thread is, and in which modes; how much time that stands for.

        What the garbage collector took meanwhile is no time of the line that it came up at.
        """
        collected_ns = min(stands_for_ns, self._collected_ns)
        self._collected_ns = 0
        self._notes.append(
            _Note(now_ns, stands_for_ns - collected_ns, collected_ns, _place(frame), _modes())
        )

    def see_objects(self) -> None:
        """Note what optimizers and wrappers of modules say of themselves.

        A script may end before it is diagnosed, and what its functions hold with it.
        """
        from gobrrr.live.watch.optimizer_facts import described

        self._data_parallel = data_parallel(self._modules())
        self._optimizers = described(self.optimizers())

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_ns = self._clock()
        elif self._collecting_ns and len(self._collections) < _MOST_COLLECTIONS:
            begin_ns, now = self._collecting_ns, self._clock()
            self._collecting_ns = 0
            self._collected_ns += now - begin_ns
            if now - begin_ns >= LONG_NS:
                # A collection may begin where no Python runs.
                frame = sys._getframe().f_back
                line = user_line(frame) or ""
                place = ("", 0)
                if frame is not None:
                    place = frame.f_code.co_filename, frame.f_lineno or 0
                self._collections.append(
                    _Collection(begin_ns, now, info["generation"], line, place)
                )

    def facts(self, windows: Sequence[StepWindow], bare: Iterable[BareBlock] = ()) -> ProgramFacts:
        """What was noted in windows and in bare steps, and what the process says of itself now."""
        import torch

        # What a program does once, it does in its first window.
        alone = [(b, w) for b, w in pairwise(windows) if not w.attached and not w.compiles]
        plain = _Stretches([window for _, window in alone])
        settled = _Stretches([window for before, window in alone if not before.compiles])
        inside = [note for note in list(self._notes) if plain.holds(note.time_ns)]
        compiled = compilations()
        modes = Counter(mode for note in inside for mode in note.modes)
        limit = getattr(sys.modules.get("torch._dynamo.config"), "recompile_limit", None)
        return ProgramFacts(
            plain_s=plain.total_ns * 1e-9,
            windows=len(plain.windows),
            seen_s=_seen_s(windows, compiled),
            compiling=self._compiling([window for window in windows if window.compiles]),
            collections=_collections(self._collections, settled, plain, list(bare)),
            notes=_notes_of(inside),
            notes_taken=len(inside),
            modes={mode: n / len(inside) for mode, n in modes.items()},
            flags=_flags(torch),
            loaders=tuple(self._loaders),
            loaded=tuple(name for name in LIBRARIES if name in sys.modules),
            marks=_marks_of(plain),
            calls=_calls_of(plain, _Stretches(list(windows[1:])), self.gone_back),
            padding=tuple(self.padding.seen),
            optimizers=self._optimizers,
            data_parallel=data_parallel(self._modules()) or self._data_parallel,
            threads=self.threads.facts(),
            compilations=compiled,
            recompile_limit=limit if isinstance(limit, int) else None,
            environment={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            max_rss_bytes=_max_rss_bytes(),
            max_device_bytes=_max_device_bytes(),
        )

    def _compiling(self, windows: Sequence[StepWindow]) -> tuple[str, ...]:
        """The user's lines that were calling torch while it compiled, forward passes first."""
        compiling = _Stretches(windows)
        spent: Counter[str] = Counter()
        backward: dict[str, bool] = defaultdict(bool)
        for note in self._notes:
            line, callee, _, _ = note.place
            if line and callee.startswith("torch.") and compiling.holds(note.time_ns):
                spent[line] += note.stands_for_ns
                backward[line] |= callee.endswith(".backward")
        # A backward pass is compiled for the forward pass that it belongs to.
        lines = sorted(spent, key=lambda line: (backward[line], -spent[line]))
        return tuple(lines[:_MOST_LINES])


class _Stretches:
    """Windows in order of time, and what lies in them."""

    def __init__(self, windows: Sequence[StepWindow]) -> None:
        self.windows = sorted(windows, key=lambda window: window.begin_ns)
        self._begins = [window.begin_ns for window in self.windows]
        self.total_ns = sum(window.length_ns for window in self.windows)

    def holds(self, time_ns: int) -> bool:
        """Whether a moment is in one of them."""
        at = bisect_right(self._begins, time_ns) - 1
        return at >= 0 and time_ns <= self.windows[at].end_ns

    def share(self, ns: float) -> float:
        """Of their wall time."""
        return ns / self.total_ns if self.total_ns else 0.0


def _collections(
    found: Iterable[_Collection],
    settled: _Stretches,
    plain: _Stretches,
    bare: Sequence[BareBlock],
) -> tuple[CollectionsFact, ...]:
    lengths: dict[tuple[int, bool], list[int]] = defaultdict(list)
    lines: dict[tuple[int, bool], Counter[str]] = defaultdict(Counter)
    # Where a block began is known by its first step's end alone: its lengths may be a device's.
    blocks = _Stretches([StepWindow(b.ended_ns[0], b.ended_ns[-1]) for b in bare if b.ended_ns])
    steps = len(plain.windows) + sum(max(0, len(block.ended_ns) - 1) for block in bare)
    looked_at_ns = max(1, plain.total_ns + blocks.total_ns)
    for each in found:
        if settled.holds(each.begin_ns) or blocks.holds(each.begin_ns):
            # Otherwise it began in the midst of whatever made the last of many objects.
            kind = each.generation, "collect(" in linecache.getline(*each.place)
            lengths[kind].append(each.end_ns - each.begin_ns)
            if each.line:
                lines[kind][each.line] += each.end_ns - each.begin_ns
    return tuple(
        CollectionsFact(
            kind[0], len(took), sum(took) * 1e-9, max(took) * 1e-9, sum(took) / looked_at_ns,
            tuple(line for line, _ in lines[kind].most_common(_MOST_LINES)), kind[1], steps,
        )
        for kind, took in sorted(lengths.items())
    )  # fmt: skip


def _notes_of(notes: Sequence[_Note]) -> tuple[NoteFact, ...]:
    counts = Counter(note.place for note in notes)
    stands_for: Counter[tuple[str, str, str, str]] = Counter()
    for note in notes:
        stands_for[note.place] += note.stands_for_ns
    total_ns = max(1, stands_for.total() + sum(note.collected_ns for note in notes))
    return tuple(
        NoteFact(*place, counts[place], ns / total_ns) for place, ns in stands_for.most_common()
    )


def _marks_of(plain: _Stretches) -> tuple[MarkFact, ...]:
    lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for window in plain.windows:
        for mark in window.marks:
            lengths[mark.name, mark.source].append(mark.end_ns - mark.begin_ns)
    found = [
        MarkFact(name, source, len(each), sum(each) * 1e-9, plain.share(sum(each)))
        for (name, source), each in lengths.items()
    ]
    return tuple(sorted(found, key=lambda mark: -mark.total_s))


def _calls_of(plain: _Stretches, every: _Stretches, gone_back: GoneBack) -> tuple[CallFact, ...]:
    """Calls in plain windows; of evaluations that were seen beside others alone, those there."""
    lengths: dict[tuple[str, int, bool, bool, bool], list[int]] = defaultdict(list)
    keys: dict[tuple[str, int, bool, bool, bool], dict[CallKey, None]] = defaultdict(dict)
    seen_in: dict[tuple[str, int, bool, bool, bool], _Stretches] = {}
    for stretches in (plain, every):
        for window in stretches.windows:
            for call in window.calls:
                made = call.key
                key = made.module, made.instance, made.training, made.gradients, made.synced
                if seen_in.setdefault(key, stretches) is stretches:
                    lengths[key].append(call.end_ns - call.begin_ns)
                    keys[key][call.key] = None
    found = [
        CallFact(*key[:4], next(iter(keys[key])).source, len(each), sum(each) * 1e-9,
                 seen_in[key].share(sum(each)), key[4], _any(map(gone_back.through, keys[key])))
        for key, each in lengths.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda call: -call.total_s))


def _any(known: Iterable[bool | None]) -> bool | None:
    """Whether one is true; ``None``: that is unknown of one, and none is."""
    found = set(known)
    return True if True in found else None if None in found else False


def _place(frame: FrameType) -> tuple[str, str, str, str]:
    """The innermost line of the user's, what it calls of a library, and what called it."""
    called: FrameType | None = None
    inner = ""
    at: FrameType | None = frame
    for _ in range(_MOST_FRAMES):
        if at is None or is_user_file(at.f_code.co_filename):
            break
        module = _module_of(at)
        if not inner and module.partition(".")[0] not in sys.stdlib_module_names:
            inner = module
        called, at = at, at.f_back
    if at is None or not is_user_file(at.f_code.co_filename):
        return "", "" if called is None else _name_of(frame), inner, ""
    line = format_line(at.f_code.co_filename, at.f_lineno, at.f_code.co_name)
    outer = at.f_back
    for _ in range(_MOST_FRAMES):
        if outer is None or not is_user_file(outer.f_code.co_filename):
            break
        outer = outer.f_back
    within = "" if outer is None else _module_of(outer)
    return line, "" if called is None else _name_of(called), inner, within


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _name_of(frame: FrameType) -> str:
    return f"{_module_of(frame)}.{frame.f_code.co_name}"


def _modes() -> tuple[str, ...]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return ()
    found = []
    if torch.is_anomaly_enabled():
        found.append("anomaly")
    if torch.autograd._profiler_enabled():
        found.append("autograd_profiler")
    if torch.are_deterministic_algorithms_enabled():
        found.append("deterministic")
    if not torch.is_grad_enabled():
        found.append("no_grad")
    return tuple(found)


def _flags(torch: Any) -> dict[str, bool]:
    """Settings of torch that decide about time, as they are now."""
    return {
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "anomaly": bool(torch.is_anomaly_enabled()),
        "autograd_profiler": bool(torch.autograd._profiler_enabled()),
        "gc_enabled": gc.isenabled(),
        "fill_uninitialized_memory": bool(torch.utils.deterministic.fill_uninitialized_memory),
        "flushes_subnormals": _flushes_subnormals(),
        "pinned": _is_pinned(),
    }


def _flushes_subnormals() -> bool:
    """Whether arithmetic of this thread takes subnormal numbers for zero; Python's is as torch's.

    (``torch.set_flush_denormal`` tells nobody.)
    """
    half = sys.float_info.min / 2
    return half * 1.0 == 0.0


def _is_pinned() -> bool:
    """Whether the launcher has more processors than this process, which then has its own."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None:
        return False
    try:
        return bool(affinity(0) < affinity(os.getppid()))
    except OSError:  # it has ended, or is another user's
        return False


def _seen_s(windows: Sequence[StepWindow], compiled: Sequence[CompilationFact]) -> float:
    """Wall time of windows; since the first compilation if that began before them."""
    in_windows_s = sum(window.length_ns for window in windows) * 1e-9
    began = [each.began_s for each in compiled if each.began_s is not None]
    return max(in_windows_s, time.time() - min(began)) if began else in_windows_s


def _max_device_bytes() -> int | None:
    # Not before the program's first steps: a process that has imported little behaves as alone.
    from gobrrr.devices.backends import gpu_in_use

    backend = gpu_in_use()
    memory = None if backend is None else backend.memory()
    return None if memory is None else memory.peak_bytes()


def _max_rss_bytes() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kilobytes, but on macOS.
    return int(most if sys.platform == "darwin" else most * 1024)
