"""On a device that misbehaves every leaf is true within 2 % of the step, or the cause is said.

``GOBRRR_HOSTILE_CASES`` is the number of random settings (300 by default).
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.attribution.leaves import LEAVES  # noqa: E402
from gobrrr.devices.cuda import graphs  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.measure.load import Load  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.pipeline.script import ScriptOutcome, diagnose_script  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from simulated_device import (  # noqa: E402
    AMD_MODULES,
    INTEL,
    NVIDIA,
    Accelerator,
    Flips,
    HostCosts,
    Hostility,
    Kernel,
    Op,
    Profiling,
    SimulatedBackend,
    Vendor,
)
from simulated_device.as_torch import WatchedTimer, behind_torch  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402
from simulated_device.machine import Ran  # noqa: E402
from simulated_device.truth import GAP, LAUNCH, true_leaves  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
CASES = int(os.environ.get("GOBRRR_HOSTILE_CASES", "300"))
NEAR = 0.02
# Enough before and after the profile for the two to be compared.
STEPS = 24
# Products of this size are bound by compute on the simulated device.
PRODUCT = 128


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What the ops compute is of no interest; threads that wait for each other take long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Program:
    """A step of one of three shapes; ``also`` is done at its start.

    ``few``: long products. ``many``: short ops. ``graph``: one replay. It ends with a sum, which
    the host ``reads`` or not.
    """

    shape: str = "few"
    ops: int = 10
    kernel_us: int = 100
    python_us: int = 20
    reads: bool = True
    also: str = ""
    vendor: Vendor = NVIDIA
    costs: HostCosts = field(default_factory=HostCosts)

    @property
    def calls(self) -> int:
        """Launch calls of a step."""
        return (1 if self.shape == "graph" else self.ops) + 1 + self.reads

    def table(self, op: Op) -> tuple[Kernel, ...] | None:
        """The kernels of its ops: others than a graph's, or the products, are short."""
        long = op.name == "aten::mm" if self.shape == "few" else op.name == "aten::neg"
        # No whole microseconds: old recordings have those, and lengths of 0 in earnest.
        ns = (self.kernel_us if long else 3) * US + 137
        return (Kernel(self.vendor.name_of(op), ns),)

    def on(self, gpu: Accelerator) -> Callable[[], None]:
        """Its step, whose tensors are on the device."""
        x, a = torch.ones(8), torch.ones(PRODUCT, PRODUCT)

        def work() -> None:
            for _ in range(self.ops):
                torch.mm(a, a) if self.shape == "few" else torch.neg(x)

        graph = gpu.capture(work) if self.shape == "graph" else None

        def step() -> None:
            gpu.python(self.python_us * US)
            if self.also == "retry":
                gpu.retry_allocation(400 * US)
            if self.also == "thread":
                with gpu.beside():
                    torch.exp(x)
            graph.replay() if graph else work()
            total = x.sum()
            if self.reads:
                total.item()

        return step


def leaf_of(ran: Ran) -> str:
    if ran.cat != "kernel":
        return "memory.copies"
    return "compute" if ran.op == "aten::mm" else "memory"


def told_leaves(found: Diagnosis) -> dict[str, float]:
    """By the leaves of the truth: roof and below together, in ns."""
    told: dict[str, float] = defaultdict(float)
    for leaf, seconds in found.leaves.items():
        whole = leaf.startswith("overhead.") or leaf in ("memory.copies", "unmodelled")
        told[leaf if whole else leaf.partition(".")[0]] += seconds * 1e9
    return told


@dataclass(frozen=True)
class Outcome:
    """What was told of a program, and the truth; ``found`` is missing where it was refused."""

    found: Diagnosis | None
    said: str
    true_ns: float
    truth: dict[str, float]

    def wrong(self) -> dict[str, tuple[float, float]]:
        """(told, true) us of the leaves that are not near."""
        if self.found is None:
            return {}
        told, truth = told_leaves(self.found), dict(self.truth)
        if GAP not in LEAVES:
            truth[LAUNCH] = truth.get(LAUNCH, 0.0) + truth.pop(GAP, 0.0)
        return {
            leaf: (round(told.get(leaf, 0.0) / US, 1), round(truth.get(leaf, 0.0) / US, 1))
            for leaf in sorted({*told, *truth})
            if abs(told.get(leaf, 0.0) - truth.get(leaf, 0.0)) > NEAR * self.true_ns
        }

    @property
    def refused(self) -> bool:
        """Whether there is no verdict; that a graph's kernels have no formulas is no reason."""
        if self.found is None:
            return True
        return not self.found.verdict and "whose work and ceilings are known" not in self.said

    def names(self, words: str) -> bool:
        """Whether the cause is said."""
        return re.search(words, self.said, re.IGNORECASE) is not None


