"""What a program computed, small enough to send: losses, and a sketch of each tensor.

A tensor of more than ``BUCKETS`` elements is folded into that many sums with random signs (a count
sketch: M. Charikar, K. Chen, M. Farach-Colton, *Finding frequent items in data streams*, 2004).
The fold is linear and keeps L2 norms in expectation, so that relative errors between two sketches
are those between the tensors, within about ten percent of themselves. Scaled to the tensor's root
mean square.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from gobrrr.verification.evaluation import Evaluation

BUCKETS = 256


def sketch(tensor: Any) -> dict[str, Any]:
    """``{"shape", "values"}``: values are float64 in base64. Does not touch the random state."""
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
    values = base64.b64encode(flat.numpy().tobytes()).decode()
    return {"shape": list(tensor.shape), "values": values}


def _signs(count: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8) * 2.0 - 1.0


def read_sketch(record: Mapping[str, Any]) -> Any:
    """The sums as a float64 tensor."""
    import torch

    raw = bytearray(base64.b64decode(record["values"]))
    return (
        torch.frombuffer(raw, dtype=torch.float64) if raw else torch.empty(0, dtype=torch.float64)
    )


def sketch_all(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Sketches by name; what is ``None`` is left out."""
    return {name: sketch(tensor) for name, tensor in tensors.items() if tensor is not None}


def record_of(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as a message."""
    return {
        "outputs": sketch_all(evaluation.outputs),
        "gradients": sketch_all(evaluation.gradients),
        "moved": sketch_all(evaluation.moved),
        "losses": list(evaluation.losses),
        "random": fingerprint(evaluation.random_after),
        "draws": evaluation.draws,
    }


def fingerprint(states: tuple[Any, ...]) -> str:
    """Random generators' states as one short string."""
    import hashlib

    return hashlib.sha256(repr(states).encode()).hexdigest()


def read_record(record: Mapping[str, Any]) -> Evaluation:
    """The inverse, with sketches for tensors: their names carry the shapes."""

    def tensors(of: str) -> dict[str, Any]:
        return {
            f"{name} {tuple(item['shape'])}": read_sketch(item) for name, item in record[of].items()
        }

    return Evaluation(
        outputs=tensors("outputs"),
        gradients=tensors("gradients"),
        losses=tuple(record["losses"]),
        moved=tensors("moved"),
        draws=bool(record["draws"]),
        random_after=(record["random"],),
    )
