"""The operating system's counters of this process (zero where the system keeps none)."""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def minor_faults() -> int:
    """Page faults served without reading a file: first touches of fresh memory."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def waits_of_thread() -> int | None:
    """How often the calling thread gave its processor up of itself, to sleep or to wait.

    ``None`` where the system does not count it by thread.
    """
    if not hasattr(resource, "RUSAGE_THREAD"):
        return None
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
