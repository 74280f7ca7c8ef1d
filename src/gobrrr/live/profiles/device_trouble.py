"""What can be wrong with a GPU that steps ran on, each in one sentence."""

from __future__ import annotations

from statistics import median

from gobrrr.devices.backend import Backend
from gobrrr.devices.backends import gpu_in_use, gpus_here
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.device_profile import launched
from gobrrr.measure.load import TOO_LONG
from gobrrr.recordings.records import damage
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import percent, si, time_text

# Less than this beside what this process reserved is its own context and the driver's.
LEAST_OF_OTHERS_BYTES = 2 * 1024**3
# NVIDIA: https://developer.nvidia.com/ERR_NVGPUCTRPERM.
# AMD: ROCm installation guide, "Prerequisites".
_PERMISSION = {
    "cuda": "the NVIDIA driver may restrict profiling to administrators (load it with "
    "NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN), and another "
    "profiler (Nsight, DCGM) may hold the device",
    "hip": "on AMD the user must be in the groups render and video, and the container needs "
    "/dev/kfd and /dev/dri",
}
# Without the library that tells it of the device it sees no launch either.
_NO_LIBRARY = {
    "cuda": "CUPTI, NVIDIA's library for profilers, did not start (under WSL, where its version is "
    "not the driver's, or where the driver restricts profiling to administrators)",
}


def with_profile(measured: Measurements) -> Measurements:
    """The same. Raises InputError where no profiler could be started to tell a step's parts."""
    if measured.unprofiled:
        why = measured.unprofiled.rstrip(".")
        raise InputError(f"a step takes {_step_text(measured)}, but its parts are unknown: {why}")
    return measured


def _step_text(measured: Measurements) -> str:
    return time_text(median(measured.all_plain_ns or measured.warmup_ns or [0]) * 1e-9)


def found(measured: Measurements, backend: Backend | None) -> tuple[str, ...]:
    """Sentences on the GPU that steps were profiled on.

    Raises InputError where the profiler saw nothing of it, with the permission that may be missing,
    and where its records cannot be true.
    """
    timeline = measured.device_timeline
    if timeline is not None and (damaged := damage(timeline)):
        raise InputError(
            f"a step takes {_step_text(measured)}, but what PyTorch's profiler recorded of the GPU "
            f"is damaged: {damaged}"
        )
    if timeline is None or len(timeline.kernels):
        return _of_others(measured, backend)
    kinds = () if backend is None else backend.KINDS
    known = _PERMISSION if launched(timeline) else _PERMISSION | _NO_LIBRARY
    why = next((known[kind] for kind in kinds if kind in known), "")
    raise InputError(
        f"a step takes {_step_text(measured)}, but PyTorch's profiler recorded no kernel of the GPU"
        + (f": {why}" if why else "")
    )


def _of_others(measured: Measurements, backend: Backend | None) -> tuple[str, ...]:
    """That another process has the GPU too."""
    computing = [other for span in measured.card for other in span.after.computing]
    if computing:
        most = max(computing, key=lambda other: other.busy_share or 0.0)
        more = len({other.pid for other in computing}) - 1
        return (
            f"Another process (pid {most.pid}{f', and {more} more' if more else ''}) computed on "
            f"this GPU while the steps were timed, up to {percent(most.busy_share)} of the time: "
            f"{TOO_LONG}.",
        )
    held = None if backend is None else backend.held_by_others_bytes()
    if held is None or held < LEAST_OF_OTHERS_BYTES:
        return ()
    return (
        f"Other processes hold {si(held, 'B')} of this GPU's memory: if they also run on it, times "
        "are too long by an unknown amount.",
    )


def idle_gpu_notices() -> tuple[str, ...]:
    """That there is a GPU, for a step that ran on the processor."""
    used = gpu_in_use()
    return tuple(
        f"This step ran on the CPU; {device.name} "
        + (
            "holds tensors of this process, but the step gave it nothing to do."
            if backend is used
            else "is available but holds none of its tensors."
        )
        for backend, device in gpus_here()
    )
