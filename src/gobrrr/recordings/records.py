"""Whether a profiler's records of a device are whole: CUPTI may lose them, or zero their times.

NVIDIA's CUPTI of CUDA 12.6 Update 2 to 13.0 does so as a session starts (pytorch/pytorch#192021).
In sound recordings every launch has its record, and no kernel starts before its launch has begun.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.names import is_graph_launch
from gobrrr.timeline.data import (
    HostKind,
    HostSpans,
    KernelKind,
    Kernels,
    Records,
    Timeline,
    names_that,
)
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import ROUNDING_NS
from gobrrr.timeline.quantities import percent, time_text

Int64 = NDArray[np.int64]
_CALLS = (HostKind.LAUNCH, HostKind.SYNCHRONISE, HostKind.ALLOCATE, HostKind.RUNTIME)
# Shares of launches, or of records, from which a sentence is due, and from which none is believed.
WORTH_SAYING, DAMAGED = 0.005, 0.05
# A recording goes on for no longer than this beyond what it holds of the host.
OUTSIDE_NS = 1_000_000_000
# Kernels of one stream overlap by up to 1.4 us on an H200, where the next begins early
# (programmatic launch).
_OVERLAP_NS = 5_000
# What the clocks of host and device may differ by without a word.
_CLOCKS_NS = 2_000
# A kernel that never takes less takes no time in whole microseconds either.
_NEVER_CUT_NS = 10_000
# Of a graph's kernels: a replay that has fewer is of another graph.
_REPLAYED = 0.7
_REMEDY = {
    "cuda": "CUPTI of CUDA 12.6 Update 2 to 13.0 loses records, or zeroes their times, as a "
    "recording starts: record again, or update CUDA and PyTorch",
}
_OUTSIDE = "kernels have times outside the recording"
# A graph has as many in each replay.
_LOST_NODES = "kernels of graphs have no record"
_BEGINS_CAPTURE, _ENDS_CAPTURE = "StreamBeginCapture", "StreamEndCapture"


def check_records(
    host: HostSpans,
    kernels: Kernels,
    names: Sequence[str],
    answered: NDArray[np.bool_],
    steps: Int64,
    ahead_ns: int = 0,
) -> Records:
    """Counts what cannot be.

    ``answered``: per host row, whether any device has a record of its correlation. ``kernels`` are
    those of one device, whose times have been put back by ``ahead_ns``. ``steps``: windows.
    """
    calls = np.flatnonzero(_kernel_launches(host, names))
    calls = calls[~_captured(host, names)[calls]]
    linked = np.flatnonzero(kernels.launch >= 0)
    begun = host.start_ns[kernels.launch[linked]]
    outside = outside_recording(host, kernels)
    early = (kernels.start_ns[linked] + ROUNDING_NS < begun) & ~outside[linked]
    lost = calls[~answered[calls]]
    few = len(lost) <= WORTH_SAYING * len(calls)
    return Records(
        launches=len(calls),
        kernels=len(kernels),
        without_record=len(lost),
        without_launch=int(_unlaunched(kernels).sum()) if len(calls) else 0,
        before_launch=int(early.sum()),
        outside=int(outside.sum()),
        empty=int((empty_kernels(kernels) & ~outside).sum()),
        disordered=_disordered(host, kernels),
        lost_nodes=_lost_nodes(host, kernels, names, steps),
        ahead_ns=ahead_ns,
        doubtful_ns=() if few else tuple(host.start_ns[lost].tolist()),
    )


def outside_recording(host: HostSpans, kernels: Kernels) -> NDArray[np.bool_]:
    """Kernels at a time that is not the recording's."""
    low, high = _range_of(host)
    if low is None or high is None:
        return np.zeros(len(kernels), bool)
    far = (kernels.start_ns < low - OUTSIDE_NS) | (kernels.start_ns > high + OUTSIDE_NS)
    unset = (kernels.start_ns <= 0) & (kernels.end_ns <= kernels.start_ns) & (low > 0)
    return np.asarray(far | unset)


