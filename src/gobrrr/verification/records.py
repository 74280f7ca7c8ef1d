"""What a program computed, small enough to send: losses, and a sketch of each tensor.

A tensor of more than ``BUCKETS`` elements is folded into that many sums with random signs (a count
sketch: M. Charikar, K. Chen, M. Farach-Colton, *Finding frequent items in data streams*, 2004).
The fold is linear and keeps L2 norms in expectation, so that relative errors between two sketches
are those between the tensors, within about ten percent of themselves. Scaled to the tensor's root
mean square.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gobrrr.verification.evaluation import Evaluation, is_integral
from gobrrr.verification.messages import Computed, Sketch

BUCKETS = 256


def sketch(tensor: Any) -> Sketch:
    """Sums of a tensor's elements. Does not touch the random state."""
    import torch

    with torch.no_grad():
        dense = tensor.detach()
        if dense.layout != torch.strided:
            dense = dense.to_dense()
        if dense.is_complex():
            dense = torch.view_as_real(dense)
        flat = dense.reshape(-1).to(torch.float64).cpu()
        count = flat.numel()
        if count > BUCKETS:
            padded = torch.nn.functional.pad(flat * _signs(count), (0, -count % BUCKETS))
            # Neighbours go to different buckets.
            flat = padded.view(-1, BUCKETS).sum(0) * (BUCKETS / count) ** 0.5
    return Sketch(tuple(tensor.shape), flat.numpy().tobytes(), is_integral(tensor))


def _signs(count: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8) * 2.0 - 1.0


def read_sketch(made: Sketch) -> Any:
    """The sums as a float64 tensor."""
    import torch

    raw = bytearray(made.values)
    return (
        torch.frombuffer(raw, dtype=torch.float64) if raw else torch.empty(0, dtype=torch.float64)
    )


def difference(after: Sketch, before: Sketch) -> Sketch:
    """The sketch of a difference: sketches are linear."""
    moved = read_sketch(after) - read_sketch(before)
    return Sketch(after.shape, moved.numpy().tobytes())


def sketch_all(tensors: Mapping[str, Any]) -> dict[str, Sketch]:
    """Sketches by name; what is ``None`` is left out."""
    return {name: sketch(tensor) for name, tensor in tensors.items() if tensor is not None}


def record_of(evaluation: Evaluation) -> Computed:
    """An evaluation as a message."""
    return Computed(
        sketch_all(evaluation.outputs), sketch_all(evaluation.gradients),
        sketch_all(evaluation.moved), tuple(evaluation.losses),
        fingerprint(evaluation.random_after), evaluation.draws, evaluation.given,
    )  # fmt: skip


def fingerprint(states: tuple[Any, ...]) -> str:
    """Random generators' states as one short string."""
    import hashlib

    return hashlib.sha256(repr(states).encode()).hexdigest()


def read_record(made: Computed) -> Evaluation:
    """The inverse, with sketches for tensors: their names carry the shapes."""

    def named(name: str, item: Sketch) -> str:
        return f"{name} {item.shape}"

    def tensors(sketches: Mapping[str, Sketch]) -> dict[str, Any]:
        return {named(name, item): read_sketch(item) for name, item in sketches.items()}

    return Evaluation(
        outputs=tensors(made.outputs), gradients=tensors(made.gradients), losses=made.losses,
        moved=tensors(made.moved), draws=made.draws, random_after=(made.random,),
        integers=frozenset(named(*pair) for pair in made.outputs.items() if pair[1].integral),
        given=made.given,
    )  # fmt: skip
