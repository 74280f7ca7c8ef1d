"""What a diagnosis says of several processes: ranks, collectives, the job."""

from __future__ import annotations

from gobrrr.diagnosis.record import Record


class Split(Record, kw_only=True):
    """The top level of the accounting; sums to the step."""

    compute_s: float
    memory_s: float
    overhead_s: float
    unmodelled_s: float


class DeviceTime(Record, kw_only=True):
    """Whole-window figures of a device's streams; unions of intervals."""

    window_s: float
    busy_s: float
    compute_kernels_s: float
    collectives_s: float
    exposed_collectives_s: float
    exposed_copies_s: float


class RankRow(Record, kw_only=True):
    """One rank of several; times per step.

    ``wait_s`` is waiting for ranks that arrived later at collectives, with nothing else running.
    """

    rank: int
    step_s: float
    split: Split
    leaves: dict[str, float]
    device_time: DeviceTime | None = None
    wait_s: float | None = None
    why: str | None = None


class CollectiveRow(Record, kw_only=True):
    """One kind of collective (name, bytes, group); of ``ranks`` one alone may be unknown.

    ``calls``, ``time_s``, ``exposed_s`` (no other kernel beside it) and ``overlapped_s`` are per
    step, means over ``ranks``; ``transfer_s`` and ``skew_s`` (how long the first waits for the
    last) are per call, known where ranks can be compared; ``duration_s`` is per call on each rank.
    """

    name: str
    bytes: int | None
    group_size: int | None
    ranks: list[int | None]
    calls: float
    time_s: float
    exposed_s: float
    overlapped_s: float
    transfer_s: float | None = None
    skew_s: float | None = None
    algorithm_bytes_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    last_rank: int | None = None
    duration_s: list[float] = []


class ExposedRow(Record, kw_only=True):
    """Communication with nothing beside it, by process group, phase and module that asked for it.

    Seconds per step, means over the ranks; ``wait_s`` of them are for a rank that came later
    (``None``: not told apart).
    """

    group: str | None
    phase: str
    module: str
    time_s: float
    wait_s: float | None = None


class JobRecord(Record, kw_only=True):
    """A live job of several ranks.

    ``slowest`` is the rank that the others wait for (``None``: none stands out); ``cause`` the leaf
    or the part of the step that takes longer there than on the others, by ``excess_s`` per step,
    ``phase`` and ``place`` (a line, a module) where known. ``lost_s`` per step would be won if it
    were as fast as they are in that and in what takes longer with it (its ops' dispatch), by steps
    that nothing is attached to where these tell it;
    ``busier_s`` is by how much it is busy longer in all, without what something else on its machine
    took. ``mean`` and ``longest`` are the split of the mean rank and of the one that is busy
    longest, ``longest_rank`` (``None``: all are as busy). ``clock_residual_s``: how well the ranks'
    clocks agree at the ends of collectives.
    ``clocks_apart`` are ranks of other hosts, whose clock could not be compared with the first's.
    ``missing`` says why ranks are not in it, ``ended`` how the scripts of ranks that are in it
    failed before all was measured. ``same_steps``: whether all measured the same ones; if not,
    nothing is known of waiting. ``uneven_s``: by how much longer per step whichever rank has the
    most to do runs on a processor than the ranks do in the mean.
    """

    world_size: int
    hosts: int = 1
    slowest: int | None = None
    cause: str | None = None
    phase: str | None = None
    place: str | None = None
    excess_s: float | None = None
    lost_s: float | None = None
    busier_s: float | None = None
    mean: Split | None = None
    longest: Split | None = None
    longest_rank: int | None = None
    uneven_s: float | None = None
    clock_residual_s: float | None = None
    sentence: str = ""
    missing: dict[str, str] = {}
    ended: dict[str, str] = {}
    same_steps: bool = True
    clocks_apart: list[int] = []
    late_start: int | None = None
    late_start_s: float | None = None


class RankLane(Record, kw_only=True):
    """One rank in the step that is drawn of all ranks; ns from its beginning, columns by start.

    ``start_ns`` and ``end_ns`` are of its own window. ``work_*``: when it ran kernels, by phase.
    ``call_*``: its collectives, ``call_name`` indexing ``JobLanes.names``; ``call_wait_ns`` is the
    first part of each, before the last rank had come (``None``: not compared), and
    ``call_waits_for`` that rank (``None``: it waited for no other). ``left_out``: calls that are
    not in the columns, the shortest.
    """

    rank: int
    start_ns: int
    end_ns: int
    work_start_ns: list[int] = []
    work_duration_ns: list[int] = []
    work_phase: list[str] = []
    call_name: list[int] = []
    call_start_ns: list[int] = []
    call_duration_ns: list[int] = []
    call_wait_ns: list[int | None] = []
    call_waits_for: list[int | None] = []
    left_out: int = 0


class JobLanes(Record, kw_only=True):
    """One step on all ranks, on one clock, for a report to draw.

    ``step`` is its name; it lasts ``duration_ns`` from the first rank's beginning to the last one's
    end. Of ``ranks`` those in ``lanes`` are drawn. ``one_clock``: they share the clock of one host;
    otherwise their clocks are aligned by the ends of collectives. ``clock_residual_s``: how far
    apart the recorded ends of a collective are between ranks, the median (``None``: unknown).
    """

    step: str
    duration_ns: int
    ranks: int
    one_clock: bool
    clock_residual_s: float | None = None
    names: list[str] = []
    lanes: list[RankLane] = []
