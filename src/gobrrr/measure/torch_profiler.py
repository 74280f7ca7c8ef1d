"""PyTorch's profiler for one cycle, without what it warns of and without events as objects."""

from __future__ import annotations

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


def profiler_of_torch(*, only_exported: bool = False, **options: Any) -> Any:
    """``torch.profiler.profile``, for one cycle.

    ``only_exported``: nothing but the trace file is read of it; its raw events need not be there.
    """
    import torch

    if only_exported and (config := _trace_only()) is not None:
        options["experimental_config"] = config
    profile: Any = torch.profiler.profile

    class OneCycle(profile):  # type: ignore[misc]
        def start(self) -> None:
            with _silent_on_cycles():
                super().start()

    return OneCycle(**options)


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
