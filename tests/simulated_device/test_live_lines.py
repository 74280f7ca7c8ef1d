"""A step on a GPU, live and recorded: each kernel has its true op, line, module and phase."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.attribution.device.run import DeviceAnalysis  # noqa: E402
from gobrrr.cli import main  # noqa: E402
from gobrrr.devices import Ceiling, Ceilings  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.observe import op_recorder  # noqa: E402
from gobrrr.observe.private_names import FOR_RECORDING  # noqa: E402
from gobrrr.pipeline.live import Diagnosed, diagnose_work  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from gobrrr.timeline.names import GRAPH_REPLAY  # noqa: E402
from simulated_device import (  # noqa: E402
    AMD,
    NVIDIA,
    Accelerator,
    Kernel,
    Op,
    SimulatedBackend,
    Vendor,
)
from simulated_device import programs as made  # noqa: E402
from simulated_device.places import Place, lines, places  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
NAMES = ("up", "relu", "down", "residual", "loss", "backward", "optimizer")


def several_kernels(op: Op) -> tuple[Kernel, ...] | None:
    """A product has two kernels: itself, and the reduction of its split sums."""
    if op.name == "aten::mm":
        return (Kernel("ampere_sgemm_128x64_nn", 40 * US), Kernel("splitKreduce_kernel", 5 * US))
    return (Kernel(f"void {op.name.removeprefix('aten::')}_kernel<float>", 10 * US),)


def true_places(line: dict[str, int], module: dict[str, str]) -> Counter[Place]:
    """The kernels of ``programs.Training`` per step; what its lines and modules are called."""
    expected: Counter[Place] = Counter()
    for i in range(2):
        block = f"blocks.{i}"
        own, up, down = module[block], module[f"{block}.up"], module[f"{block}.down"]
        expected["mm", line["up"], up, "forward"] = 2
        expected["relu", line["relu"], own, "forward"] = 1
        expected["mm", line["down"], down, "forward"] = 2
        expected["add", line["residual"], own, "forward"] = 1
        # Of the weight and of the input, two kernels each; the first block's input needs none.
        expected["mm", line["down"], down, "backward"] = 4
        expected["threshold_backward", line["relu"], own, "backward"] = 1
        expected["mm", line["up"], up, "backward"] = 2 if i == 0 else 4
    # The second block's input is used twice: its gradients are added up when both are there.
    expected["add", line["up"], module["blocks.1.up"], "backward"] = 1
    for name, phase in (("pow", "forward"), ("mean", "forward"), ("div", "backward"),
                        ("pow", "backward"), ("mul", "backward")):  # fmt: skip
        expected[name, line["loss"], "", phase] += 1
    expected["mul", line["loss"], "", "backward"] += 1
    expected["ones_like", line["backward"], "", "forward"] = 1
    # Four parameters, in one list: SGD adds one at a time on a CPU, which the tensors are.
    expected["add_", line["optimizer"], "", "optimizer"] = 4
    return expected


PATHS = [f"blocks.{i}{part}" for i in range(2) for part in ("", ".up", ".down")]
RUNNING = {name: made.line_of(name) for name in NAMES}
# A recording names modules by class and number, and lines by the ``def`` that they stand in.
RECORDED_MODULES = {
    f"blocks.{i}{part}": f"Net_0.Block_{i}{of_layer}"
    for i in range(2)
    for part, of_layer in (
        ("", ""), (".up", f".Linear_{2 * i}"), (".down", f".Linear_{2 * i + 1}"),
    )
}  # fmt: skip
IN_FORWARD = made.Block.forward.__code__.co_firstlineno
IN_STEP = made.Training.__call__.__code__.co_firstlineno
DEFINED = {
    name: IN_STEP if name in ("loss", "backward", "optimizer") else IN_FORWARD for name in NAMES
}


def diagnosed(step: Any) -> Diagnosed:
    return diagnose_work(step, Plan(steps=6), None, None, lambda *_: None)


@pytest.mark.parametrize("with_stack", [False, True])
@pytest.mark.parametrize("vendor", [NVIDIA, AMD])
def test_every_kernel_has_its_place(
    vendor: Vendor, with_stack: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpu = Accelerator(vendor, table=several_kernels)
    SimulatedBackend(gpu).install(monkeypatch).with_stack = with_stack
    step = made.Training()
    with gpu:
        done = diagnosed(step)
    diagnosis = done.diagnosis
    assert (diagnosis.device.name, diagnosis.device.kind) == (vendor.device, vendor.kind)
    assert isinstance(done.analysis, DeviceAnalysis)
    # The recorded op's executing line, also where the profiler has the function's.
    found = places(done.analysis.capture.timeline)
    assert found == true_places(RUNNING, {path: path for path in PATHS})
    assert not [notice for notice in diagnosis.notices if "stack" in notice or "line" in notice]
    # The work of a product counts once, however many kernels it has. # 2 x 4 x 16 x 32
    rows = [row for row in diagnosis.ops if row.name == "aten::mm" and row.phase == "forward"]
    flops = [row.flops / row.count for row in rows if row.flops]
    assert flops == [pytest.approx(2 * 4 * 16 * 32)] * len(rows)


@pytest.mark.parametrize("vendor", [NVIDIA, AMD])
def test_a_trace_with_python_frames_has_the_lines_of_functions(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = Accelerator(vendor, table=several_kernels)
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.with_stack = True
    with gpu:
        diagnosed(made.Training(after_step=gpu.synchronise))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(backend.traces[-1]))
    assert places(read_trace(path)) == true_places(DEFINED, RECORDED_MODULES)
    saved = tmp_path / "diagnosis.json"
    assert main(["trace", str(path), "--json", str(saved)]) == 0
    found = gobrrr.load(saved)
    file = "simulated_device/programs.py"
    in_block, in_step = f"{file}:{IN_FORWARD} in forward", f"{file}:{IN_STEP} in __call__"
    assert {row.name for row in found.lines} == {in_block, in_step}
    assert {row.name for row in found.modules} == {*RECORDED_MODULES.values(), ""}
    # What the device waits for is the way to the first product.
    assert {row.source for row in found.idle if row.cause == "python"} == {in_block}
    assert not [notice for notice in found.notices if "stack" in notice]


def test_a_torch_that_cannot_be_watched_gives_kernels_without_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpu = Accelerator(table=several_kernels)
    SimulatedBackend(gpu).install(monkeypatch)
    # Torch itself needs the names, and cannot be without them here.
    gone = FOR_RECORDING[0]
    monkeypatch.setattr(op_recorder, "lacking", lambda: (gone,))
    with gpu:
        done = diagnosed(made.Training())
    assert isinstance(done.analysis, DeviceAnalysis)
    true = Counter[str]()
    for (name, *_), count in true_places(RUNNING, {path: path for path in PATHS}).items():
        true[name] += count
    assert lines(done.analysis.capture.timeline) == {(name, 0): n for name, n in true.items()}
    assert done.diagnosis.notices.count(
        f"The ops of this step could not be recorded (this PyTorch has no {gone}): its kernels "
        "have the shapes that torch's profiler saw, but no lines and no modules."
    ) == 1  # fmt: skip
    products = [row for row in done.diagnosis.ops if row.name == "aten::mm"]
    assert products and all(row.flops for row in products)


def test_ceilings_are_the_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured: list[str] = []
    from gobrrr.devices.cpu import backend as processor

    def refuse(*_: object) -> None:
        measured.append("processor")
        raise AssertionError("the processor's ceilings were asked for")

    monkeypatch.setattr(processor, "measure", refuse)
    gpu = Accelerator(table=several_kernels)
    backend = SimulatedBackend(gpu).install(monkeypatch)
    step = made.Training()
    with gpu:
        first = gobrrr.diagnose(step, steps=4, progress=False)
        gobrrr.diagnose(step, steps=4, progress=False)
        assert backend.measured == 1
        again = gobrrr.diagnose(step, steps=4, progress=False, refresh_ceilings=True)
    assert backend.measured == 2 and not measured
    rows = {row.name: row.value for row in first.device.ceilings}
    assert rows["matrix.float32"] == NVIDIA.matrix[4] and again.device.ceilings
    given = Ceilings(
        "given", {"matrix.float32": Ceiling("matrix.float32", 1e15, "FLOP/s", "given", "x")}, ()
    )
    with gpu:
        told = gobrrr.diagnose(step, steps=4, progress=False, ceilings=given)
    assert backend.measured == 2
    assert [(row.name, row.value) for row in told.device.ceilings] == [("matrix.float32", 1e15)]


def test_kernels_of_a_graph_are_on_the_line_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=several_kernels)
    SimulatedBackend(gpu).install(monkeypatch)
    with gpu:
        graphs = [gpu.capture(lambda: torch.mm(x, x)), gpu.capture(lambda: [x + 1, x + 2])]

        def step() -> None:
            graphs[0].replay()  # line: first
            torch.relu(x)  # line: between
            graphs[1].replay()  # line: second

        done = diagnose_work(step, Plan(steps=6), None, None, lambda *_: None)
    assert isinstance(done.analysis, DeviceAnalysis) and done.analysis.in_order
    first, between, second = (made.line_of(w, __file__) for w in ("first", "between", "second"))
    assert lines(done.analysis.capture.timeline) == {
        ("ampere_sgemm_128x64_nn", first): 1, ("splitKreduce_kernel", first): 1,
        ("relu", between): 1, ("void add_kernel<float>", second): 2,
    }  # fmt: skip
    # Of the three recorded ops, each replay has the time of its kernels: 45 us, 10 us, 20 us.
    ordered = done.analysis.ordered_ops()
    assert [(op.op.call.name, op.kernel_ns + op.fixed_ns) for op in ordered] == [
        (GRAPH_REPLAY, pytest.approx(45 * US)), ("aten::relu", pytest.approx(10 * US)),
        (GRAPH_REPLAY, pytest.approx(20 * US)),
    ]  # fmt: skip
    assert not gpu.before_replays
