"""The leaves in plain words, for every report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One line under a top level: the leaf, or the two leaves of roof and below.

    ``meaning`` stands beside a leaf where nothing more specific is known.
    """

    label: str
    meaning: str
    leaf: str = ""
    roof: str = ""
    below: str = ""


PARTS: dict[str, tuple[Part, ...]] = {
    "compute": (
        Part(
            "matrix",
            "matrix products",
            roof="compute.matrix.roof",
            below="compute.matrix.below",
        ),
        Part(
            "vector",
            "other arithmetic",
            roof="compute.vector.roof",
            below="compute.vector.below",
        ),
        Part("unmodelled", "arithmetic without a formula or a ceiling", leaf="compute.unmodelled"),
    ),
    "memory": (
        Part(
            "traffic",
            "kernels' reads and writes",
            roof="memory.device.roof",
            below="memory.device.below",
        ),
        Part("page faults", "first touch of fresh outputs", leaf="memory.page_faults"),
        Part("copies", "between host and device, exposed", leaf="memory.copies"),
        Part("network", "collectives, exposed", leaf="memory.network"),
        Part("network wait", "waiting for a late rank", leaf="memory.network_wait"),
        Part("unmodelled", "traffic without a formula or a ceiling", leaf="memory.unmodelled"),
    ),
    "overhead": (
        Part("dispatch", "the framework issuing ops", leaf="overhead.dispatch"),
        Part("python", "the interpreter between ops", leaf="overhead.python"),
        Part("asleep", "waiting for a lock, a timer or a file", leaf="overhead.asleep"),
        Part("launch", "from launch call to kernel start", leaf="overhead.launch"),
        Part("kernel gap", "between queued kernels, the device's own", leaf="overhead.kernel_gap"),
        Part("kernel fixed", "the least time of any kernel", leaf="overhead.kernel_fixed_cost"),
        Part("synchronise", "the host waits for the device", leaf="overhead.synchronisation"),
        Part("data loading", "waiting for the next batch", leaf="overhead.data_loading"),
        Part("allocation", "calls into the allocator", leaf="overhead.allocation"),
        Part("compilation", "during the step", leaf="overhead.compilation"),
        Part("garbage", "Python's garbage collector", leaf="overhead.garbage_collection"),
        Part("unexplained", "idle or host time without a known cause", leaf="overhead.unexplained"),
    ),
    "unmodelled": (Part("unmodelled", "ops without a formula or a ceiling", leaf="unmodelled"),),
}

CAUSE_LABELS: dict[str, str] = {
    part.leaf.removeprefix("overhead."): part.label for part in PARTS["overhead"]
}

CLASS_MEANINGS: dict[str, str] = {
    "contraction": "contraction",
    "normalisation": "normalisation",
    "elementwise": "element-wise",
    "movement": "movement",
    "other": "other",
}

PHASE_SHORT: dict[str, str] = {"forward": "fwd", "backward": "bwd", "optimizer": "opt",
                               "loading": "load"}  # fmt: skip


def cause_label(cause: str) -> str:
    """A cause of overhead in words: ``garbage_collection`` -> ``garbage``."""
    return CAUSE_LABELS.get(cause, cause.replace("_", " "))
