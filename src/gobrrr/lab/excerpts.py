"""Two lanes of a recorded program, small enough to ship: launch calls and the kernels they start.

``python -m gobrrr.lab.excerpts TRACE.json.gz OUT.json`` remakes a file of ``gobrrr/lab/data``.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import HostKind, KernelKind, Timeline
from gobrrr.timeline.files import write_atomically


class Excerpt(msgspec.Struct, kw_only=True):
    """Launches and kernels of one program, in ns from the first launch call.

    Row i of ``kernel_*`` was launched by row i of ``launch_*``. Rows are sorted by launch.
    ``what`` says what ran, ``source`` where the recording is from.
    """

    what: str
    source: str
    device: str
    launch_start_ns: list[int]
    launch_end_ns: list[int]
    kernel_start_ns: list[int]
    kernel_end_ns: list[int]

    @property
    def end_ns(self) -> int:
        """When the last kernel ended."""
        return max(self.kernel_end_ns)

    def waits_ns(self) -> list[int]:
        """Per kernel: from the return of its launch call to its start; 0 if it had started."""
        return [
            max(0, start - launched)
            for start, launched in zip(self.kernel_start_ns, self.launch_end_ns)
        ]

    def queued(self) -> list[int]:
        """Per launch call: kernels that were launched before it and had not started when it ended.

        How far the host is ahead, in kernels.
        """
        launched = np.asarray(self.launch_end_ns)
        started = np.sort(np.asarray(self.kernel_start_ns))
        begun = np.searchsorted(started, launched, side="right")
        return [int(v) for v in np.maximum(0, np.arange(1, len(launched) + 1) - begun)]

    def active_fractions(self, slices: int) -> list[float]:
        """The share of each of ``slices`` equal stretches in which a kernel ran.

        From the first kernel's start to the last one's end.
        """
        spans = sorted(zip(self.kernel_start_ns, self.kernel_end_ns))
        merged: list[list[int]] = []
        for start, end in spans:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        edges = np.linspace(spans[0][0], self.end_ns, slices + 1)
        return [
            float(sum(max(0.0, min(end, right) - max(start, left)) for start, end in merged))
            / float(right - left)
            for left, right in pairwise(edges)
        ]


def excerpt_of(timeline: Timeline, what: str, source: str) -> Excerpt:
    """The kernels of a timeline that are linked to the call that launched them.

    Raises ValueError if there are none.
    """
    kernels, host = timeline.kernels, timeline.host
    linked = (kernels.launch >= 0) & (kernels.kind == KernelKind.KERNEL)
    kernels = kernels.take(linked)
    kernels = kernels.take(host.kind[kernels.launch] == HostKind.LAUNCH)
    if not len(kernels):
        raise ValueError("no kernel is linked to its launch")
    order = np.argsort(host.start_ns[kernels.launch], kind="stable")
    kernels = kernels.take(order)
    begin = int(host.start_ns[kernels.launch[0]])
    return Excerpt(
        what=what,
        source=source,
        device=timeline.device.name,
        launch_start_ns=(host.start_ns[kernels.launch] - begin).tolist(),
        launch_end_ns=(host.end_ns[kernels.launch] - begin).tolist(),
        kernel_start_ns=(kernels.start_ns - begin).tolist(),
        kernel_end_ns=(kernels.end_ns - begin).tolist(),
    )


def shipped_excerpt(name: str) -> Excerpt:
    """An excerpt of ``gobrrr/lab/data``, by its name without ``.json``."""
    data = (files("gobrrr.lab") / "data" / f"{name}.json").read_bytes()
    return msgspec.json.decode(data, type=Excerpt)


def main(trace: str, out: str) -> None:
    """Writes the excerpt of a trace file."""
    known = {
        "h100_bert_small_inference": "BERT small, inference",
        "h100_qwen1.5_0.5b_inference": "Qwen1.5 0.5B, inference",
    }
    name = Path(trace).name.removesuffix(".gz").removesuffix(".json")
    source = f"https://github.com/AMD-AGI/TraceLens (MIT License), {name}"
    found = excerpt_of(read_trace(Path(trace)), known.get(name, name), source)
    write_atomically(Path(out), msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
