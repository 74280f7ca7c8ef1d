"""Samples that are fetched one by one and stacked, where a batch could be indexed at once."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import loader_lines
from gobrrr.diagnosis.facts import Facts, LoaderFact
from gobrrr.timeline.quantities import percent, time_text

# Of a smaller batch there is little to be saved.
_SMALLEST_BATCH = 4
# Of the step; a loader that takes less is in nobody's way.
_WORTH_IT = 0.1


def _is_one(loader: LoaderFact) -> bool:
    return (
        not loader.workers
        and loader.in_memory
        and loader.only_indexes
        and not loader.fetches_batches
        and not loader.collates
        and (loader.batch_size or 0) >= _SMALLEST_BATCH
    )


def is_fetched_by_sample(facts: Facts) -> bool:
    """Whether the data that steps wait for is in memory, and merely indexed sample by sample."""
    return bool(facts.loaders) and all(map(_is_one, facts.loaders))


def _find(facts: Facts) -> Found | None:
    loading_s = facts.loading_s
    if loading_s < _WORTH_IT * facts.step_s or not is_fetched_by_sample(facts):
        return None
    loader = max(facts.loaders, key=lambda one: one.batch_size or 0)
    batch = loader.batch_size or 1
    # What one sample takes is left: the batch becomes one fetch of the same kind, of more bytes.
    left_s = loading_s / batch
    return saves(
        f"{loader.dataset} holds its samples in memory, and each step fetches {batch} of them one "
        f"by one and stacks them: {time_text(loading_s)} of the step "
        f"({percent(loading_s / facts.step_s)}), {time_text(left_s)} for each sample",
        loader_lines(facts),
        0.3 * loading_s, 0.7 * (loading_s - left_s), loading_s - left_s,
    )  # fmt: skip


SAMPLE_BY_SAMPLE = Cause(
    name="sample_by_sample",
    title="the data set is read sample by sample where a batch could be indexed at once "
    "(__getitems__, BatchSampler)",
    words=("__getitems__", "BatchSampler", "TensorDataset slow", "DataLoader slow for tensors"),
    find=_find,
    remedy="DataLoader(dataset, batch_size=None, "
    "sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False))",
)