def outcome(patch: pytest.MonkeyPatch, program: Program, hostile: Hostility) -> Outcome:
    gpu = Accelerator(program.vendor, program.costs, program.table, hostile)
    backend = SimulatedBackend(gpu).install(patch)
    behind_torch(gpu, patch)
    patch.setattr(backend, "timer", lambda: WatchedTimer(gpu))
    # How busy the machine is that the tests run on says nothing of simulated times.
    patch.setattr(Load, "disturbance", lambda *_: None)
    patch.setattr(Load, "taken_away", False)
    found, said = None, ""
    with gpu:
        step = program.on(gpu)
        try:
            done = diagnose_work(step, Plan(steps=STEPS), ceilings_of(gpu), None, lambda *_: None)
            found = done.diagnosis
            said = " ".join([*found.notices, *(f"{f.title} {f.remedy}" for f in found.findings)])
        except InputError as refused:
            said = str(refused)
    true_ns, truth = true_leaves(gpu.machine, leaf_of)
    assert sum(truth.values()) == pytest.approx(true_ns)
    return Outcome(found, said, true_ns, truth)


# What a notice on each fault says, one of its words at least.
RECORDS = r"\brecords?\b|timestamp|recording is not whole"
WINDOWS = r"\bstall|buffer request|steps? of the profile|longer than the other"
SAID = {
    "cost": r"the profiler (?:costs|adds|took|takes)|(?:cost|slowed|added) .{0,40}profiler",
    "gap": r"\bgaps?\b|queued",
    "clock": r"\bclocks?\b|throttl|\bpower\b",
    "stretch": r"\bclocks?\b|kernels .{0,40}(?:longer|slower) .{0,40}profile",
    "residue": r"(?:slower|longer) .{0,20}since the profiler",
    "lost": RECORDS,
    "late": RECORDS,
    "zeroed": RECORDS,
    "empty": RECORDS,
    "stall": WINDOWS,
    "held": WINDOWS,
    "offset": r"\bclocks?\b|before (?:its|their) launch",
    "device": r"(?:another|other|current) (?:device|stream)|events .{0,40}(?:device|stream)",
    "retry": r"expandable_segments",
}  # fmt: skip


# ---- every fault by itself


@dataclass(frozen=True)
class Kind:
    """A fault: its setting; ``must``: it is said even if the leaves are near.

    ``never``: what is not said. ``today``: what is wrong as long as it is not mended.
    """

    name: str
    fault: str = ""
    hostile: Hostility = field(default_factory=Hostility)
    program: Program = field(default_factory=Program)
    must: bool = False
    never: str = ""
    today: str = ""


MANY = Program("many", ops=60, kernel_us=3)
GRAPH = Program("graph", ops=60, kernel_us=4)
# What Kineto and CUPTI took of the host of an H200: benchmarks/results, part ``cost``.
KINETO = Profiling(before=800, inside=100, after=400, call=700, around=2400)
STALL = Hostility(stall_ns=20_000_000, stalled_call=200)
LATE = Hostility(late_every=7, late_ns=-900_000)
KINDS = (
    Kind("kineto's costs", "cost", Hostility(KINETO), MANY),
    Kind("costs within ops", "cost", Hostility(Profiling(inside=2000)), MANY),
    Kind("queued kernels have gaps", "gap", Hostility(gap_ns=1300), Program(kernel_us=15, ops=60)),
    Kind("nodes of a graph have gaps", "gap", Hostility(node_gap_ns=1000), GRAPH,
         never="a CUDA graph"),
    Kind("slower when not profiled", "clock", Hostility(stretch=1 / 1.08)),
    Kind("clocks flip", "clock", Hostility(clock=Flips(9_000_000, 1.2))),
    Kind("kernels longer when profiled", "stretch", Hostility(stretch=1.27), must=True),
    Kind("host slower once profiled", "residue", Hostility(residue=1.2), MANY, must=True),
    Kind("1 of 20 records lost", "lost", Hostility(lost_every=20), must=True),
    Kind("1 of 5 records lost", "lost", Hostility(lost_every=5), must=True),
    Kind("records before their launch", "late", LATE, must=True),
    Kind("1 of 29 records at time 0", "zeroed", Hostility(zeroed_every=29), must=True),
    Kind("first records at time 0", "zeroed", Hostility(zeroed_first=25), must=True),
    Kind("records without a length", "empty", Hostility(empty_every=7), must=True),
    Kind("a stall that is told", "stall", STALL, MANY),
    Kind("a stall that is not told", "stall", replace(STALL, stall_told=False), MANY),
    Kind("a step held", "held", Hostility(stalled_step=2), MANY),
    Kind("device clock behind", "offset", Hostility(offset_ns=-8000), MANY),
    Kind("device clock ahead", "offset", Hostility(offset_ns=8000), MANY),
    Kind("device clock drifts", "offset", Hostility(drift=1e-5), MANY),
    Kind("another device is current", "device", Hostility(device=1), Program(reads=False)),
    Kind("allocator retries", "retry", program=Program(also="retry"), must=True),
    Kind("another thread's kernels", program=Program(also="thread")),
    Kind("names of HIP modules", program=Program(vendor=AMD_MODULES)),
    Kind("names of XPU", program=Program("many", kernel_us=3, vendor=INTEL)),
)  # fmt: skip


