"""PyTorch's profiler for one cycle, without what it warns of and without events as objects."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What PyTorch 2.11 says even of a single cycle: "Profiler clears events at the end of each cycle.
# [...] To keep events across cycles, set acc_events=True." Asked to, it makes an object of every
# event as the profiler stops: 100,000 ops take 11 s and 1.4 GB rather than 0.8 s and 0.5 GB.
_OF_CYCLES = r"(?s).*acc_events"
# From here on it says so of a second cycle alone.
_SILENT_SINCE = (2, 13)
# Whether a profiler of the program's own has been seen to start.
others_ran = False
# What PyTorch calls a garbage collection in a trace.
GC_NAME = "Python GC"


def profiler_of_torch(*, only_exported: bool = False, **options: Any) -> Any:
    """``torch.profiler.profile``, for one cycle.

    ``only_exported``: nothing but the trace file is read of it; its raw events need not be there.
    Garbage collections then have rows, named as PyTorch names those that it writes itself.
    """
    import torch

    if only_exported and (config := _trace_only()) is not None:
        options["experimental_config"] = config
    profile: Any = torch.profiler.profile

    class OneCycle(profile):  # type: ignore[misc]
        of_gobrrr = True

        def start(self) -> None:
            with _silent_on_cycles():
                super().start()

        def prepare_trace(self) -> None:
            with _silent_on_cycles():
                super().prepare_trace()

        def start_trace(self) -> None:
            self.collections = _Collections()
            super().start_trace()
            if only_exported:
                gc.callbacks.append(self.collections)

        def stop_trace(self) -> None:
            self.collections.end()
            super().stop_trace()

    return OneCycle(**options)


def see_start(profiler: Any) -> None:
    """A profiler starts in this process."""
    global others_ran
    others_ran |= not getattr(type(profiler), "of_gobrrr", False)


class _Collections:
    """Puts a range around each garbage collection.

    PyTorch's own setting for that (``record_python_gc_info``) does nothing without Python frames,
    which make the host several times slower (2.13).
    """

    def __init__(self) -> None:
        from torch._C import _profiler

        # No operator of PyTorch's, as ``record_function`` is: a collection may be anywhere.
        self._make: Any = getattr(_profiler, "_RecordFunctionFast", None)
        self._open: Any = None

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and self._make is not None:
            self._open = self._make(GC_NAME)
            self._open.__enter__()
        elif phase == "stop" and self._open is not None:
            ended, self._open = self._open, None
            ended.__exit__(None, None, None)

    def end(self) -> None:
        """See no more of them."""
        if self in gc.callbacks:
            gc.callbacks.remove(self)


def _trace_only() -> Any:
    """The setting that leaves raw events out; ``None`` where this PyTorch has none."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(trace_only=True)
    except TypeError:
        return None


@contextmanager
def _silent_on_cycles() -> Iterator[None]:
    import torch

    # A changed filter shows again what the program was warned of once: not where none is needed.
    if torch.torch_version.TorchVersion(torch.__version__) >= _SILENT_SINCE:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_OF_CYCLES)
        yield
