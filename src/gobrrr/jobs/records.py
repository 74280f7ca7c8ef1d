"""What the ranks of a job tell each other, and the one diagnosis that the first makes of it."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.cpu.run import CpuAnalysis
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.run import DeviceAnalysis
from gobrrr.diagnosis.lanes import lanes_of
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import decode
from gobrrr.diagnosis.writing import encode
from gobrrr.jobs.boards import message_of
from gobrrr.jobs.diagnosis import job_diagnosis
from gobrrr.jobs.job import MEETING_LIMIT_S, RESULT_LIMIT_S, Job
from gobrrr.live.farewell import asked_to_end
from gobrrr.live.measurements import Measurements
from gobrrr.live.rank_of_job import RankOfJob
from gobrrr.live.script_run import ScriptEnd
from gobrrr.ranks.job import compare_records
from gobrrr.ranks.job_trace import write_trace_of_job
from gobrrr.ranks.rank_record import RankRecord, record_of_device, record_of_lane
from gobrrr.ranks.rank_spans import spans_of_device, spans_of_lane
from gobrrr.timeline.errors import GobrrrError, InputError
from gobrrr.work import work_of

# How long the first rank, whose script has failed, waits for others whose scripts have too: a
# launcher kills what is left of a job 30 s after it has asked it to end.
_FAILED_LIMIT_S = 10.0


def diagnosis_of_job(
    rank: RankOfJob, own: Diagnosis, analysis: Analysis | None, measured: Measurements
) -> Diagnosis:
    """What all ranks have found, for the first; every other tells it, and keeps its own."""
    job = rank.job
    if job is None:
        if rank.perfetto is not None:
            record = record_of(own, analysis, measured, 0, spans=True)
            _write_trace(rank.perfetto, [record], own)
        return own
    own.source |= {"rank": job.rank, "world_size": job.world_size}
    if job.unknown_hosts:
        own.notices.insert(0, job.unknown_hosts)
    record = record_of(own, analysis, measured, job.rank, spans=rank.perfetto is not None)
    if rank.joined is not None:
        on_device = measured.device_timeline is not None
        record.joined_s = rank.joined.wall_s if on_device else rank.joined.monotonic_s
    record.alone = job.alone
    if job.alone:
        # In its own diagnosis; the one of the job has a sentence about all such ranks.
        own.notices.insert(0, f"Rank {job.rank} was measured on its own: {job.alone}.")
    failed = rank.exit is not None and rank.exit.code != 0
    record.ended = rank.exit.how if rank.exit is not None and failed else ""
    rank.tell(record)
    merged = None
    if job.rank == 0:
        limit_s = _FAILED_LIMIT_S if failed else RESULT_LIMIT_S
        # A launcher that asks this rank to end asks all others too, and kills them soon.
        merged = _diagnosis_of_ranks(rank, job, limit_s, of_ended=lambda: failed or asked_to_end())
    if job.lost and job.lost != job.alone:
        own.notices.insert(
            0, f"Rank {job.rank} cannot exchange with the others what they found: {job.lost}."
        )
    return merged or own


def diagnosis_of_others(
    rank: RankOfJob, ended: ScriptEnd, on_diagnosis: Callable[[Diagnosis, bool], None]
) -> Diagnosis | None:
    """For a rank whose script has ended without a diagnosis: tells the first one why.

    The first itself gets one diagnosis of the ranks that have one, with which ``on_diagnosis`` is
    called, as by ``diagnose_script``; ``None``: none has told it.
    """
    job = rank.job
    if job is None or rank.told:
        return None
    how = ended.exit.how
    rank.tell(RankRecord(job.rank, "", problem=how if ended.exit.code else ended.problem or how))
    if job.rank:
        return None
    # A script that failed ends now: its launcher has the others to stop.
    limit_s = 0.0 if ended.exit.code else MEETING_LIMIT_S
    try:
        merged = _diagnosis_of_ranks(rank, job, limit_s)
    except Exception as error:  # the exit code stays the script's
        if isinstance(error, GobrrrError):
            print(f"gobrrr: {error}", file=sys.stderr, flush=True)
        else:
            traceback.print_exception(error)
        return None
    if merged is not None:
        on_diagnosis(merged, True)
    return merged


def _diagnosis_of_ranks(
    rank: RankOfJob, job: Job, limit_s: float, *, of_ended: Callable[[], bool] = lambda: False
) -> Diagnosis | None:
    said, missing = job.results(limit_s, of_ended=of_ended)
    merged = merge(said, missing, job.world_size)
    if rank.perfetto is not None:
        found = [message_of(said[i], RankRecord) for i in sorted(said)]
        _write_trace(rank.perfetto, [each for each in found if each and each.steps], merged)
    if merged is not None:
        job.reported()
    return merged


def _write_trace(path: Path, records: Sequence[RankRecord], told: Diagnosis | None) -> None:
    """Writes the trace of the job; that it cannot be written loses nobody the diagnosis."""
    if not records:
        return
    try:
        write_trace_of_job(path, records)
    except InputError as error:
        if told is None:
            raise
        told.notices.insert(0, f"No trace of the job was written: {error}.")


def record_of(
    own: Diagnosis,
    analysis: Analysis | None,
    measured: Measurements,
    rank: int,
    *,
    spans: bool = False,
) -> RankRecord:
    """What one rank tells of its steps, with its diagnosis; ``spans``: and what its host did."""
    host = _clock_of_host()
    timeline = measured.device_timeline
    if isinstance(analysis, DeviceAnalysis):
        # With the modules and lines that were recorded.
        timeline = analysis.capture.timeline
    if timeline is not None:
        found = attribute_device(timeline, None, work_of)
        record = record_of_device(timeline, found, rank, host)
        record.spans = spans_of_device(timeline) if spans else []
    else:
        assert isinstance(analysis, CpuAnalysis)
        record = record_of_lane(analysis.capture, analysis.result, rank, host)
        record.spans = spans_of_lane(analysis.capture) if spans else []
        record.threads = own.device.threads
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


def _clock_of_host() -> str:
    """Whose clock a process has: machines may share a name, and none shares a boot with another."""
    name = socket.gethostname()
    try:
        return f"{name} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except OSError:
        return name


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
        record = message_of(said[rank], RankRecord)
        if record is None:
            why[rank] = f"what came as the diagnosis of rank {rank} is none"
        elif record.diagnosis:
            records.append(record)
        else:
            why[rank] = f"rank {rank} has no diagnosis ({record.problem.rstrip('.')})"
    if not records:
        return None
    compared = compare_records(records, world_size)
    diagnosis = job_diagnosis(
        {r.rank: decode(r.diagnosis.encode(), name=f"rank {r.rank}") for r in records},
        compared,
        world_size=world_size,
        hosts=len({record.host for record in records}),
        missing=why,
        joined_s={r.rank: r.joined_s for r in records if r.joined_s is not None},
        alone={r.rank: r.alone for r in records if r.alone},
        ended={r.rank: r.ended for r in records if r.ended},
        communication={r.rank: r.communication for r in records},
    )
    if not any(record.alone for record in records):
        diagnosis.lanes = lanes_of(
            records, compared.matched, compared.clocks, compared.clock_residual_ns
        )
    return diagnosis