def empty_kernels(kernels: Kernels) -> NDArray[np.bool_]:
    """Kernels that take no time.

    Whole microseconds (PyTorch up to 2.2) cut what is shorter off: there it is none of those whose
    name also takes little.
    """
    took = kernels.end_ns - kernels.start_ns
    empty = (kernels.kind == KernelKind.KERNEL) & (took <= 0)
    if not empty.any() or (kernels.start_ns % 1000).any():
        return np.asarray(empty)
    least = np.full(int(kernels.name.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, kernels.name[took > 0], took[took > 0])
    shortest = least[kernels.name]
    return np.asarray(empty & (shortest >= _NEVER_CUT_NS) & (shortest < np.iinfo(np.int64).max))


def clock_ahead_ns(host: HostSpans, kernels: Kernels, names: Sequence[str]) -> int:
    """By how much the device's clock is ahead of the host's at least; 0 where nothing shows it.

    A wait that returns before the record of its copy ends bounds it from below. It is no more than
    what the soonest kernel seems to wait for its launch: beyond that the records are wrong.
    """
    ended = _ends_beyond_waits(host, kernels, names)
    linked = np.flatnonzero(kernels.launch >= 0)
    ahead_ns = int(ended.max(initial=0))
    # Whole microseconds (PyTorch up to 2.2) allow no less.
    if ahead_ns <= (0 if (kernels.start_ns % 1000).any() else _CLOCKS_NS):
        return 0
    room = kernels.start_ns[linked] - host.start_ns[kernels.launch[linked]]
    return ahead_ns if ahead_ns <= int(room.min()) else 0


def _ends_beyond_waits(host: HostSpans, kernels: Kernels, names: Sequence[str]) -> Int64:
    """How long after the return of the wait for it each copy to the host ends, by its record.

    The wait is the call on the thread that comes next after the copy's: as ``item()`` makes them.
    """
    to_host = names_that(names, lambda name: "DtoH" in name or "D2H" in name)
    waits = names_that(names, lambda name: "StreamSynchronize" in name or "QueueFinish" in name)
    copies = np.flatnonzero(
        (kernels.launch >= 0) & (kernels.kind == KernelKind.COPY) & to_host[kernels.name]
    )
    calls = np.flatnonzero(np.isin(host.kind, _CALLS))
    calls = calls[np.lexsort((host.start_ns[calls], host.thread[calls]))]
    place = np.full(len(host), -1, np.int64)
    place[calls] = np.arange(len(calls))
    following = place[kernels.launch[copies]] + 1
    copies, following = (
        each[(following > 0) & (following < len(calls))] for each in (copies, following)
    )
    after = calls[following]
    paired = waits[host.name[after]] & (host.thread[after] == host.thread[kernels.launch[copies]])
    found: Int64 = kernels.end_ns[copies[paired]] - host.end_ns[after[paired]]
    return found


def _disordered(host: HostSpans, kernels: Kernels) -> int:
    """Records that overlap on their stream, or that are not in the order of their launches."""
    count = 0
    for stream in distinct(kernels.stream).tolist():
        rows = np.flatnonzero((kernels.stream == stream) & (kernels.start_ns > 0))
        start, end = kernels.start_ns[rows], np.maximum.accumulate(kernels.end_ns[rows])
        overlaps = int((end[:-1] > start[1:] + _OVERLAP_NS).sum())
        launch = kernels.launch[rows[kernels.launch[rows] >= 0]]
        began, returned = host.start_ns[launch], host.end_ns[launch]
        late = returned[1:] < np.maximum.accumulate(began)[:-1]
        early = began[:-1] > np.minimum.accumulate(returned[::-1])[::-1][1:]
        count += max(overlaps, min(int(late.sum()), int(early.sum())))
    return count


def _lost_nodes(host: HostSpans, kernels: Kernels, names: Sequence[str], steps: Int64) -> int:
    """Kernels that a replay of a graph lacks which the same replay of another step has.

    But for the last launch, which the end of the recording may have cut.
    """
    replays = names_that(names, is_graph_launch)
    launches, first, counts = np.unique(kernels.launch, return_index=True, return_counts=True)
    found = (launches >= 0) & replays[host.name[launches]] if len(host) else launches < 0
    if not found.any():
        return 0
    found &= launches != kernels.launch[np.argmax(kernels.start_ns)]
    began = host.start_ns[launches[found]]
    step = np.searchsorted(steps[:, 0], began, side="right")
    order = np.lexsort((kernels.start_ns, kernels.launch))
    until = np.cumsum(counts)
    groups: dict[int, list[list[int]]] = {}
    numbers: dict[int, int] = {}
    for at, number in sorted(
        zip(np.flatnonzero(found).tolist(), step.tolist()), key=lambda pair: int(first[pair[0]])
    ):
        place = numbers[number] = numbers.get(number, -1) + 1
        nodes = kernels.name[order[until[at] - counts[at] : until[at]]].tolist()
        groups.setdefault(place, []).append(nodes)
    lost = 0
    for replayed in groups.values():
        whole = max(replayed, key=len)
        lost += sum(
            len(whole) - len(nodes)
            for nodes in replayed
            if _REPLAYED * len(whole) <= len(nodes) < len(whole) and _within(nodes, whole)
        )
    return lost


def _within(some: list[int], whole: list[int]) -> bool:
    """Whether these stand in the others, in their order."""
    rest = iter(whole)
    return all(each in rest for each in some)


def _kernel_launches(host: HostSpans, names: Sequence[str]) -> NDArray[np.bool_]:
    """Calls that launch kernels or graphs; one that another makes is a part of that.

    No copies: in sound recordings ``cudaMemsetAsync`` of cuBLAS has no record (two of an H100).
    """
    launching = names_that(names, lambda name: "Launch" in name)
    launches = (host.kind == HostKind.LAUNCH) & launching[host.name]
    above = np.append(launches, False)[host.parent]
    return np.asarray(launches & ~above)


def _captured(host: HostSpans, names: Sequence[str]) -> NDArray[np.bool_]:
    """Rows between the begin and the end of a graph's capture, in which nothing runs.

    On whatever thread: a captured backward pass is launched by autograd's.
    """
    inside = np.zeros(len(host), bool)
    begins = names_that(names, lambda name: _BEGINS_CAPTURE in name)
    ends = names_that(names, lambda name: _ENDS_CAPTURE in name)
    if not begins.any():
        return inside
    is_call = host.kind == HostKind.RUNTIME
    for row in np.flatnonzero(is_call & begins[host.name]).tolist():
        mine = host.thread == host.thread[row]
        later = np.flatnonzero(mine & is_call & ends[host.name])
        later = later[later > row]
        until = host.start_ns[later[0]] if len(later) else np.iinfo(np.int64).max
        inside |= (host.start_ns >= host.start_ns[row]) & (host.start_ns < until)
    return inside


def _unlaunched(kernels: Kernels) -> NDArray[np.bool_]:
    """Kernels without a launch, but for those of launches before the recording began.

    These run before the first that was launched in it on their stream. A memset of the runtime's
    own may have no call.
    """
    if not len(kernels):
        return np.zeros(0, bool)
    linked = kernels.launch >= 0
    stream = np.unique(kernels.stream, return_inverse=True)[1].reshape(-1)
    first = np.full(int(stream.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, stream[linked], kernels.start_ns[linked])
    found = (kernels.kind == KernelKind.KERNEL) & ~linked & (kernels.twin < 0)
    return np.asarray(found & (kernels.start_ns > first[stream]))


def _range_of(host: HostSpans) -> tuple[int, int] | tuple[None, None]:
    """When the host's calls began and ended; Python's frames reach back to before."""
    rows = np.flatnonzero(host.kind != HostKind.PYTHON)
    if not len(rows):
        return None, None
    return int(host.start_ns[rows].min()), int(host.end_ns[rows].max())


def _counted(records: Records) -> list[tuple[int, int, str]]:
    """Each fault: how often, of how many, and in words."""
    return [
        (records.without_record, records.launches, "launches have no record on the device"),
        (records.without_launch, records.kernels, "kernels have no launch call"),
        (records.before_launch, records.kernels, "kernels start before their launch call"),
        (records.outside, records.kernels, _OUTSIDE),
        (records.empty, records.kernels, "kernels take no time"),
        (records.disordered, records.kernels, "records overlap or leave the order of launches"),
        (records.lost_nodes, records.kernels, _LOST_NODES),
    ]  # fmt: skip


def notices_of(records: Records | None, kind: str) -> list[str]:
    """What is to be said of a recording on such a device (``Device.kind``): a sentence, or none."""
    if records is None:
        return []
    found = [
        f"{count} of {whole} {what}"
        for count, whole, what in _counted(records)
        if count > (0 if what == _LOST_NODES else WORTH_SAYING * whole)
    ]
    said = []
    if records.ahead_ns > _CLOCKS_NS:
        said.append(
            f"The device's clock is ahead of the host's by {time_text(records.ahead_ns * 1e-9)} "
            "at least: waits returned before their records ended. Its records were put back by "
            "that; where the host bounds the step, its parts may be off by what is left."
        )
    if not found:
        return said
    return [
        *said,
        f"The recording is not whole: {', '.join(found)}. Times of the device and their causes may "
        f"be wrong; {_remedy(kind)}.",
    ]


def _remedy(kind: str) -> str:
    return _REMEDY.get(kind, "record again")


def damage(timeline: Timeline) -> str:
    """Why no verdict can come of a recording, and what to do; ``""``: it can.

    One time outside the recording is enough: windows of steps, and the work in them, hang on it.
    """
    if timeline.records is None:
        return ""
    for count, whole, what in _counted(timeline.records):
        if count > (0 if what == _OUTSIDE else DAMAGED * whole):
            share = percent(count / whole)
            return f"{count} of {whole} {what} ({share}); {_remedy(timeline.device.kind)}"
    return ""


def refuse_senseless_steps(timeline: Timeline) -> None:
    """Raise InputError where a step begins or ends at a time that is not the recording's."""
    low, high = _range_of(timeline.host)
    if timeline.records is None or not timeline.records.outside or low is None or high is None:
        return
    begin, end = int(timeline.steps[0, 0]), int(timeline.steps[-1, 1])
    if begin < low - OUTSIDE_NS or end > high + OUTSIDE_NS or begin <= 0 < low:
        raise InputError(f"{timeline.source}: {damage(timeline)}")
