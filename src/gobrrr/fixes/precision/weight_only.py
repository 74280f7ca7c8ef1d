"""Weights in int8 for decoding at batch 1: a quarter of the bytes that each token streams."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import BeforeLoop
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    UNBOUNDED,
    WEIGHTS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.scripts import before_first_call
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload


def _consider(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("int8 weights cannot be trained")
    if importlib.util.find_spec("torchao") is None:
        return RuledOut("it needs torchao: pip install torchao")
    products = [op for op in facts.ops if (op.matrix_flops or 0.0) > 0 and op.bytes_moved]
    bound = [op for op in products if (op.matrix_flops or 0.0) < 20 * (op.bytes_moved or 0.0)]
    if not bound:
        return RuledOut("no matrix product is bound by reading its weights")
    time_s = sum(op.kernel_s for op in bound)
    roof_s = sum(op.roof_s or 0.0 for op in bound)
    return prospect_or_not(
        facts, -0.5 * time_s, 0.5 * roof_s, 0.75 * time_s,
        f"{len(bound)} products take {time_text(time_s)} to stream float32 weights; int8 is a "
        "quarter of the bytes",
    )  # fmt: skip


def _quantise(module: Any) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(module, Int8WeightOnlyConfig())
    changed("int8_weights")


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    _quantise(work.model)
    yield work


INT8_WEIGHTS = Fix(
    name="int8_weights",
    title="Weights stored in int8 (torchao)",
    leaves=("memory.device.roof", "memory.device.below"),
    may_change=(NUMERICS, MEMORY),
    consider=_consider,
    snippet="torchao.quantization.quantize_(model, Int8WeightOnlyConfig())",
    apply=_apply,
    in_script=partial(before_first_call, _quantise),
    changes_made=changes_of("int8_weights"),
    in_source=(
        BeforeLoop(
            (
                "from torchao.quantization import Int8WeightOnlyConfig, quantize_",
                "quantize_({model}, Int8WeightOnlyConfig())",
            )
        ),
    ),
    effect=UNBOUNDED,
    claims=(WEIGHTS,),
    only_if_asked="changes the results",
)
