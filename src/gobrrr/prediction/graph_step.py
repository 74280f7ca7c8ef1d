"""A captured step on one device, attributed as a measured one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr.attribution.attributed import Attributed
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.options import PredictOptions
from gobrrr.prediction.step.bands import band_of
from gobrrr.prediction.step.costs import CostedOp, cost_graph
from gobrrr.prediction.step.explanation import explained, uncertainty
from gobrrr.prediction.step.host_calls import begun, entered
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.in_place import zeros_written_in_place
from gobrrr.prediction.step.memory import FIXED_MEMORY, fixed_memory_bytes, memory_notice
from gobrrr.prediction.step.step import predicted_step
from gobrrr.prediction.step.torch_flags import flags_in_force
from gobrrr.timeline.collector import uncollected
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import OpGraph


@uncollected()
def graph_step(
    graph: OpGraph, device: TargetDevice, host: HostCosts, options: PredictOptions, *, name: str
) -> tuple[Attributed, Sequence[CostedOp], dict[str, Any]]:
    """The step, its ops with their costs, and what its diagnosis's source says of it.

    Raises InputError for a step without an op.
    """
    if not graph.ops:
        raise InputError("the step runs no operator: there is nothing to predict")
    if not options.compile:
        graph = zeros_written_in_place(graph)
    # Elsewhere the mode leaves kernels to be launched one by one.
    cuda_graphs = options.cuda_graphs and device.kind in ("cuda", "hip")
    costed = cost_graph(
        graph,
        device,
        flags=flags_in_force(),
        compiled=bool(options.compile),
        cuda_graphs=cuda_graphs,
    )
    notices = [*graph.notices, *costed.notices]
    too_large = memory_notice(device.key, graph.peak_memory_bytes, device.memory_bytes)
    if too_large is not None:
        notices.insert(len(graph.notices), too_large)
    band = band_of(device, bool(options.compile), costed.ops, cuda_graphs=cuda_graphs)
    source = {
        "kind": "prediction",
        "name": name,
        "device": device.key,
        "compile": bool(options.compile),
        "cuda_graphs": cuda_graphs,
        "autocast": options.autocast,
        "inference_mode": options.inference_mode,
        "channels_last": options.channels_last,
        "interval": None if band is None else [band.low, band.high],
        "interval_from": None if band is None else band.source,
        FIXED_MEMORY: None if graph.peak_memory_bytes is None else fixed_memory_bytes(graph),
        # As many of the notices, the first, say what was not known.
        "assumptions": len(graph.notices),
    }
    ops = begun(costed.ops)
    if options.compile and device.kind in ("cuda", "hip"):
        ops = entered(ops, len(graph.parameters))
    step, of_host = predicted_step(
        ops,
        device,
        host,
        band=band,
        notices=notices,
        peak_memory_bytes=graph.peak_memory_bytes,
    )
    if of_host is not None:
        source |= {"host_bound": of_host.host_bound, "host_s": of_host.total_s}
    source |= {
        "explained": explained(ops, device),
        **uncertainty(ops, device, step.step.time.median, of_host),
    }
    return step, ops, source
