"""How far measured steps on a mesh lay from predicted ones, by what the mesh divides.

The errors of a step's ops are not independent: what is wrong with a program, a host or a link is
wrong in all of its steps. So these are of whole steps, from the half of the models that constants
were fitted on, wide enough for eight of ten steps of a model left out
(benchmarks/prediction_distributed, which also says how often they hold models that nothing was
fitted on).
"""

from __future__ import annotations

from math import exp, log

from gobrrr.models.residuals import ErrorBand
from gobrrr.prediction.mesh import Mesh

SOURCE = "benchmarks/results/prediction_distributed_2026-11-24.json"
# The devices of those steps.
MEASURED_ON = ("A100-SXM-80GB", "A100-SXM-40GB")
ANY, ANOTHER_DEGREE = "any", "tensor of another degree"
# Ranks that share a layer, and stages, in the steps that constants were fitted on. Between these,
# constants of hosts and of waiting are interpolated, and steps lie further off: as far as those of
# each degree with constants of the others.
TENSOR_DEGREES, STAGES = (1, 2, 8), (1, 2, 4)
# Measured over predicted, the least and the most; ``ANY``: of all kinds together.
WHOLE_STEPS = {
    "shards on one host": (0.888, 1.127),
    "shards on several hosts": (0.995, 1.19),
    "tensor": (0.931, 1.062),
    "pipeline": (0.966, 1.287),
    ANOTHER_DEGREE: (0.746, 1.073),
    ANY: (0.93, 1.133),
}
# What is measured nowhere may be further off than what is: as of kernels with borrowed constants.
WIDER = 1.5


def kind_of(mesh: Mesh) -> str:
    """What a mesh divides, of what whole steps were measured of; ``""`` for anything else."""
    shards, alone = mesh.fsdp > 1, mesh.hosts == 1
    if shards and mesh.dp == mesh.tp == mesh.pp == 1:
        return "shards on one host" if alone else "shards on several hosts"
    if shards or not alone or mesh.tp not in TENSOR_DEGREES or mesh.pp not in STAGES:
        return ""
    if mesh.pp > 1:
        return "pipeline"
    return "tensor" if mesh.tp > 1 else ""


def measured_band(mesh: Mesh, device: str, *, compiled: bool = False) -> ErrorBand | None:
    """Where steps on such a mesh were measured to lie, as multiples of the predicted time.

    Args:
        mesh: what the step runs on.
        device: key of its data sheet.
        compiled: whether its kernels are a compiler's: no such step was measured.

    Returns:
        ``None`` where no step on this kind of mesh and device was measured.
    """
    kind = _measured_kind(mesh, compiled)
    if not kind or device not in MEASURED_ON:
        return None
    low, high = WHOLE_STEPS[kind]
    return ErrorBand(low, high, f"whole steps of this kind of mesh ({kind}), {SOURCE}")


def unmeasured_band(
    mesh: Mesh, device: str, replayed: ErrorBand, *, compiled: bool = False
) -> ErrorBand:
    """Where steps are to be expected that have no ``measured_band``; arguments as there.

    ``replayed``: what the intervals of kernels and collectives alone come to.
    """
    kind = _measured_kind(mesh, compiled)
    another = not compiled and _is_of_another_degree(mesh)
    low, high = WHOLE_STEPS[kind or (ANOTHER_DEGREE if another else ANY)]
    if kind:
        what = f"no step on {device}s"
    else:
        what = f"no {'compiled ' if compiled else ''}step on this kind of mesh ({mesh})"
        if not another:
            low, high = exp(WIDER * log(low)), exp(WIDER * log(high))
    return ErrorBand(
        min(low, replayed.low),
        max(high, replayed.high),
        f"{what} was measured: the wider of whole steps on A100s, {SOURCE}, and of "
        f"{replayed.source}",
        own=False,
    )


def _is_of_another_degree(mesh: Mesh) -> bool:
    """Whether nothing but the number of ranks that share a layer was never measured."""
    alone = mesh.fsdp == mesh.hosts == 1 and mesh.pp in STAGES
    return alone and mesh.tp not in TENSOR_DEGREES


def _measured_kind(mesh: Mesh, compiled: bool) -> str:
    return "" if compiled else kind_of(mesh)
