"""The C++ loops of ``kernels.cpp``: compiled here, for this CPU, and called through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from gobrrr.measure.ending import ends_first, is_asked_to_end

Element = Literal["float32", "float64", "float16", "int8", "int16", "int32", "int64"]
Operation = Literal["multiply_add", "multiply", "add"]
Stream = Literal["read", "write", "copy", "triad", "copy_nontemporal", "load", "update"]

_ELEMENTS: dict[Element, tuple[int, int]] = {
    "float32": (0, 4),
    "float64": (1, 8),
    "float16": (2, 2),
    "int8": (3, 1),
    "int16": (4, 2),
    "int32": (5, 4),
    "int64": (6, 8),
}
_OPERATIONS: dict[Operation, int] = {"multiply_add": 0, "multiply": 1, "add": 2}
_STREAMS: dict[Stream, int] = {
    "read": 0,
    "write": 1,
    "copy": 2,
    "triad": 3,
    "copy_nontemporal": 4,
    "load": 5,
    "update": 6,
}
_FLAGS = ("-O3", "-std=gnu++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=fast")
_TUNING = (("-march=native",), ("-mcpu=native",), ())
_COMPILE_LIMIT_S = 60.0
# A compiler is looked after this often: who asks the process to end waits for no more.
_LOOKED_AFTER_S = 0.1
_ENDS = (signal.SIGTERM, signal.SIGINT)

# (rounds, trials) -> seconds of each trial; None if there is no such loop here.
_Run = Callable[[int, int], "list[float] | None"]


class NoNativeKernelsError(Exception):
    """The loops cannot be compiled or loaded here; the message says why."""


class NativeKernels:
    """The compiled loops. Each call starts its own threads and leaves the caller's alone.

    Attributes:
        compiler: what compiled them.
        vector_bytes: width of the vectors they use.
    """

    def __init__(self, library: ctypes.CDLL, compiler: str, cpus: Sequence[int]) -> None:
        self._library = library
        self._cpus = tuple(cpus)
        self._rounds: dict[Hashable, int] = {}
        self.compiler = compiler
        library.gobrrr_operations_per_round.restype = ctypes.c_int64
        library.gobrrr_exp_elements.restype = ctypes.c_int64
        self.vector_bytes: int = library.gobrrr_vector_bytes()

    def arithmetic(
        self, element: Element, operation: Operation, *, threads: int, seconds: float, trials: int
    ) -> float | None:
        """Best rate of independent chains in registers, in operations/s; an FMA counts two.

        ``None`` if this CPU has no such arithmetic. ``seconds`` is about the length of a trial.
        """
        code, size = _ELEMENTS[element]
        weight = 2 if operation == "multiply_add" else 1
        per_round = self._library.gobrrr_operations_per_round(size) * weight * threads

        def run(rounds: int, count: int) -> list[float] | None:
            out = (ctypes.c_double * count)()
            status = self._library.gobrrr_chains(
                code, _OPERATIONS[operation], ctypes.c_int64(rounds), threads,
                self._cpu_list(threads), count, _limit(seconds, count), out,
            )  # fmt: skip
            return None if status else _taken(out)

        return self._best_rate((element, operation, threads), run, per_round, seconds, trials)

    def exponentials(
        self, element: Element, *, threads: int, seconds: float, trials: int
    ) -> float | None:
        """Best rate of ``exp`` over an array in the first cache, in evaluations/s."""
        per_round = self._library.gobrrr_exp_elements() * threads

        def run(rounds: int, count: int) -> list[float] | None:
            out = (ctypes.c_double * count)()
            status = self._library.gobrrr_exp(
                _ELEMENTS[element][0], ctypes.c_int64(rounds), threads,
                self._cpu_list(threads), count, _limit(seconds, count), out,
            )  # fmt: skip
            return None if status else _taken(out)

        return self._best_rate((element, "exp", threads), run, per_round, seconds, trials)

    def stream(
        self, kind: Stream, bytes_per_thread: int, *, threads: int, seconds: float, trials: int
    ) -> float | None:
        """Best bandwidth of a stream over memory, in bytes/s that the program reads and writes.

        Each thread has its own arrays, ``bytes_per_thread`` together. ``None`` if there is no such
        loop for this CPU.

        Raises:
            MemoryError: the arrays do not fit.
        """
        moved = ctypes.c_int64()

        def run(passes: int, count: int) -> list[float] | None:
            out = (ctypes.c_double * count)()
            status = self._library.gobrrr_stream(
                _STREAMS[kind], ctypes.c_int64(bytes_per_thread), ctypes.c_int64(passes), threads,
                self._cpu_list(threads), count, _limit(seconds, count), out, ctypes.byref(moved),
            )  # fmt: skip
            if status == -2:
                raise MemoryError(f"no {bytes_per_thread * threads} bytes for a bandwidth test")
            return None if status else _taken(out)

        # A large array is one pass anyhow: allocating it twice would take longer than the pass.
        if bytes_per_thread >= 32 << 20:
            times = run(1, trials)
            return None if times is None else moved.value / min(times)
        best = self._best_rate((kind, bytes_per_thread, threads), run, 1.0, seconds, trials)
        return None if best is None else best * moved.value

    def exp_values(self, values: Sequence[float]) -> list[float]:
        """``exp`` of some float32 values by the loop that is timed; a multiple of 16 of them."""
        count = len(values)
        given, result = (ctypes.c_float * count)(*values), (ctypes.c_float * count)()
        self._library.gobrrr_exp_values(given, result, ctypes.c_int64(count))
        return list(result)

    def _cpu_list(self, threads: int) -> ctypes.Array[ctypes.c_int] | None:
        # Pinned as PyTorch's threads would ideally lie, one to a core. More threads than CPUs, or
        # no list: left to the scheduler.
        if len(self._cpus) < threads:
            return None
        return (ctypes.c_int * threads)(*self._cpus[:threads])

    def _best_rate(
        self, key: Hashable, run: _Run, work_per_round: float, seconds: float, trials: int
    ) -> float | None:
        """Work per second of the fastest trial.

        Rounds grow until one trial takes ``seconds``; the next call with the same key starts there.
        """
        rounds = self._rounds.get((key, seconds))
        if rounds is None:
            rounds = 1
            while True:
                times = run(rounds, 1)
                if times is None:
                    return None
                if times[0] >= seconds / 4 or rounds >= 1 << 40:
                    break
                rounds *= 8 if times[0] < seconds / 32 else 2
            rounds = max(1, round(rounds * seconds / times[0]))
            self._rounds[key, seconds] = rounds
        timed = run(rounds, trials)
        return None if timed is None else work_per_round * rounds / min(timed)


def _limit(seconds: float, trials: int) -> ctypes.c_double:
    """Seconds after which no trial starts: on a busy machine threads wait for each other."""
    return ctypes.c_double(0.02 + 4 * seconds * trials)


def _taken(times: Iterable[float]) -> list[float]:
    """Trials that were made: the first always is."""
    return [time for time in times if time > 0]


def compiler() -> str | None:
    """The C++ compiler to use: ``$CXX``, else the first of g++, clang++, c++ on the path."""
    candidates = (os.environ.get("CXX", ""), "g++", "clang++", "c++")
    return next(filter(None, map(shutil.which, filter(None, candidates))), None)


def load_native_kernels(cpus: Sequence[int]) -> NativeKernels:
    """Compile the loops for this CPU and load them; takes a few seconds.

    Args:
        cpus: hardware threads to pin to, one of each core first; empty for none.

    Raises:
        NoNativeKernelsError: no compiler, or what it said.
    """
    found = compiler()
    if found is None or sys.platform == "win32":
        raise NoNativeKernelsError("no C++ compiler (g++ or clang++) here")
    with ends_first(*_ENDS), tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        target = Path(folder) / "kernels.so"
        with as_file(files("gobrrr.devices") / "kernels.cpp") as source:
            compile_library(found, source, target)
        try:
            library = ctypes.CDLL(str(target))
        except OSError as error:
            raise NoNativeKernelsError(f"the compiled loops do not load: {error}") from error
    return NativeKernels(library, Path(found).name, cpus)


def compile_library(command: str, source: Path, target: Path, extra: Sequence[str] = ()) -> None:
    """Compile one C++ file into a shared library for this CPU.

    ``extra`` are further flags. Raises NoNativeKernelsError with what the compiler said.
    """
    said = ""
    for tuning in _TUNING:
        try:
            status, errors = _compile(
                [command, *_FLAGS, *tuning, *extra, str(source), "-o", str(target)]
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoNativeKernelsError(f"{Path(command).name}: {error}") from error
        if status == 0:
            return
        said = errors.strip().splitlines()[0] if errors.strip() else "failed"
    raise NoNativeKernelsError(f"{Path(command).name} does not compile the loops: {said}")


def _compile(command: Sequence[str]) -> tuple[int, str]:
    """The compiler's exit status and what it said. It ends before this does, however that ends.

    Raises subprocess.TimeoutExpired where it takes too long, or where the process is asked to end.
    """
    posix = os.name == "posix"
    with ends_first(*_ENDS):
        compiling = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=posix,
        )  # fmt: skip
        deadline = time.monotonic() + _COMPILE_LIMIT_S
        try:
            while True:
                try:
                    _, said = compiling.communicate(timeout=_LOOKED_AFTER_S)
                    return compiling.returncode, said
                except subprocess.TimeoutExpired:
                    if is_asked_to_end() or time.monotonic() > deadline:
                        raise
        except BaseException:
            # What it has started (cc1plus) with it; by SIGTERM it removes its own files.
            if posix:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(compiling.pid, signal.SIGTERM)
            else:
                compiling.kill()
            compiling.communicate()
            raise
