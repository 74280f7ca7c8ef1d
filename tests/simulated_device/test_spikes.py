"""Spike recovery where the truth is known: the right leaf grows by what was added to the step."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.attribution.device.run import DeviceAnalysis  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import Diagnosed, diagnose_work  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from simulated_device import (  # noqa: E402
    AMD,
    NVIDIA,
    Accelerator,
    HostCosts,
    Kernel,
    Op,
    SimulatedBackend,
    Vendor,
)
from simulated_device.backend import ceilings_of  # noqa: E402
from simulated_device.places import lines, lines_of_rows  # noqa: E402
from simulated_device.programs import line_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
SMALL, SPIKE = 10 * US, 310 * US
# Sizes that the table knows the ops of a spike by.
PRODUCT, STREAM, STEADY = 192, 100_000, 32

LEAVES = {
    "compute": ("compute.matrix.roof", "compute.matrix.below"),
    "memory": ("memory.device.roof", "memory.device.below"),
    "copies": ("memory.copies",),
    "python": ("overhead.python",),
    "dispatch": ("overhead.dispatch",),
    "launch": ("overhead.launch",),
    "synchronise": ("overhead.synchronisation",),
}


@dataclass
class Spiked:
    """A step of products and sums, with one spike at its start.

    ``eager``: an op a kernel; else all of it is a few kernels of generated code, or one graph.
    ``waits``: the step ends with ``.item()``, so that nothing hides what the host does next.
    """

    gpu: Accelerator
    kind: str
    spike_ns: int
    kernel_ns: int
    how: str = "eager"
    waits: bool = False
    streams: int = 1

    def __post_init__(self) -> None:
        self.x = torch.ones(STEADY, STEADY)
        self.a = torch.ones(PRODUCT, PRODUCT)
        self.v = torch.ones(STREAM)
        self.host = self.gpu.on_host(torch.ones(1000))
        self.graph: Any = None

    def table(self, op: Op) -> tuple[Kernel, ...] | None:
        """Kernel times of this program."""
        name = self.gpu.vendor.name_of(op)
        if op.inputs and op.inputs[0][0] in ((PRODUCT, PRODUCT), (STREAM,)):
            return (Kernel(name, self.spike_ns),)
        return (Kernel(name, self.kernel_ns),)

    def __call__(self) -> None:
        """One step."""
        getattr(self, self.kind)()
        getattr(self, self.how)()
        if self.streams == 2:
            ends = self.gpu.all_reduce(self.x, self.kernel_ns // 2)  # line: all_reduce
            torch.neg(self.x)  # line: beside
            self.gpu.wait_for(ends)
        if self.waits:
            self.x.sum().item()  # line: waits

    def eager(self) -> None:
        """Twenty ops."""
        for _ in range(10):
            torch.add(torch.mm(self.x, self.x), self.x)  # line: eager

    def compiled(self) -> None:
        """Three large kernels."""
        for i in range(3):
            with self.gpu.fused(f"triton_poi_fused_add_mul_{i}", 7 * self.kernel_ns):
                (self.x + 1) * 2

    def graphs(self) -> None:
        """One launch of twenty kernels."""
        self.graph = self.graph or self.gpu.capture(self.eager)
        self.graph.replay()  # line: graphs

    def compute(self) -> None:
        """A product."""
        torch.mm(self.a, self.a)  # line: compute

    def memory(self) -> None:
        """A sum of long vectors."""
        torch.add(self.v, self.v)  # line: memory

    def copies(self) -> None:
        """A batch from pinned memory."""
        self.gpu.to_device(self.host, self.spike_ns)  # line: copies

    def python(self) -> None:
        """A loop in Python."""
        self.gpu.python(self.spike_ns)  # line: python

    def dispatch(self) -> None:
        """An op that takes long to find its kernel."""
        with self.gpu.taking(dispatch=self.spike_ns):
            torch.neg(self.x)  # line: dispatch

    def launch(self) -> None:
        """A call of the runtime that takes long."""
        with self.gpu.taking(launch=self.spike_ns):
            torch.neg(self.x)  # line: launch

    def synchronise(self) -> None:
        """A wait that lasts longer than the device's work."""
        self.gpu.synchronise(extra_ns=self.spike_ns)


# The op, or the kernel, of each kind's spike that has one.
OF_SPIKE = {
    "compute": "mm", "memory": "add", "copies": "_to_copy", "dispatch": "neg", "launch": "neg",
}  # fmt: skip


def line(word: str) -> int:
    return line_of(word, __file__)


def true_lines(step: Spiked) -> Counter[tuple[str, int]]:
    """What stands on which line: a graph's kernels where it is replayed, generated ones nowhere."""
    expected: Counter[tuple[str, int]] = Counter()
    if step.kind in OF_SPIKE:
        expected[OF_SPIKE[step.kind], line(step.kind)] += 1
    vendor = step.gpu.vendor
    for name in ("mm", "add"):
        kernel = vendor.name_of(Op(f"aten::{name}", (), ()))
        if step.how == "eager":
            expected[name, line("eager")] += 10
        elif step.how == "graphs":
            expected[kernel, line("graphs")] += 10
    if step.how == "compiled":
        expected.update((f"triton_poi_fused_add_mul_{i}", 0) for i in range(3))
    if step.streams == 2:
        expected["record_param_comms", line("all_reduce")] += 1
        expected["neg", line("beside")] += 1
    if step.waits:
        expected["sum", line("waits")] += 1
        expected["_local_scalar_dense", line("waits")] += 1
    return expected