def marked(kind: Kind) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=kind.today)] if kind.today else []
    return pytest.param(kind, id=kind.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("kind", [marked(kind) for kind in KINDS])
def test_a_fault_is_told_or_does_no_harm(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(monkeypatch, kind.program, kind.hostile)
    said = bool(kind.fault) and done.names(SAID[kind.fault])
    wrong = done.wrong()
    assert said or not wrong, (wrong, done.said)
    assert said or not kind.must, done.said
    assert said or done.found is not None, done.said
    verdict = done.found.verdict if done.found else ""
    assert not kind.never or not re.search(kind.never, f"{verdict} {done.said}")


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "runs ahead"])
@pytest.mark.parametrize("shape", [Program(), MANY, GRAPH], ids=["few", "many", "graph"])
def test_of_an_honest_device_no_fault_is_told(
    shape: Program, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = outcome(monkeypatch, replace(shape, reads=reads), Hostility())
    assert not done.refused and not done.wrong()
    assert not [fault for fault, words in SAID.items() if done.names(words)], done.said


# Of which the device is busy for all but a hundredth, whatever a profiler takes of the host.
BUSY = (
    Program(ops=20, kernel_us=200), Program(ops=60, kernel_us=50),
    Program("graph", ops=100, kernel_us=30), Program("few", ops=80, kernel_us=30, python_us=0),
)  # fmt: skip


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "runs ahead"])
@pytest.mark.parametrize("program", BUSY, ids=["long", "middle", "graph", "many"])
def test_of_a_busy_device_neither_costs_nor_gaps_are_a_fault(
    program: Program, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Hostility(KINETO, gap_ns=1300, node_gap_ns=1000)
    done = outcome(monkeypatch, replace(program, reads=reads), usual)
    assert done.found is not None and not done.wrong() and not done.refused
    told = [fault for fault, words in SAID.items() if done.names(words)]
    assert told in ([], ["gap"]), done.said
    assert "may have" not in done.said and "The profiler" not in done.said


def test_steps_that_only_keep_a_tensor_on_the_device_are_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, there = torch.ones(64, 64), torch.ones(8)
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    gpu.on_host(x)
    with gpu:
        kept = there + 1
        done = diagnose_work(
            lambda: torch.mm(x, x), Plan(steps=4), ceilings_of(gpu), None, lambda *_: None
        )
    assert kept is not None and done.diagnosis.device.kind == "cpu"


# ---- faults at random


def between(low: float, high: float) -> Callable[[Random], float]:
    return lambda random: random.uniform(low, high)


def ns_between(low: int, high: int) -> Callable[[Random], int]:
    return lambda random: random.randint(low, high)


def costs(random: Random) -> Profiling:
    return Profiling(*(random.randint(0, most) for most in (1500, 500, 800, 2000, 4000)))


def flips(random: Random) -> Flips:
    return Flips(random.randint(1, 20) * 1_000_000, random.uniform(1.02, 1.25))


def moved(random: Random) -> int:
    # Far enough to be behind a later kernel or before the launch: less is nowhere to be seen.
    return random.choice((-1, 1)) * random.randint(300_000, 900_000)


def off(random: Random) -> int:
    # A launch begins at most 9 us before its kernel; what comes after a wait for it is seen.
    return random.choice((-1, 1)) * random.randint(10_000, 20_000)


# Settings of each fault, as large as can be seen in records; counts are within a profile.
AT_RANDOM: dict[str, dict[str, Callable[[Random], Any]]] = {
    "cost": {"profiling": costs},
    "gap": {"gap_ns": ns_between(500, 2500), "node_gap_ns": ns_between(300, 1500)},
    "clock": {"clock": flips},
    "stretch": {"stretch": between(0.85, 1.3)},
    "residue": {"residue": between(1.03, 1.25)},
    "lost": {"lost_every": ns_between(3, 40)},
    "late": {"late_every": ns_between(3, 40), "late_ns": moved},
    "zeroed": {"zeroed_every": ns_between(3, 40), "zeroed_first": ns_between(0, 30)},
    "empty": {"empty_every": ns_between(3, 40)},
    "stall": {
        "stall_ns": ns_between(5_000_000, 30_000_000), "stall_told": lambda r: r.random() < 0.5,
    },
    "held": {"stalled_step": ns_between(1, 3), "held_ns": ns_between(200_000, 4_000_000)},
    "offset": {"offset_ns": off, "drift": between(-1e-5, 1e-5)},
    "device": {"device": lambda r: 1},
}  # fmt: skip


def drawn(seed: int) -> tuple[Program, Hostility, list[str]]:
    """A program, and one to three faults."""
    random = Random(seed)
    faults = random.sample(list(AT_RANDOM), random.choice((1, 1, 2, 3)))
    # Where the host bounds the step, nothing but the card tells how fast it ran kernels.
    shapes = ("few", "graph") if {"clock", "stretch"} & {*faults} else ("few", "many", "graph")
    shape = random.choice(shapes)
    long, most = {"few": ((30, 250), 20), "many": ((2, 5), 80), "graph": ((2, 30), 80)}[shape]
    program = Program(
        shape, random.randint(6, most), random.randint(*long), random.randint(0, 300),
        reads=random.random() < 0.6,
        costs=HostCosts(
            python=random.randint(500, 5000), dispatch=random.randint(2000, 9000),
            launch=random.randint(1500, 5000), latency=random.randint(1000, 4000),
        ),
    )  # fmt: skip
    settings = {name: draw(random) for fault in faults for name, draw in AT_RANDOM[fault].items()}
    if "stall" in faults:
        settings["stalled_call"] = random.randint(program.calls, 3 * program.calls)
    return program, Hostility(**settings), faults


@pytest.mark.parametrize("seed", range(CASES))
def test_every_leaf_is_near_its_truth_or_the_cause_is_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, hostile, faults = drawn(seed)
    done = outcome(monkeypatch, program, hostile)
    told = any(done.names(SAID[fault]) for fault in faults)
    wrong = done.wrong()
    assert told or done.refused or not wrong, (faults, program, hostile, wrong, done.said)


# ---- a step that is captured


CAPTURES = """
import torch, the_gpu
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(8, 16)

def step():
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()

for _ in range({before}):
    step()
graph = the_gpu.capture(step)
for _ in range(60):
    graph.replay()
print("the program went on to its end")
"""


def captured(before: int, patch: pytest.MonkeyPatch, folder: Path) -> ScriptOutcome:
    """Of a script that captures its step after so many."""
    gpu = Accelerator(table=lambda op: (Kernel(NVIDIA.name_of(op), 20 * US),))
    SimulatedBackend(gpu).install(patch)
    patch.setattr(graphs, "around_replays", gpu.around_replays)
    patch.setitem(sys.modules, "the_gpu", gpu)
    (folder / "captures.py").write_text(CAPTURES.format(before=before))
    patch.chdir(folder)
    with gpu:
        return diagnose_script("captures.py", [], steps=6)


@pytest.mark.parametrize("before", [3, 8, 14])
def test_a_step_that_is_being_captured_is_left_alone(
    before: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ended = captured(before, monkeypatch, tmp_path)
    assert "the program went on to its end" in capfd.readouterr().out
    assert ended.exit.code == 0 and "GPU failed" not in (ended.problem or "")


@pytest.mark.parametrize("before", [3, 14])
def test_replays_of_a_step_that_was_captured_are_steps(
    before: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = captured(before, monkeypatch, tmp_path)
    assert ended.diagnosis is not None and ended.problem is None
