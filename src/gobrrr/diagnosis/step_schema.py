"""Records about steps as a whole: spread, what else the wall time holds, twice the batch."""

from __future__ import annotations

from gobrrr.diagnosis.record import Record


class Spread(Record, kw_only=True):
    """A measured time: median, mean and the interval (95 % of the median), over n samples.

    ``high`` is ``None`` in older files alone: of a predicted step that was only a lower bound.
    """

    median: float
    mean: float
    low: float
    high: float | None
    n: int


class ProvisionalVerdict(Record, kw_only=True):
    """What a step on a CPU is bound by where its times say nothing: by processor time and counts.

    ``processor_s`` is that of the step's thread; ``rest_s`` the most of it that is not the
    regime's (kernels where that is overhead, overhead otherwise); ``compute_roof_s`` and
    ``memory_roof_s`` what the FLOPs, and the bytes and page faults, take at the ceilings.
    """

    regime: str
    processor_s: float
    rest_s: float
    compute_roof_s: float
    memory_roof_s: float


class EnergyRecord(Record, kw_only=True):
    """Energy of a predicted step, in joules: ``static_j``, ``arithmetic_j``, ``memory_j`` in all.

    ``mean_w``: over the step, ``board_w`` what the board may draw. ``tokens``: that the step takes
    in, ``None`` where it has none. ``source``: what the figures rest on.
    """

    joules: float
    mean_w: float
    board_w: float
    static_j: float
    arithmetic_j: float
    memory_j: float
    tokens: int | None = None
    joules_per_token: float | None = None
    source: str


class CardRecord(Record, kw_only=True):
    """The GPU's card while steps were timed, as its driver tells; ``None`` is what it does not.

    ``joules_per_step`` and ``mean_w``: measured by the card, over ``steps`` steps and what the
    program did between them; ``None`` where the card was shared or the time too short.
    ``power_held``, ``heat_held``: share of the time in which its clock was held for power or heat.
    ``sm_mhz``: the mean clock of its multiprocessors. ``reasons``: what held it as blocks ended.
    """

    steps: int
    joules_per_step: float | None = None
    mean_w: float | None = None
    power_limit_w: float | None = None
    power_held: float | None = None
    heat_held: float | None = None
    sm_mhz: float | None = None
    sm_max_mhz: float | None = None
    temperature_c: float | None = None
    reasons: list[str] = []


class GrowthRow(Record, kw_only=True):
    """How one op grew when the batch doubled, against what its work says."""

    name: str
    shapes: str
    count: float
    time_s: float
    doubled_s: float
    expected_s: float | None
    note: str | None = None


class BatchDoubling(Record, kw_only=True):
    """The article's test: what did not grow with the data, and has no other reason, is overhead.

    ``agrees``: with the split; ``None``: no kernel of known work grew, so that nothing was tested.
    ``overhead_s`` is ``None`` then, and where all that grows hides behind a host's work.
    """

    time_s: Spread
    doubled_time_s: Spread
    ratio: float
    work_ratio: float | None
    expected_s: float | None
    overhead_s: float | None
    split_overhead_s: float
    agrees: bool | None
    sentence: str
    ops: list[GrowthRow] = []
