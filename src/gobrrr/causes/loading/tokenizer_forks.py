"""Tokenizers that are used before workers are forked, and go on with one thread or none."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found
from gobrrr.causes.noted import loader_lines
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import percent, time_text

# Of the step; where it waits less, workers are fast enough.
_WAITS = 0.03


def _find(facts: Facts) -> Found | None:
    program = facts.program
    loading_s = facts.leaf_s("overhead.data_loading")
    workers = max((loader.workers for loader in facts.loaders if loader.tokenizes), default=0)
    if program is None or not workers or loading_s < _WAITS * facts.step_s:
        return None
    if "TOKENIZERS_PARALLELISM" in program.environment:
        return None
    return Found(
        f"{workers} loader workers use a tokenizer whose threads nobody has set: one that was used "
        "before they were forked loses its threads in them, with a warning, and others share the "
        f"processors with the step; each step waits {time_text(loading_s)} for data "
        f"({percent(loading_s / facts.step_s)})",
        loader_lines(facts),
    )


TOKENIZER_FORKS = Cause(
    name="tokenizer_forks",
    title="tokenizers were used in parallel before workers were forked (TOKENIZERS_PARALLELISM)",
    words=("TOKENIZERS_PARALLELISM", "The current process just got forked, after parallelism"),
    find=_find,
    remedy="os.environ['TOKENIZERS_PARALLELISM'] = 'false' before the workers start, or texts "
    "tokenized once beforehand",
)
