"""Waiting for data: loader workers, pinned memory with non-blocking copies."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.diagnosis.facts import LEAST_SAVING, Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.edits import AfterImports, Keyword
from gobrrr.fixes.fix import (
    MEMORY,
    RANDOMNESS,
    SAME_OPS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.scripts import attribute
from gobrrr.fixes.threads import PROCESSORS
from gobrrr.measure.load import usable_processors
from gobrrr.timeline.quantities import si, time_text

# What the main process pays for a batch of a worker: the queue, and for each tensor a socket that
# hands its file descriptor over and the mapping of its shared memory. torch 2.13 on a busy EPYC
# (Zen 4), processor time of the main process for batches of 1, 2 and 4 tensors, where ``torch.add``
# of one element took 1.65 us: 0.98, 1.25 and 1.99 ms. Host work, scaled as that of compiled code.
_HAND_OVER_S, _PER_TENSOR_S = 500e-6, 270e-6
# Inputs and targets: how many tensors a batch has is not seen from outside.
_TENSORS = 2
MOST_WORKERS = 4


def workers_wanted(processors: int) -> int:
    """One per processor, which is torch's own limit for a warning; at most ``MOST_WORKERS``."""
    return min(MOST_WORKERS, processors)


def _consider_workers(facts: Facts) -> Considered:
    nothing = too_little(facts, "overhead.data_loading")
    if nothing is not None and facts.loading_s < LEAST_SAVING * facts.step_s:
        return nothing
    if not facts.loaders:
        return RuledOut("the data does not come from a DataLoader that gobrrr can see")
    if any(loader.workers > 0 for loader in facts.loaders):
        most = max(loader.workers for loader in facts.loaders)
        return RuledOut(f"the DataLoader has {most} workers already")
    loading_s = facts.loading_s
    busy_s = facts.step_s - loading_s
    workers = workers_wanted(facts.processors)
    hand_over_s = host_scale(facts) * (_HAND_OVER_S + _TENSORS * _PER_TENSOR_S)
    # Loading goes on beside the step: what takes longer is left.
    overlapped_s = max(loading_s / workers, busy_s + hand_over_s)
    # Where data is computed rather than waited for, both want processors, and so do the workers for
    # handing over.
    wanted_s = loading_s + 2 * hand_over_s + (0.0 if facts.on_gpu else busy_s * facts.threads)
    crowded_s = max(overlapped_s, wanted_s / facts.processors)
    expected_s = facts.step_s - 0.5 * (overlapped_s + crowded_s)
    return prospect_or_not(
        facts, facts.step_s - crowded_s - hand_over_s, expected_s, facts.step_s - overlapped_s,
        f"each step waits {time_text(loading_s)} for data; {workers} worker(s) load the next "
        f"batch during the other {time_text(busy_s)}, and handing it over takes about "
        f"{time_text(hand_over_s)}",
        tuple(i.source for i in facts.idle if i.cause == "data_loading" and i.source),
    )  # fmt: skip


@contextmanager
def _workers() -> Iterator[None]:
    from torch.utils.data import DataLoader, IterableDataset

    original = DataLoader.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        # The number of workers is the sixth parameter, after dataset, batch_size, shuffle,
        # sampler and batch_sampler.
        given = len(args) > 4 or kwargs.get("num_workers")
        # Each worker would repeat what an iterable data set yields.
        if not given and not isinstance(dataset, IterableDataset):
            changed("loader_workers")
            kwargs.update(num_workers=workers_wanted(usable_processors()), persistent_workers=True)
        original(self, dataset, *args, **kwargs)

    with attribute(DataLoader, "__init__", init):
        yield


