"""``generate`` of transformers without its cache: a setting that training scripts leave behind."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.advice import prefix_computed_again
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import Keyword
from gobrrr.fixes.fix import MEMORY, UNBOUNDED, Considered, Fix, RuledOut
from gobrrr.fixes.programs import with_setting
from gobrrr.timeline.workload import Workload


def _consider(facts: Facts) -> Considered:
    if find_spec("transformers") is None:
        return RuledOut("transformers is not installed")
    return prefix_computed_again(facts)


@contextmanager
def _with_cache() -> Iterator[None]:
    """Inside, every ``generate`` keeps keys and values, whatever its arguments and config say."""
    from transformers.generation.utils import GenerationMixin

    original = GenerationMixin.generate

    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed("generate_cache")
        return original(self, *args, **{**kwargs, "use_cache": True})

    GenerationMixin.generate = generate
    try:
        yield
    finally:
        GenerationMixin.generate = original


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    yield with_setting(work, _with_cache)


GENERATE_CACHE = Fix(
    name="generate_cache",
    title="generate() with its KV cache",
    leaves=("compute.matrix.roof", "compute.matrix.below", "memory.device.roof"),
    may_change=(MEMORY,),
    consider=_consider,
    snippet="model.generate(..., use_cache=True)  # without model.config.use_cache = False",
    apply=_apply,
    in_script=_with_cache,
    changes_made=changes_of("generate_cache"),
    in_source=(Keyword(("generate",), (("use_cache", "True"),), one_owner=True),),
    effect=UNBOUNDED,
)
