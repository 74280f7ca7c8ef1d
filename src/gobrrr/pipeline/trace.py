"""Diagnose recorded traces: the same object as a live run, without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gobrrr.attribution.recorded import no_work, recorded_step
from gobrrr.causes.naming import name_causes
from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.environment import recorded_environment
from gobrrr.diagnosis.fusion.sources import add_recorded_fusion
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.live.profiles.device_profile import steps_of_device
from gobrrr.recordings.records import refuse_senseless_steps
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError

PathLike = str | os.PathLike[str]


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
    idleness as tracks; of several, the first steps of all ranks as one trace on one clock.

    Raises InputError for a file that holds no device work that can be diagnosed, for files that are
    not one of each rank of one run, and for a copy that cannot be written.
    """
    files = [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(p) for p in paths]
    if not files:
        raise InputError("no trace was given; give one, or one per rank")
    if len(files) == 1:
        return _diagnose_one(steps_of_device(read_trace(files[0])), files[0], ceilings, perfetto)
    # Not above: one trace is read in a fraction of a second, and has no use for process pools.
    from concurrent.futures.process import BrokenProcessPool

    from gobrrr.diagnosis.ranks import diagnose_ranks
    from gobrrr.recordings.ranks import read_traces

    try:
        timelines = read_traces(files)
    except BrokenProcessPool:
        raise InputError(
            f"a process that read one of the {len(files)} traces was ended by the system, most "
            "likely because memory ran out; give fewer at once, or gobrrr fleet, which bounds it"
        ) from None
    for timeline in timelines:
        if len(timeline.kernels) == 0:
            raise no_work(timeline.source)
        refuse_senseless_steps(timeline)
    return diagnose_ranks(
        timelines,
        [_ceilings_of(timeline, ceilings) for timeline in timelines],
        recorded_environment(timelines[0]),
        perfetto,
    )


def _diagnose_one(
    timeline: Timeline, path: Path, ceilings: Ceilings | None, perfetto: PathLike | None
) -> Diagnosis:
    source: dict[str, Any] = {"kind": "trace", "name": path.name}
    if timeline.rank is not None:
        source["rank"], source["world_size"] = timeline.rank, timeline.world_size
    known = _ceilings_of(timeline, ceilings)
    ran = recorded_step(timeline, known)
    diagnosis = assemble(ran.step, source=source, environment=recorded_environment(timeline))
    add_recorded_fusion(diagnosis, ran)
    name_causes(diagnosis)
    if perfetto is not None:
        from gobrrr.recordings.export import write_with_tracks

        write_with_tracks(path, perfetto, ran.tracks())
    return diagnosis


def _ceilings_of(timeline: Timeline, given: Ceilings | None) -> Ceilings | None:
    name = timeline.device.name
    return ceilings_from_datasheet(name) if given is None and name else given
