"""The kernels that the fusion rules expect, beside those that Inductor makes here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.prediction.inductor_kernels import InductorKernel, InductorResult, inductor_kernels
from gobrrr.roofline.compiled import CompiledKernel, compiled_kernels
from gobrrr.roofline.dataflow import link
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.nested import nested_tensors
from gobrrr.timeline.quantities import si
from gobrrr.timeline.workload import Workload
from gobrrr.work.traffic import is_inplace


@dataclass(frozen=True, slots=True)
class FusionComparison:
    """What was expected of a compiler and what it did.

    Attributes:
        expected: kernels by the rules of ``roofline.compiled``.
        made: kernels that Inductor scheduled.
        bytes_eager: bytes that the operators move one by one; ``None`` if one is unknown.
        bytes_expected: by the expected kernels, library calls included; ``None`` if unknown.
        bytes_made: by Inductor's own count; ``None`` if it does not know one.
        breaks: what kept the compiler from fusing more, as sentences.
    """

    expected: tuple[CompiledKernel, ...]
    made: tuple[InductorKernel, ...]
    bytes_eager: int | None
    bytes_expected: int | None
    bytes_made: int | None
    breaks: tuple[str, ...]

    @property
    def fused_expected(self) -> int:
        """Expected kernels that are no library calls."""
        return sum(_is_generated(kernel) for kernel in self.expected)

    @property
    def fused_made(self) -> int:
        """Generated kernels that Inductor scheduled."""
        return sum(not kernel.extern for kernel in self.made)

    def sentence(self) -> str:
        """The comparison in words."""
        text = (
            f"torch.compile makes {self.fused_made} generated kernels and "
            f"{len(self.made) - self.fused_made} library calls; the fusion rules expected "
            f"{self.fused_expected} and {len(self.expected) - self.fused_expected}"
        )
        if self.bytes_made is not None and self.bytes_expected is not None:
            made, expected = si(self.bytes_made, "B"), si(self.bytes_expected, "B")
            text += f". It moves {made}, expected {expected}"
            if self.bytes_eager is not None:
                text += f", eager {si(self.bytes_eager, 'B')}"
        return text + "."


def compare_with_inductor(function: Callable[[], Any]) -> FusionComparison:
    """Record a callable without arguments, predict its kernels, and compile it here.

    The callable runs three times (recorded, traced, compiled); its side effects are the caller's.

    Raises:
        InputError: this PyTorch cannot compile here.
    """
    recorder = OpRecorder()
    with recorder:
        result = function()
    ops = recorder.stop()
    # The result lives on: storages of the ops that made it are kept.
    expected = tuple(compiled_kernels(ops, _storages(result), channels_last=False))
    made = inductor_kernels(function)
    works = [op.work for op in link(ops).ops]
    eager = [None if work is None else work.bytes_moved for work in works]
    planned = [None if k.work is None else k.work.bytes_moved for k in expected]
    return FusionComparison(
        expected=expected,
        made=made.kernels,
        bytes_eager=_total(eager),
        bytes_expected=_total(planned),
        bytes_made=_total([kernel.bytes_moved for kernel in made.kernels]),
        breaks=what_broke(ops, made),
    )


def comparison_notices(work: Workload | Callable[[], Any]) -> list[str]:
    """The comparison of a target's forward (a callable: of all of it) as sentences.

    A compiler that fails here is a sentence too: the diagnosis does not need it.
    """
    import torch

    def forward() -> Any:
        if not isinstance(work, Workload):
            return work()
        with torch.set_grad_enabled(work.trains):
            return work.forward()

    try:
        found = compare_with_inductor(forward)
    except InputError as error:
        return [f"Not compared with torch.compile: {error}."]
    return [found.sentence(), *found.breaks]


def what_broke(ops: list[StepOp], made: InductorResult) -> tuple[str, ...]:
    """Why a compiler fused less than it could have: graph breaks, mutation, copies of views."""
    found = [f"Graph break: {reason}" for reason in made.breaks]
    written: dict[str, int] = {}
    copies: dict[str, int] = {}
    own: set[int | None] = set()
    for op in ops:
        outputs = op.call.outputs or ()
        first = op.call.tensors[0] if op.call.tensors else None
        if is_inplace(op.call) and first is not None and first.storage not in own:
            written[op.source] = written.get(op.source, 0) + 1
        if op.call.name in ("aten::clone", "aten::contiguous") and first is not None:
            copies[op.source] = copies.get(op.source, 0) + 1
        own |= {spec.storage for spec in outputs}
    for line, count in written.items():
        found.append(
            f"Mutation: {count} in-place writes to tensors from outside"
            f"{f' at {line}' if line else ''}; each is copied back at the end."
        )
    for line, count in copies.items():
        found.append(
            f"Views: {count} copies into another layout{f' at {line}' if line else ''}; "
            "a library call that cannot read a view as it is ends the fused kernel."
        )
    return tuple(found)


def _is_generated(kernel: CompiledKernel) -> bool:
    return kernel.call.name.startswith("triton_")


def _storages(result: Any) -> set[int]:
    return {int(tensor.untyped_storage()._cdata) for tensor in nested_tensors(result)}


def _total(amounts: list[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None
