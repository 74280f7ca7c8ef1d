"""The modules of a step: the model that was given, or those that a step of the user's own uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.gathering.reached_modules import reached_modules
from gobrrr.fixes.programs import is_module
from gobrrr.observe.op_arguments import describe_tensor
from gobrrr.timeline.workload import Workload, reached_by


def modules_of_step(facts: Facts, work: Workload) -> list[Any]:
    """Its outermost modules.

    Of those that a function can reach, the ones whose parameters or buffers one of its ops is
    given: all of them where storages were not recorded.
    """
    if is_module(work.model):
        return [work.model]
    found = reached_modules(*reached_by(work))
    used = {spec.storage for op in facts.ops for spec in op.call.tensors} - {None}
    return [m for m in found if not used or not used.isdisjoint(storages_of(tensors_of(m)))]


def tensors_of(module: Any) -> list[Any]:
    """Its parameters and buffers."""
    return [*module.parameters(), *module.buffers()]


def storages_of(tensors: Iterable[Any]) -> set[int]:
    """The storages of strided tensors, as ops name them."""
    described = map(describe_tensor, tensors)
    return {spec.storage for spec in described if spec is not None and spec.storage is not None}
