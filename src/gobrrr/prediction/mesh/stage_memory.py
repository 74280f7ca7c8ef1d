"""Memory of a pipeline's stage: its part of the model, for each microbatch in flight."""

from __future__ import annotations

import numpy as np

from gobrrr.prediction.mesh.memory import Levels, RankMemory, most_of
from gobrrr.prediction.mesh.pipeline import Stages
from gobrrr.timeline.graph import ModelFacts, OpGraph


def stage_memory(whole: Levels, graph: OpGraph, facts: ModelFacts, pipeline: Stages) -> RankMemory:
    """Of the stage that needs most: its part of the parameters, and activations in flight.

    An approximation: activations by the stage's part of what its forward pass makes. Gradients of
    one microbatch are there while the next one runs.

    Args:
        whole: of the step without a pipeline, one microbatch of it.
        graph: of that step, as it was divided among the stages.
        facts: of its model.
        pipeline: its stages.
    """
    stages = pipeline.options.mesh.pp
    made = [
        sum(spec.unique_bytes or 0 for at in positions for spec in graph.ops[at].call.outputs or ())
        for positions in pipeline.chunks.forward
    ]
    found = []
    for stage in range(stages):
        part = sum(made[stage::stages]) / (sum(made) or 1)
        found.append(_memory_of(stage, whole, facts, pipeline, part))
    return max(found, key=lambda each: each.peak)


def _memory_of(
    stage: int, whole: Levels, facts: ModelFacts, pipeline: Stages, part: float
) -> RankMemory:
    """Of one stage; ``part``: of what the forward pass makes, how much it does.

    Activations are there for each microbatch in flight; what the optimizer makes and drops again,
    as large as parameters are, is there once.
    """
    chunks, stages = pipeline.chunks, pipeline.options.mesh.pp
    own = [each for each in facts.parameters if chunks.of_parameter[each.storage] % stages == stage]
    total = sum(each.n_bytes for each in facts.parameters) or 1
    mine = sum(each.n_bytes for each in own) / total
    all_held = whole.by_kind()
    held = {kind: row * mine for kind, row in all_held.items()}
    of_stage = len(chunks.forward) // stages
    in_flight = all_held["activations"] * part * pipeline.ran.in_flight[stage] / of_stage
    held["activations"] = np.where(whole.passes, in_flight, held["activations"])
    gradients = sum(each.n_bytes for each in own if each.ready is not None)
    if pipeline.shards is not None:
        # Gradients whole and all parameters gathered until the last backward pass is over, and the
        # gradients of one unit on their way out.
        of_unit: dict[str, int] = {}
        for each in own:
            of_unit[each.unit] = of_unit.get(each.unit, 0) + each.n_bytes
        buffers = sum(of_unit.values()) + max(of_unit.values(), default=0)
        held["gradients"] = np.where(whole.passes, gradients, held["gradients"])
        held["buffers"] = np.where(whole.passes, buffers, held["buffers"])
    elif pipeline.options.microbatches > 1:
        held["gradients"] = np.maximum(held["gradients"], gradients)
    return most_of(held)
