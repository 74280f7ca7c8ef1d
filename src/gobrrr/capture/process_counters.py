"""The operating system's counters of this process (zero where the system keeps none)."""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def minor_faults() -> int:
    """Page faults served without reading a file: first touches of fresh memory."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt
