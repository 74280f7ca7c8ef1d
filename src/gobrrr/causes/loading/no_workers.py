"""Data that the main process loads while the step waits: ``num_workers``."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.loading import image_decoding
from gobrrr.causes.loading.sample_by_sample import is_fetched_by_sample
from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.data_loading import LOADER_WORKERS
from gobrrr.fixes.fix import Prospect

# Where the loading takes less of the step, nobody would call the loader its cause.
_DOMINATES = 0.25
# Of the wall time: images that take as much are the cause.
_OF_DECODING = 0.1


def _find(facts: Facts) -> Found | None:
    loading_s = facts.loading_s
    if loading_s < _DOMINATES * facts.step_s or is_fetched_by_sample(facts):
        return None
    decodes = image_decoding.find(facts)
    if decodes is not None and (decodes.wall_expected or 0.0) >= _OF_DECODING:
        # Named by what it is.
        return None
    found = LOADER_WORKERS.considered(facts)
    if not isinstance(found, Prospect) or found.expected_s <= 0:
        return None
    high_s = min(found.high_s, loading_s)
    because = found.because
    if any(loader.iterable for loader in facts.loaders):
        because += (
            "; its data set is iterable, and yields each sample once per worker unless each worker "
            "takes its own part (torch.utils.data.get_worker_info())"
        )
    return saves(because, found.sources[:3], found.low_s, found.expected_s, high_s)


NO_WORKERS = Cause(
    name="no_loader_workers",
    title="data is loaded in the main process while the step waits (num_workers=0)",
    words=("num_workers", "DataLoader bottleneck", "GPU waits for data", "data loading slow"),
    find=_find,
    remedy="DataLoader(..., num_workers=4, persistent_workers=True)",
    verified_by="loader_workers",
)
