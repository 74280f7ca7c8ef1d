"""How far measured steps on a mesh lay from predicted ones, by what the mesh divides.

The errors of a step's ops are not independent: what is wrong with a program, a host or a link is
wrong in all of its steps. So these are of whole steps of captured programs
(benchmarks/prediction_captured), from one half of the models, wide enough for eight of ten steps of
a model left out (benchmarks/intervals.py also says how often they hold the other half).

What a step's devices do and what its host does are off by different things. Where the measured
steps took longer than is predicted, they took a nearly constant multiple of the assumed host time
on every mesh (2.1 in the median, in one of ten over 2.7): the upper end of an interval is at least
that of hosts (``gobrrr.prediction.step.host.ANY_HOST``).
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

from gobrrr.prediction.kernels.residuals import ErrorBand
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions
from gobrrr.prediction.step.host import HostShare
from gobrrr.prediction.step.interval_table import FILES, INTERVALS

SOURCE = f"benchmarks/results/{FILES['WHOLE_STEPS'][0]}"
# The devices of those steps.
MEASURED_ON = ("A100-SXM-80GB", "A100-SXM-40GB")
ANY = "any"
# The most ranks that share a layer, and the most stages, in the steps that these come from.
MOST_TENSOR, MOST_STAGES = 8, 4
# Measured over predicted, the least and the most, of steps that their host does not bind; ``ANY``:
# of all kinds together.
WHOLE_STEPS = {
    name.removeprefix("WHOLE_STEPS."): (low, high)
    for name, (low, high, _) in INTERVALS.items()
    if name.startswith("WHOLE_STEPS.")
}
# What is measured nowhere may be further off than what is: as of kernels with borrowed constants.
WIDER = 1.5


def kind_of(mesh: Mesh) -> str:
    """What a mesh divides, of what whole steps were measured of; ``""`` for anything else."""
    shards, alone = mesh.fsdp > 1, mesh.hosts == 1
    if shards and mesh.dp == mesh.tp == mesh.pp == 1:
        return "shards on one host" if alone else "shards on several hosts"
    if shards or not alone or mesh.tp > MOST_TENSOR or mesh.pp > MOST_STAGES:
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
    kind = "" if compiled else kind_of(mesh)
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
    kind = "" if compiled else kind_of(mesh)
    low, high = WHOLE_STEPS[kind or ANY]
    if kind:
        what = f"no step on {device}s"
    else:
        what = f"no {'compiled ' if compiled else ''}step on this kind of mesh ({mesh})"
        low, high = exp(WIDER * log(low)), exp(WIDER * log(high))
    return ErrorBand(
        min(low, replayed.low),
        max(high, replayed.high),
        f"{what} was measured: the wider of whole steps on A100s, {SOURCE}, and of "
        f"{replayed.source}",
        own=False,
    )


def with_slow_host(
    band: ErrorBand, step_s: float, of_host: HostShare, options: MeshOptions
) -> ErrorBand:
    """The same, reaching up to the step of as slow a host as may be expected.

    Args:
        band: of what the devices do.
        step_s: as predicted.
        of_host: of a rank, all its microbatches together.
        options: the mesh; of a pipeline, stages wait for each other's hosts too.
    """
    slow_s = of_host.high_s * turns(options)
    if slow_s <= band.high * step_s:
        return band
    times = of_host.high_s / of_host.total_s
    source = f"{band.source}; above: hosts that take {times:.3g} times the assumed time"
    return replace(band, high=slow_s / step_s, source=source)


def turns(options: MeshOptions) -> float:
    """How many times as long a pipeline takes as one of its stages works; 1 without one.

    (m + p - 1) / m of m microbatches on p stages: Narayanan et al. 2021,
    https://arxiv.org/abs/2104.04473, section 2.2, without interleaving.
    """
    return 1 + (options.mesh.pp - 1) / options.microbatches
