"""Loader workers that hand over what the main process could index itself: fewer of them."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import loader_lines
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import count, percent, time_text

# Fetching a sample by index and stacking it took 2.8 and 4.0 us of processor time in batches of 128
# and 32 (torch 2.13, a Xeon with AVX-512, a TensorDataset of two columns). Twice as much is
# allowed for, of slower processors and more columns.
_PER_SAMPLE_S = 8e-6
# One thread copies into fresh pages: a fault of 2 us for each 4 KiB, and 5 GB/s.
_PER_BYTE_S = 0.7e-9


def _find(facts: Facts) -> Found | None:
    loading_s = facts.leaf_s("overhead.data_loading")
    loaders = [one for one in facts.loaders if one.workers]
    if loading_s <= 0 or not loaders:
        return None
    if not all(o.in_memory and o.only_indexes and not o.collates for o in loaders):
        return None
    loader = max(loaders, key=lambda one: one.workers)
    if loader.sample_bytes is None:
        return None
    each_s = _PER_SAMPLE_S + _PER_BYTE_S * loader.sample_bytes
    here_s = (loader.batch_size or 1) * each_s
    if here_s >= loading_s:
        return None
    return saves(
        f"{count(loader.workers)} workers index {loader.dataset}, whose samples are in memory, and "
        f"hand each batch over through shared memory; each step waits {time_text(loading_s)} for "
        f"it ({percent(loading_s / facts.step_s)}), and indexing in the main process takes about "
        f"{time_text(here_s)}",
        loader_lines(facts),
        0.0, loading_s - here_s, loading_s,
    )  # fmt: skip


WORKERS_IN_MEMORY = Cause(
    name="workers_for_memory",
    title="loader workers fetch what is in memory already (num_workers=0)",
    words=("num_workers=0 faster", "DataLoader workers slower", "TensorDataset num_workers"),
    find=_find,
    remedy="DataLoader(..., num_workers=0), or index the tensors by batch",
)
