"""A recorded timeline, attributed: of a device, or of the processor where it has no kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gobrrr.attribution.attributed import Attributed
from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.devices.ceilings import Ceilings
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.work import work_of

if TYPE_CHECKING:
    from gobrrr.attribution.cpu.attribute import CpuAttribution
    from gobrrr.attribution.cpu.lane_of_trace import TraceLane
    from gobrrr.attribution.device.run import DeviceAnalysis
    from gobrrr.recordings.export import Track


@dataclass(frozen=True)
class RecordedDevice:
    """A step of a device, and what lies behind it."""

    timeline: Timeline
    ceilings: Ceilings | None
    found: DeviceAttribution
    step: Attributed

    def tracks(self) -> tuple[Track, ...]:
        """Steps, regimes and causes of idleness over the trace."""
        from gobrrr.attribution.device_tracks import tracks_of

        return tracks_of(self.timeline, self.found)


@dataclass(frozen=True)
class RecordedLane:
    """A step of the processor, and what lies behind it."""

    lane: TraceLane
    ceilings: Ceilings | None
    result: CpuAttribution
    step: Attributed

    def tracks(self) -> tuple[Track, ...]:
        """Steps, regimes and overhead over the trace."""
        from gobrrr.attribution.device_tracks import tracks_of_lane

        return tracks_of_lane(self.lane.capture, self.lane.works, self.result)


def recorded_device(timeline: Timeline, ceilings: Ceilings | None) -> RecordedDevice:
    """The steps of a device. Raises ValueError if nothing ran on it."""
    found = attribute_device(timeline, ceilings, work_of)
    step = attributed_device(timeline, found, ceilings)
    return RecordedDevice(timeline, ceilings, found, step)


def as_recorded(measured: DeviceAnalysis) -> RecordedDevice:
    """Measured steps of a device as a trace of them gives them."""
    step = measured.attributed
    return RecordedDevice(measured.capture.timeline, step.ceilings, measured.found, step)


def recorded_lane(timeline: Timeline, ceilings: Ceilings | None) -> RecordedLane | None:
    """The steps of the processor; ``None`` if no operator with work was recorded."""
    # Not above: most traces are of a GPU.
    from gobrrr.attribution.cpu.attribute import attribute_cpu
    from gobrrr.attribution.cpu.attributed import attributed_trace_lane
    from gobrrr.attribution.cpu.lane_of_trace import has_cpu_work, lane_of_trace

    lane = lane_of_trace(timeline, work_of)
    if not has_cpu_work(lane):
        return None
    result = attribute_cpu(lane.capture, lane.works, ceilings)
    return RecordedLane(lane, ceilings, result, attributed_trace_lane(lane, result, ceilings))


def recorded_step(timeline: Timeline, ceilings: Ceilings | None) -> RecordedDevice | RecordedLane:
    """The steps of whatever did the work.

    Raises InputError for a recording without any.
    """
    if len(timeline.kernels) > 0:
        return recorded_device(timeline, ceilings)
    ran = recorded_lane(timeline, ceilings)
    if ran is None:
        raise no_work(timeline.source)
    return ran


def no_work(name: str) -> InputError:
    """What is said of a recording without work, with what to do."""
    return InputError(
        f"{name} holds no work that can be diagnosed; record it with activities=[CPU, CUDA], or "
        "diagnose the program itself: gobrrr run SCRIPT"
    )
