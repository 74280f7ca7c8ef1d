"""An attribution as tracks over its trace: who owned each instant, and why the device was idle."""

from __future__ import annotations

import numpy as np

from gobrrr.attribution.device import DeviceAttribution
from gobrrr.attribution.idle import CAUSE_LEAVES
from gobrrr.attribution.leaves import ROOF_LEAF
from gobrrr.capture.trace_export import Track
from gobrrr.timeline.data import Timeline


def tracks_of(timeline: Timeline, found: DeviceAttribution) -> tuple[Track, ...]:
    """Three tracks: step windows, regimes of what ran, causes of idleness."""
    names, host = timeline.names, timeline.host
    regime = found.attribution.kernels.regime[found.owned.row]
    row = found.owned.row.tolist()
    details = []
    for kernel in row:
        roof, work = found.work.roofs[kernel], found.work.works[kernel]
        detail: dict[str, object] = {"kernel": names[timeline.kernels.name[kernel]]}
        if work is not None:
            detail |= {"flops": work.flops, "bytes": work.bytes_moved}
        if roof is not None:
            detail["roof (us)"] = round(roof.time_s * 1e6, 3)
        details.append(detail)
    causes = [CAUSE_LEAVES[cause] for cause in found.idle.cause.tolist()]
    source = np.where(found.idle.span >= 0, host.source[found.idle.span] if len(host) else -1, -1)
    lines = [{"line": names[s]} if s >= 0 else {} for s in source.tolist()]
    return (
        Track("steps", timeline.steps[:, 0], timeline.steps[:, 1], timeline.step_names),
        Track(
            "bound by",
            found.owned.start,
            found.owned.end,
            [ROOF_LEAF[r].removesuffix(".roof") for r in regime.tolist()],
            details,
        ),
        Track("idle because of", found.idle.start_ns, found.idle.end_ns, causes, lines),
    )
