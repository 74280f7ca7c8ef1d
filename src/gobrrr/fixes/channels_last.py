"""Channels-last memory format for convolutions: no reordering on the way in and out of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.fusion.groups import seconds_to_move
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import BeforeLoop, on_inputs
from gobrrr.fixes.fix import NUMERICS, RANDOMNESS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.scripts import before_first_call
from gobrrr.fixes.spread import KERNELS
from gobrrr.timeline.names import LAYOUT_KERNELS_S
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload

_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward", "aten::mkldnn_convolution")
# Ops that work channel by channel or over windows, which vectorise when channels are innermost.
_WINDOWED = ("pool", "upsample", "batch_norm", "group_norm")
# Share of what these miss their roof by that the other layout wins: low, expected, high. Some have
# no fast kernel for NCHW on a CPU. Measured with torch 2.13 on one Zen 4 core, 4 images of 32
# channels, 96 x 96: 8 groups took 21.9 ms and 6.7 ms channels-last, max pooling 55.9 and 4.0 ms.
_OF_BELOW, _OF_SLOW = (-0.1, 0.3, 0.8), (0.3, 0.85, 0.95)
# Of the time that a GPU's library spends on laying out images inside convolutions, what is saved:
# low, expected. What is left lays out the step's input, and what some op makes in NCHW. Assumed.
_OF_LAYOUTS = (0.5, 0.95)
POOLS = ("aten::max_pool2d_with_indices", "aten::max_pool2d", "aten::adaptive_max_pool2d")


def convolutions_of(facts: Facts) -> list[OpFact]:
    """The 2-d convolutions."""
    return [op for op in facts.named(*_CONVOLUTIONS) if op.shapes and len(op.shapes[0]) == 4]


def in_groups(op: OpFact) -> bool:
    """Whether a convolution sees a part of its input's channels only."""
    backward = op.name.endswith("backward")
    image, weight = op.shapes[1:3] if backward else op.shapes[:2]
    return len(weight) == 4 and image[1] > weight[1]


def slow_in_nchw_s(facts: Facts, *, pools: bool = True) -> float:
    """Seconds below their roofs of ops that have no fast NCHW kernel on a CPU.

    Without ``pools`` of convolutions alone, for which a compiler calls a library as well.
    """
    if facts.on_gpu or facts.input_channels_last:
        return 0.0
    grouped = [op for op in convolutions_of(facts) if in_groups(op)]
    return sum(op.below_s or 0.0 for op in (*grouped, *(facts.named(*POOLS) if pools else ())))


def _consider(facts: Facts) -> Considered:
    convolutions = convolutions_of(facts)
    if not convolutions:
        return RuledOut("no 2-d convolution runs here")
    if facts.input_channels_last:
        return RuledOut("the inputs are channels-last already")
    if not facts.modules:
        return RuledOut("gobrrr sees no module to convert: give (module, inputs)")
    layouts_s = facts.counters.get(LAYOUT_KERNELS_S)
    if layouts_s is not None:
        return _without_layouts(facts, convolutions, layouts_s)
    reorders = seconds_to_move(facts, 2 * sum(op.bytes_moved or 0.0 for op in convolutions)) or 0.0
    windowed = [op for op in facts.ops if any(part in op.name for part in _WINDOWED)]
    slow_s = slow_in_nchw_s(facts)
    below_s = sum(op.below_s or 0.0 for op in (*convolutions, *windowed))
    reorders = min(reorders, 0.5 * sum(op.below_s or 0.0 for op in convolutions))
    savings = [
        share * (below_s - slow_s) + _OF_SLOW[i] * slow_s + reorders * (0.0, 0.3, 0.6)[i]
        for i, share in enumerate(_OF_BELOW)
    ]
    time_s = sum(op.time_s for op in convolutions)
    return prospect_or_not(
        facts, savings[0], savings[1], savings[2],
        f"{len(convolutions)} convolutions of NCHW tensors take {time_text(time_s)}; with "
        f"pooling and normalisation they take {time_text(below_s)} longer than at the ceilings, "
        f"and layout conversions around convolutions take up to {time_text(reorders)}",
    )  # fmt: skip


def _without_layouts(facts: Facts, convolutions: list[OpFact], layouts_s: float) -> Considered:
    """Of convolutions in 16 bits and TF32, which compute in NHWC whatever they are given."""
    time_s = sum(op.time_s for op in convolutions)
    others_s = max(min(facts.leaf_s("compute.matrix.below"), time_s) - layouts_s, 0.0)
    return prospect_or_not(
        facts, _OF_LAYOUTS[0] * layouts_s, _OF_LAYOUTS[1] * layouts_s, layouts_s + others_s,
        f"{len(convolutions)} convolutions of NCHW tensors take {time_text(time_s)}, of it "
        f"{time_text(layouts_s)} in kernels that convert their tensors to NHWC and back",
        own_ends=True,
    )  # fmt: skip


def _convert(value: Any) -> Any:
    import torch

    def to_channels_last(tensor: Any) -> Any:
        if tensor.dim() != 4 or tensor.is_contiguous(memory_format=torch.channels_last):
            return tensor
        changed("channels_last")
        return tensor.contiguous(memory_format=torch.channels_last)

    return map_tensors(value, to_channels_last)


def _lay_out(module: Any) -> None:
    """Its weights channels-last, and what it is called with on the way in."""
    import torch

    laid_out = [p for p in module.parameters() if p.dim() == 4]
    before = sum(p.is_contiguous(memory_format=torch.channels_last) for p in laid_out)
    module.to(memory_format=torch.channels_last)
    changed("channels_last", len(laid_out) - before)
    module.register_forward_pre_hook(
        lambda _, args, kwargs: (_convert(args), _convert(kwargs)), with_kwargs=True
    )


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    program = as_program(work)
    if is_module(program.model):
        _lay_out(program.model)
        yield program
    else:
        yield replace(program, inputs=_convert(program.inputs))


CHANNELS_LAST = Fix(
    name="channels_last",
    judged_with=KERNELS,
    title="Channels-last convolutions",
    leaves=("compute.matrix.below", "memory.device.below", "memory.device.roof",
            "compute.vector.below"),
    # Masks of dropout are drawn in the order of memory.
    may_change=(NUMERICS, RANDOMNESS),
    consider=_consider,
    snippet=(
        "model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)"
    ),
    apply=_apply,
    in_script=partial(before_first_call, _lay_out),
    changes_made=changes_of("channels_last"),
    in_source=(
        BeforeLoop(
            (
                "{model}.to(memory_format=torch.channels_last)",
                on_inputs(
                    "t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t"
                ),
            )
        ),
    ),
)  # fmt: skip
