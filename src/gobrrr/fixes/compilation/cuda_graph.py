"""Capture the forward pass in a CUDA graph: one launch in place of one for each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.fix import (
    CODE,
    FIRST_STEP,
    MEMORY,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.scripts import around_outermost_calls
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.names import KERNELS_COUNTED, KERNELS_OF_GRAPHS, MOSTLY_GRAPHS
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.quantities import count, time_text
from gobrrr.timeline.workload import Workload

_LEAVES = ("overhead.python", "overhead.dispatch", "overhead.launch", "overhead.kernel_gap")
# Of the gaps between queued kernels, what a graph spares. On an H200 kernels of 0.9 us that were
# queued follow each other after 1.09 us, in a graph after 0.08; of 8.6 us after 1.45 and at once
# (``gaps`` of the part ``heat``, benchmarks/results/gpu_device_nvidia-h200_2026-11-27.json).
_OF_GAPS = 0.92


def _consider(facts: Facts) -> Considered:
    if not facts.on_gpu:
        return RuledOut("a CPU has no kernel launches to capture")
    already = launched_by_graphs(facts)
    if already is not None:
        return already
    nothing = too_little(facts, *_LEAVES)
    if nothing is not None:
        return nothing
    if facts.counters.get("reads_of_one_value", 0):
        return RuledOut("the step reads values back, which a CUDA graph cannot capture")
    if facts.is_script and facts.trains:
        return RuledOut(
            "in a script only passes without gradients are captured: apply it in the script, to "
            "the module"
        )
    held_s = facts.leaf_s(*_LEAVES[:-1])
    launch_s = facts.rate("launch.latency") or 0.0
    gaps_s = facts.leaf_s(_LEAVES[-1])
    saved_s = held_s + _OF_GAPS * gaps_s - launch_s
    # What leads to kernels of graphs that are there is not told from what leads to others.
    sure = 1.0 - facts.in_graphs
    because = (
        f"the device waits {time_text(held_s)} per step for Python, dispatch and launches; a "
        f"graph is one launch of {time_text(launch_s)}"
    )
    if gaps_s > 0:
        because += (
            f"; of the {time_text(gaps_s)} between queued kernels nearly all is saved, as kernels "
            "of a graph follow each other at once"
        )
    return prospect_or_not(
        facts, 0.4 * sure * saved_s, 0.8 * sure * saved_s, saved_s, because
    )  # fmt: skip


def launched_by_graphs(facts: Facts) -> RuledOut | None:
    """That the step's kernels are those of CUDA graphs already, all but a few; else ``None``."""
    if facts.in_graphs < MOSTLY_GRAPHS:
        return None
    kernels, of_graphs = (facts.counters[n] for n in (KERNELS_COUNTED, KERNELS_OF_GRAPHS))
    return RuledOut(
        f"launches of CUDA graphs run {count(of_graphs)} of the {count(kernels)} kernels already"
    )


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    import torch

    program = as_program(work)
    if not is_module(program.model) or not isinstance(program.inputs, (tuple, list, torch.Tensor)):
        raise InputError("a CUDA graph needs a module and positional tensor inputs")
    inputs = program.inputs if isinstance(program.inputs, (tuple, list)) else (program.inputs,)
    # Copies the inputs into the graph's own, replays, and keeps autograd working.
    changed("cuda_graph")
    forward = program.model.forward
    model = _graphed(program.model, inputs)
    model.forward = _with_own_results(model.forward, forward, inputs)
    yield replace(program, model=model)


def _graphed(called: Any, inputs: Sequence[Any]) -> Any:
    """Captured where its inputs are: on the current device a graph of another's is empty."""
    import torch

    with torch.cuda.device_of(inputs[0]) if inputs else nullcontext():
        return torch.cuda.make_graphed_callables(called, tuple(inputs))


def _layout(inputs: Sequence[Any]) -> list[Any]:
    return [
        (given.shape, given.dtype, given.device) if hasattr(given, "shape") else type(given)
        for given in inputs
    ]


def _with_own_results(graphed: Any, forward: Any, example: Sequence[Any]) -> Any:
    """A graph that is replayed for inputs like those that it was captured with.

    Others would be broadcast into its own. Each replay writes to the same memory, so results are
    copied: a caller may keep them.
    """
    import torch

    wanted = _layout(example)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or _layout(args) != wanted:
            return forward(*args, **kwargs)
        return map_tensors(graphed(*args), torch.Tensor.clone)

    return call


@contextmanager
def _in_script() -> Iterator[None]:
    import torch

    graphed: dict[int, Any] = {}

    def call(module: Any, original: Any, args: Any, kwargs: Any) -> Any:
        shapes = tuple(getattr(arg, "shape", None) for arg in args)
        records = torch.is_grad_enabled()
        if records or kwargs or None in shapes or next(module.parameters(), None) is None:
            return original(module, *args, **kwargs)
        key = hash((id(module), shapes, module.training))
        if key not in graphed:
            changed("cuda_graph")
            made = _graphed(module.forward, args)
            graphed[key] = _with_own_results(made, module.forward, args)
        return graphed[key](*args)

    with around_outermost_calls(call):
        yield


CUDA_GRAPH = Fix(
    name="cuda_graph",
    title="Capture the forward pass in a CUDA graph",
    leaves=_LEAVES,
    may_change=(MEMORY, FIRST_STEP),
    consider=_consider,
    snippet="model = torch.cuda.make_graphed_callables(model, (example_input,))\n"
    "output = model(batch).clone()  # the next call writes to the same memory",
    apply=_apply,
    in_script=_in_script,
    changes_made=changes_of("cuda_graph"),
    claims=(CODE,),
)