def by_line(places: Counter[tuple[str, int]]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for (_, number), count in places.items():
        counted[number] += count
    return counted


def run(
    monkeypatch: pytest.MonkeyPatch, vendor: Vendor, costs: HostCosts, ns: int, *,
    with_stack: bool = False, **program: Any,
) -> tuple[Diagnosed, SimulatedBackend, Spiked]:  # fmt: skip
    gpu = Accelerator(vendor, costs)
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.with_stack = with_stack
    step = Spiked(gpu, spike_ns=ns, **program)
    gpu.table = step.table
    with gpu:
        done = diagnose_work(step, Plan(steps=6), ceilings_of(gpu), None, lambda *_: None)
    assert done.diagnosis.step.time_s.median > 0
    return done, backend, step


def diagnosed(
    monkeypatch: pytest.MonkeyPatch, vendor: Vendor, costs: HostCosts, ns: int, **program: Any
) -> Diagnosis:
    done, _, step = run(monkeypatch, vendor, costs, ns, **program)
    assert isinstance(done.analysis, DeviceAnalysis)
    true = true_lines(step)
    assert lines(done.analysis.capture.timeline) == true
    assert lines_of_rows(done.diagnosis) == by_line(true)
    unplaced = any("no module and no source line" in notice for notice in done.diagnosis.notices)
    assert unplaced == (step.how == "compiled")
    return done.diagnosis


def grown(monkeypatch: pytest.MonkeyPatch, vendor: Vendor, costs: HostCosts, **program: Any) -> Any:
    """(growth of each kind's leaves, the shorter step), in us."""
    small, large = (diagnosed(monkeypatch, vendor, costs, ns, **program) for ns in (SMALL, SPIKE))
    return growth_of(small, large), small.step.time_s.median * 1e6


def growth_of(small: Diagnosis, large: Diagnosis) -> dict[str, float]:
    return {
        kind: sum(large.leaves[leaf] - small.leaves[leaf] for leaf in leaves) * 1e6
        for kind, leaves in LEAVES.items()
    }


HOST_BOUND = {"kernel_ns": 3 * US}
DEVICE_BOUND = {"kernel_ns": 40 * US, "waits": True}


@pytest.mark.parametrize("bound", [HOST_BOUND, DEVICE_BOUND], ids=["host", "device"])
@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=["nvidia", "amd"])
def test_eager(
    vendor: Vendor, kind: str, bound: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    growth, step_us = grown(monkeypatch, vendor, HostCosts(), kind=kind, **bound)
    assert growth[kind] == pytest.approx((SPIKE - SMALL) / US, abs=0.01 * step_us)


@pytest.mark.parametrize("how", ["compiled", "graphs"])
@pytest.mark.parametrize("kind", LEAVES)
def test_few_launches(kind: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    growth, step_us = grown(
        monkeypatch, NVIDIA, HostCosts(), kind=kind, how=how, kernel_ns=20 * US, waits=True
    )
    assert growth[kind] == pytest.approx((SPIKE - SMALL) / US, abs=0.01 * step_us)


@pytest.mark.parametrize("kind", LEAVES)
def test_two_streams(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    growth, step_us = grown(
        monkeypatch, AMD, HostCosts(), kind=kind, kernel_ns=20 * US, waits=True, streams=2
    )
    assert growth[kind] == pytest.approx((SPIKE - SMALL) / US, abs=0.01 * step_us)


@pytest.mark.parametrize("bound", [HOST_BOUND, DEVICE_BOUND], ids=["host", "device"])
@pytest.mark.parametrize("kind", LEAVES)
def test_a_profiler_that_costs(
    kind: str, bound: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = replace(HostCosts(), event=800)
    growth, step_us = grown(monkeypatch, NVIDIA, costs, kind=kind, **bound)
    assert growth[kind] == pytest.approx((SPIKE - SMALL) / US, abs=0.01 * step_us)


@pytest.mark.parametrize("how", ["eager", "graphs"])
@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=["nvidia", "amd"])
def test_a_recording_of_the_steps_with_python_frames(
    vendor: Vendor, kind: str, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = []
    for ns in (SMALL, SPIKE):
        _, backend, step = run(
            monkeypatch, vendor, HostCosts(), ns, with_stack=True, kind=kind, how=how,
            kernel_ns=20 * US, waits=True,
        )  # fmt: skip
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(backend.traces[-1]))
        found.append(gobrrr.diagnose_trace(path, ceilings=ceilings_of(step.gpu)))
        # Frames have the lines of functions' ``def``: each kernel has that of its method, a graph's
        # that of the one that replays it.
        expected: Counter[tuple[str, int]] = Counter()
        for (name, true_line), count in true_lines(step).items():
            expected[name, def_above(true_line)] += count
        assert lines(read_trace(path)) == expected
        assert lines_of_rows(found[-1]) == by_line(expected)
    small, large = found
    step_us = small.step.time_s.mean * 1e6
    grew = growth_of(small, large)
    assert grew[kind] == pytest.approx((SPIKE - SMALL) / US, abs=0.01 * step_us)
    if kind == "python":
        line_number = def_above(line("python"))
        (row,) = [r for r in large.idle if (r.source or "").endswith(f":{line_number} in python")]
        assert row.cause == "python" and row.time_s * 1e6 > (SPIKE - SMALL) / US


def def_above(number: int) -> int:
    """The line of the ``def`` that a line of this file stands in; 0 of 0."""
    text = Path(__file__).read_text().splitlines()
    return next((i for i in range(number, 0, -1) if text[i - 1].lstrip().startswith("def ")), 0)
