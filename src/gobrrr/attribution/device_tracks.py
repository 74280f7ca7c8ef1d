"""An attribution as tracks over its trace: who owned each instant, and why the device was idle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr.attribution.cpu.attribute import CpuAttribution
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.idle import CAUSE_LEAVES
from gobrrr.attribution.lane import KERNEL, LEAF_OF_OWNER
from gobrrr.attribution.leaves import MEMORY_UNMODELLED, ROOF_LEAF
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.recordings.export import Track
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import Int64, Timeline
from gobrrr.work.estimate import Work


def tracks_of(timeline: Timeline, found: DeviceAttribution) -> tuple[Track, ...]:
    """Three tracks: step windows, regimes of what ran, causes of idleness."""
    names, host = timeline.names, timeline.host
    regime = found.attribution.kernels.regime[found.owned.row]
    row = found.owned.row.tolist()
    details = [
        _detail(
            names[timeline.kernels.name[kernel]], found.work.works[kernel], found.work.roofs[kernel]
        )
        for kernel in row
    ]
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


def tracks_of_lane(
    capture: CpuCapture, works: Sequence[Work | None], result: CpuAttribution
) -> tuple[Track, ...]:
    """The same three tracks of a CPU step."""
    timeline = capture.timeline
    names, host = timeline.names, timeline.host
    shares = result.attribution.kernels
    regime_of = np.full(len(capture.recorded) + 1, MEMORY_UNMODELLED, np.int64)
    known = shares.kernel >= 0
    regime_of[shares.kernel[known]] = shares.regime[known]
    edges: dict[bool, list[tuple[Int64, Int64]]] = {True: [], False: []}
    regimes: list[str] = []
    causes: list[str] = []
    details: list[dict[str, object]] = []
    lines: list[dict[str, object]] = []
    for (low, _), step in zip(timeline.steps.tolist(), result.steps):
        runs = step.piece_owner == KERNEL
        for chosen in (runs, ~runs):
            edges[chosen is runs].append(
                (step.piece_start_ns[chosen] + low, step.piece_end_ns[chosen] + low)
            )
        for row in step.piece_row[runs].tolist():
            op = int(capture.position[row])
            regimes.append(ROOF_LEAF[regime_of[op]].removesuffix(".roof"))
            work, roof = (works[op], result.roofs[op]) if op >= 0 else (None, None)
            details.append(_detail(names[host.name[row]], work, roof))
        for owner, row in zip(step.piece_owner[~runs].tolist(), step.piece_row[~runs].tolist()):
            causes.append(LEAF_OF_OWNER[owner])
            source = int(host.source[row]) if row >= 0 else -1
            lines.append({"line": names[source]} if source >= 0 else {})
    starts, ends = zip(*[_joined(edges[runs]) for runs in (True, False)])
    return (
        Track("steps", timeline.steps[:, 0], timeline.steps[:, 1], timeline.step_names),
        Track("bound by", starts[0], ends[0], regimes, details),
        Track("idle because of", starts[1], ends[1], causes, lines),
    )


def _joined(edges: list[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    return np.concatenate([low for low, _ in edges]), np.concatenate([high for _, high in edges])


def _detail(kernel: str, work: Work | None, roof: Roof | None) -> dict[str, object]:
    detail: dict[str, object] = {"kernel": kernel}
    if work is not None:
        detail |= {"flops": work.flops, "bytes": work.bytes_moved}
    if roof is not None:
        detail["at the ceiling (us)"] = round(roof.time_s * 1e6, 3)
    return detail
