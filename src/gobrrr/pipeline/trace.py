"""Diagnose recorded traces: the same object as a live run, without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr import __version__
from gobrrr.attribution.device import attribute_device
from gobrrr.attribution.device_attributed import attributed_device
from gobrrr.capture.traces import read_trace
from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.fusion_sources import add_device_fusion, add_lane_fusion
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.work import work_of

if TYPE_CHECKING:
    from gobrrr.capture.trace_export import Track

PathLike = str | os.PathLike[str]
MakeTracks = Callable[[], "tuple[Track, ...]"]


def diagnose_trace(
    paths: PathLike | Sequence[PathLike],
    *,
    ceilings: Ceilings | None = None,
    perfetto: PathLike | None = None,
) -> Diagnosis:
    """Diagnose one trace of PyTorch's profiler, or one of each rank of a run.

    ``ceilings``: of the device that the trace was recorded on; by default its data sheet's, found
    by the name in the trace. Without either there is no roofline, and a notice says so.
    ``perfetto``: also write a copy of the one trace there, with steps, regimes and causes of
    idleness as tracks.

    Raises InputError for a file that holds no device work that can be diagnosed, for files that are
    not one of each rank of one run, and for a copy that cannot be written.
    """
    files = [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(p) for p in paths]
    if not files:
        raise InputError("no trace was given; give one, or one of each rank")
    if len(files) == 1:
        return _diagnose_one(read_trace(files[0]), files[0], ceilings, perfetto)
    if perfetto is not None:
        raise InputError("tracks are added to one trace; several were given")
    # Not above: one trace is read in a fraction of a second, and has no use for process pools.
    from gobrrr.capture.trace_ranks import read_traces
    from gobrrr.pipeline.ranks import diagnose_ranks

    timelines = read_traces(files)
    for timeline in timelines:
        if len(timeline.kernels) == 0:
            raise _no_work(timeline.source)
    return diagnose_ranks(
        timelines,
        [_ceilings_of(timeline, ceilings) for timeline in timelines],
        _environment(timelines[0]),
    )


def _diagnose_one(
    timeline: Timeline, path: Path, ceilings: Ceilings | None, perfetto: PathLike | None
) -> Diagnosis:
    source: dict[str, Any] = {"kind": "trace", "name": path.name}
    if timeline.rank is not None:
        source["rank"], source["world_size"] = timeline.rank, timeline.world_size
    known = _ceilings_of(timeline, ceilings)
    if len(timeline.kernels) == 0:
        diagnosis, tracks = _of_processor(timeline, known, source)
    else:
        diagnosis, tracks = _of_device(timeline, known, source)
    if perfetto is not None:
        from gobrrr.capture.trace_export import write_with_tracks

        write_with_tracks(path, perfetto, tracks())
    return diagnosis


def _of_device(
    timeline: Timeline, ceilings: Ceilings | None, source: dict[str, Any]
) -> tuple[Diagnosis, MakeTracks]:
    found = attribute_device(timeline, ceilings, work_of)
    step = attributed_device(timeline, found, ceilings)
    diagnosis = assemble(step, source=source, environment=_environment(timeline))
    add_device_fusion(diagnosis, timeline, found, ceilings)

    def tracks() -> tuple[Track, ...]:
        from gobrrr.attribution.device_tracks import tracks_of

        return tracks_of(timeline, found)

    return diagnosis, tracks


def _of_processor(
    timeline: Timeline, ceilings: Ceilings | None, source: dict[str, Any]
) -> tuple[Diagnosis, MakeTracks]:
    # Not above: most traces are of a GPU.
    from gobrrr.attribution.cpu import attribute_cpu
    from gobrrr.attribution.cpu_attributed import attributed_trace_lane
    from gobrrr.attribution.lane_of_trace import has_cpu_work, lane_of_trace

    lane = lane_of_trace(timeline, work_of)
    if not has_cpu_work(lane):
        raise _no_work(timeline.source)
    result = attribute_cpu(lane.capture, lane.works, ceilings)
    step = attributed_trace_lane(lane, result, ceilings)
    diagnosis = assemble(step, source=source, environment=_environment(timeline))
    add_lane_fusion(diagnosis, lane.capture, result, ceilings)

    def tracks() -> tuple[Track, ...]:
        from gobrrr.attribution.device_tracks import tracks_of_lane

        return tracks_of_lane(lane.capture, lane.works, result)

    return diagnosis, tracks


def _no_work(name: str) -> InputError:
    return InputError(
        f"{name} holds no work that can be diagnosed; record it with activities=[CPU, CUDA], or "
        "diagnose the program itself: gobrrr run SCRIPT"
    )


def _ceilings_of(timeline: Timeline, given: Ceilings | None) -> Ceilings | None:
    if given is not None or not timeline.device.name:
        return given
    return ceilings_from_datasheet(timeline.device.name)


def _environment(timeline: Timeline) -> dict[str, Any]:
    return {"gobrrr": __version__, "torch": timeline.torch_version or None}
