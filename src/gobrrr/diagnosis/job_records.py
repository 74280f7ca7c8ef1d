"""What the ranks of a job tell each other, and the one diagnosis that the first makes of it."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gobrrr.attribution.cpu_run import CpuAnalysis
from gobrrr.attribution.device import attribute_device
from gobrrr.attribution.device_run import Analysis, DeviceAnalysis
from gobrrr.attribution.job import compare_records
from gobrrr.attribution.job_trace import trace_of_job
from gobrrr.attribution.rank_record import (
    RankRecord,
    record_of_device,
    record_of_lane,
    spans_of_lane,
)
from gobrrr.capture.measurements import Measurements
from gobrrr.capture.rank_of_job import RankOfJob
from gobrrr.diagnosis.job import job_diagnosis
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import decode
from gobrrr.diagnosis.writing import encode
from gobrrr.timeline.files import write_output
from gobrrr.work import work_of


def diagnosis_of_job(
    rank: RankOfJob, own: Diagnosis, analysis: Analysis | None, measured: Measurements
) -> Diagnosis:
    """What all ranks have found, for the first; every other tells it, and keeps its own."""
    job = rank.job
    if job is None:
        if rank.perfetto is not None:
            _write_trace(rank.perfetto, [record_of(own, analysis, measured, 0, spans=True)])
        return own
    own.source |= {"rank": job.rank, "world_size": job.world_size}
    record = record_of(own, analysis, measured, job.rank, spans=rank.perfetto is not None)
    if rank.joined is not None:
        on_device = measured.device_timeline is not None
        record.joined_s = rank.joined.wall_s if on_device else rank.joined.monotonic_s
    record.alone = job.alone
    if job.alone:
        # In its own diagnosis; the one of the job has a sentence about all such ranks.
        own.notices.insert(0, f"Rank {job.rank} was measured on its own: {job.alone}.")
    rank.tell(record)
    if job.rank:
        return own
    said, missing = job.results()
    if rank.perfetto is not None:
        found = [msgspec.json.decode(said[i], type=RankRecord) for i in sorted(said)]
        _write_trace(rank.perfetto, [each for each in found if each.steps])
    return merge(said, missing, job.world_size) or own


def _write_trace(path: Path, records: Sequence[RankRecord]) -> None:
    if not records:
        return
    data = msgspec.json.encode(trace_of_job(records))
    write_output(path, gzip.compress(data, 6) if path.suffix == ".gz" else data)


def tell_problem(rank: RankOfJob, problem: str | None) -> None:
    """Tells the first rank why this one has no diagnosis, if it has none."""
    if rank.job is not None and problem is not None:
        rank.tell(RankRecord(rank.job.rank, "", problem=problem))


def record_of(
    own: Diagnosis,
    analysis: Analysis | None,
    measured: Measurements,
    rank: int,
    *,
    spans: bool = False,
) -> RankRecord:
    """What one rank tells of its steps, with its diagnosis; ``spans``: and what its host did."""
    host = socket.gethostname()
    timeline = measured.device_timeline
    if isinstance(analysis, DeviceAnalysis):
        # With the modules and lines that were recorded.
        timeline = analysis.capture.timeline
    if timeline is not None:
        found = attribute_device(timeline, None, work_of)
        record = record_of_device(timeline, found, rank, host)
    else:
        assert isinstance(analysis, CpuAnalysis)
        record = record_of_lane(analysis.capture, analysis.result, rank, host)
        record.spans = spans_of_lane(analysis.capture) if spans else []
        record.ran_ns = [effort.ran_ns for effort in measured.efforts_of_plain]
        # A long pause passes for something beside its step, which it is the cost of all the same.
        record.paused_ns = [effort.paused_ns for effort in measured.efforts.values()]
    titles = measured.group_titles
    record.collectives = [
        (name, size, dtype, ranks, group if group is None else titles.get(group, group))
        for name, size, dtype, ranks, group in record.collectives
    ]
    record.diagnosis = encode(own).decode()
    return record


def merge(
    said: Mapping[int, bytes], missing: Mapping[int, str], world_size: int
) -> Diagnosis | None:
    """One diagnosis of all ranks that have one; ``None`` if none has.

    Args:
        said: what each told (``RankRecord`` as JSON).
        missing: why others told nothing.
        world_size: how many ranks the job has.
    """
    why = dict(missing)
    records: list[RankRecord] = []
    for rank in sorted(said):
        record = msgspec.json.decode(said[rank], type=RankRecord)
        if record.diagnosis:
            records.append(record)
        else:
            why[rank] = f"rank {rank} has no diagnosis ({record.problem.rstrip('.')})"
    if not records:
        return None
    return job_diagnosis(
        {r.rank: decode(r.diagnosis.encode(), name=f"rank {r.rank}") for r in records},
        compare_records(records, world_size),
        world_size=world_size,
        hosts=len({record.host for record in records}),
        missing=why,
        joined_s={r.rank: r.joined_s for r in records if r.joined_s is not None},
        alone={r.rank: r.alone for r in records if r.alone},
    )
