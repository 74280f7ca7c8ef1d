"""The ceilings of this machine: measured once, then from the cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gobrrr.devices.backends import backend_of, gpus_here, identify
from gobrrr.devices.cache import cache_folder, is_old
from gobrrr.devices.ceilings import BUSY, Ceilings, Progress
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.devices.native import compiler
from gobrrr.devices.storage import CeilingsFileError, ceilings_from_file, save_ceilings
from gobrrr.measure.load import MOSTLY_WAITED, LoadWatch, usable_processors
from gobrrr.timeline.data import Device

# Changes when a probe does, so that old files are measured anew.
CEILINGS_VERSION = 7

_LOCK_WAIT_S = 180.0


def ceilings_for_this_machine(
    *,
    refresh: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    kind: Literal["cpu", "gpu"] | None = None,
    device: DeviceIdentity | None = None,
) -> Ceilings:
    """Ceilings of the device PyTorch uses here, from the cache or measured (under a minute).

    Cached as JSON by device, driver, PyTorch version, thread count and compiler. Two processes at
    once: one measures, the other waits for it and reads its file.

    Args:
        refresh: measure even if there is a file.
        threads: of PyTorch's operators; its current setting by default. No matter on a GPU.
        progress: called as ``progress(done, total, what)`` while it measures.
        kind: ``cpu`` or ``gpu`` instead of the device PyTorch would use.
        device: that very one instead.

    Raises:
        ImportError: PyTorch is not installed and there is no file.
        LookupError: ``gpu`` was asked for and there is none.
    """
    import torch

    device = device or identify(kind)
    used = backend_of(device.kind).operator_threads(threads)
    path = cache_path(device, torch.__version__, used)
    report = progress or _silent
    cached = None if refresh else _read(path)
    if cached is not None:
        return cached
    notices: list[str] = []
    with _only_one(path, report) as waited:
        # Who waited asked for what the other has just measured.
        cached = _read(path) if waited else None
        if cached is not None:
            return cached
        ceilings = _measure(device, used, report)
        try:
            if ceilings.short_of_memory:
                notices.append(
                    "the ceilings are not complete, because the device's memory was taken, and "
                    "will be measured again next time"
                )
            elif ceilings.disturbed:
                notices.append(
                    f"the ceilings hold for now alone, because {ceilings.disturbed}, and will be "
                    "measured again next time"
                )
            else:
                save_ceilings(ceilings, path)
        except OSError as error:
            notices.append(
                f"the ceilings could not be cached in {path.parent} ({error.strerror or error}): "
                "they will be measured again next time"
            )
    return replace(ceilings, notices=(*ceilings.notices, *notices))


def cached_ceilings() -> Ceilings | None:
    """Of this machine's processor for the threads torch uses now, as they were last measured.

    ``None``: they have not been. Nothing is measured.
    """
    import torch

    device = identify("cpu")
    threads = min(torch.get_num_threads(), usable_processors())
    used = backend_of(device.kind).operator_threads(threads)
    return _read(cache_path(device, torch.__version__, used))


def load_ceilings(*, refresh: bool, progress: Callable[[str, int, int], None]) -> Ceilings:
    """Ceilings of this machine for the threads torch uses now: cached, or measured.

    More threads than processors only take turns: what the processors can do is the ceiling.
    """
    import torch

    return ceilings_for_this_machine(
        kind="cpu",
        refresh=refresh,
        threads=min(torch.get_num_threads(), usable_processors()),
        progress=lambda done, total, what: progress(f"ceilings: {what}", done, total),
    )


def ceilings_beforehand(
    *, refresh: bool, progress: Callable[[str, int, int], None]
) -> Ceilings | None:
    """Ceilings of the only device that a program can run on here: the processor.

    ``None`` where there is a GPU: which of the two it is, the program's steps will tell.
    """
    return None if gpus_here() else load_ceilings(refresh=refresh, progress=progress)


def this_device() -> Device:
    """The processor as a ``Device``."""
    found = identify("cpu")
    return Device(name=found.name, kind=found.kind, memory_bytes=found.memory_bytes)


def _measure(device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    watch = LoadWatch()
    ceilings = backend_of(device.kind).measure(device, threads, progress)
    if device.kind != "cpu" or ceilings.busy or watch.so_far().severity <= MOSTLY_WAITED:
        return ceilings
    said = f"{BUSY} (its threads waited most of the time): they are measured again in an hour"
    return replace(ceilings, notices=(*ceilings.notices, said))


def _silent(done: int, total: int, what: str) -> None:
    pass


def _read(path: Path) -> Ceilings | None:
    try:
        found = ceilings_from_file(path)
        return None if found.busy and is_old(path) else found
    except (OSError, CeilingsFileError):
        # Not there, or damaged: it is measured and written anew.
        return None


def cache_path(device: DeviceIdentity, torch_version: str, threads: int) -> Path:
    """The file for this device, PyTorch and number of threads.

    The name shows them; a hash adds what does not fit: caches, memory, driver, compiler.
    """
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or device.kind
    key = repr((device, torch_version, threads, compiler(), CEILINGS_VERSION))
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    torch_part = re.sub(r"[^a-z0-9.]+", "-", torch_version.lower())
    return cache_folder() / f"ceilings-{name}-{threads}t-torch{torch_part}-{digest}.json"


@contextmanager
def _only_one(path: Path, progress: Progress) -> Iterator[bool]:
    """Hold the machine for one measurement; yields whether another process had it.

    Where nothing can be locked (a folder that cannot be written) and where the other takes longer
    than ``_LOCK_WAIT_S`` it goes on: two measurements disturb each other, but the file stays whole.
    """
    # Not at the top: it brings asyncio, and only measuring needs it.
    from filelock import FileLock, Timeout

    waited = False
    with ExitStack() as held:
        lock = FileLock(path.with_suffix(".lock"))
        # Timeout is an OSError too.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(lock.acquire(blocking=False))
            except Timeout:
                waited = True
                progress(0, 1, "waiting for another gobrrr process that is measuring")
                held.enter_context(lock.acquire(timeout=_LOCK_WAIT_S, poll_interval=0.2))
        yield waited