def _consider_pinned(facts: Facts) -> Considered:
    if not facts.on_gpu:
        return RuledOut("nothing is copied to a device")
    nothing = too_little(facts, "memory.copies", "overhead.synchronisation")
    if nothing is not None:
        return nothing
    if facts.loaders and all(loader.pins for loader in facts.loaders):
        return RuledOut("the DataLoader pins its memory already")
    if facts.counters.get("pageable_copies") == 0:
        return RuledOut("nothing is copied from or to pageable memory")
    copies_s = facts.leaf_s("memory.copies")
    waiting_s = facts.leaf_s("overhead.synchronisation")
    because = f"exposed copies from pageable memory take {time_text(copies_s)} per step"
    staged, rate = facts.counters.get("staged_bytes"), facts.rate("copy.h2d")
    if staged is None or rate is None:
        # How fast it would be copied is unknown: between no faster and at once.
        because += "; how fast pinned memory would be copied here is unknown"
        return prospect_or_not(facts, 0.0, 0.5 * copies_s, copies_s + waiting_s, because)
    # Copies that other work hides save nothing; what is left of them takes what the link does.
    now_s = min(copies_s, facts.counters["staged_copies_s"])
    pinned_s = staged / rate
    faster_s = max(now_s - pinned_s, 0.0)
    # The call that stages a copy holds its host up: then the device waits for that.
    late_s = min(facts.counters["idle_after_staging_s"], facts.host_overhead_s)
    return prospect_or_not(
        facts, 0.7 * faster_s, faster_s + 0.5 * late_s, copies_s + max(waiting_s, late_s),
        f"{because}, {si(staged, 'B')} of them to the device in {time_text(now_s)}; from pinned "
        f"memory at {si(rate, 'B/s')} that takes {time_text(pinned_s)}, and the host, which does "
        f"not wait for it, no longer makes the device wait up to {time_text(late_s)}",
    )  # fmt: skip


@contextmanager
def _pinned() -> Iterator[None]:
    import torch
    from torch.utils.data import DataLoader

    original, to = DataLoader.__init__, torch.Tensor.to

    @functools.wraps(original)
    def init(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        # It is the eighth parameter, after dataset and six others.
        if len(args) <= 6 and not kwargs.get("pin_memory"):
            changed("pinned_memory")
            kwargs["pin_memory"] = True
        original(self, dataset, *args, **kwargs)

    @functools.wraps(to)
    def to_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Only from pinned memory: the copy then keeps its place in the stream.
        if self.device.type == "cpu" and self.is_pinned():
            kwargs.setdefault("non_blocking", True)
        return to(self, *args, **kwargs)

    with attribute(DataLoader, "__init__", init), attribute(torch.Tensor, "to", to_device):
        yield


LOADER_WORKERS = Fix(
    name="loader_workers",
    title="Data loader workers",
    leaves=("overhead.data_loading",),
    may_change=(MEMORY, RANDOMNESS),
    consider=_consider_workers,
    snippet="DataLoader(dataset, ..., num_workers=4, persistent_workers=True)",
    in_script=_workers,
    changes_made=changes_of("loader_workers"),
    effect=SAME_OPS,
    in_source=(
        Keyword(
            ("DataLoader",),
            (("num_workers", f"min({MOST_WORKERS}, {PROCESSORS})"),),
            unless="num_workers",
            place=5,
            # Each worker would repeat what an iterable data set yields: the trial passes it over.
            not_beside="IterableDataset",
            # Workers that live on have the data set as it was when they were started.
            lasting=(("persistent_workers", "True"),),
            data="dataset",
            home="torch.utils.data",
            inherited=True,
            note=(
                "The script may change a data set in its loops, so persistent_workers=True, with "
                "which loader_workers was tried, is left out: the workers of each epoch have the "
                "data set as it was when the epoch began, and what they change in it is theirs."
            ),
        ),
        AfterImports(("import os",)),
    ),
)
PINNED_MEMORY = Fix(
    name="pinned_memory",
    title="Pinned memory and non-blocking copies",
    leaves=("memory.copies", "overhead.synchronisation"),
    may_change=(MEMORY,),
    consider=_consider_pinned,
    snippet=(
        "DataLoader(dataset, ..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)"
    ),
    in_script=_pinned,
    changes_made=changes_of("pinned_memory"),
    effect=SAME_OPS,
)
