"""A captured step on one device or on a mesh, or why the device cannot run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr.attribution.attributed import Attributed
from gobrrr.prediction.graph_step import graph_step
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.step import mesh_step
from gobrrr.prediction.options import PredictOptions
from gobrrr.prediction.step.costs import CostedOp, NoPathError
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.timeline.graph import OpGraph

# Devices that cannot run a step, each with the reason.
Refused = list[tuple[str, str]]


def step_on(
    graph: OpGraph,
    device: TargetDevice,
    host: HostCosts,
    options: PredictOptions,
    *,
    name: str,
    refused: Refused | None = None,
) -> tuple[Attributed, Sequence[CostedOp], dict[str, Any]] | None:
    """The step, its ops with their costs, and what its diagnosis's source says of it.

    ``None``: the device has no path for a dtype of the step; ``refused`` takes it with the reason.

    Raises:
        NoPathError: the same, without ``refused``.
        InputError: a step without an op.
    """
    try:
        if options.mesh is None:
            return graph_step(graph, device, host, options, name=name)
        return mesh_step(graph, device, host, options.mesh, name=name)
    except NoPathError as error:
        if refused is None:
            raise
        refused.append((device.key, str(error)))
        return None
