"""Steps of different sizes on a device: work and time are both means, and of the same sizes."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.attribution.device.run import DeviceAnalysis  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import Diagnosed, diagnose_work  # noqa: E402
from simulated_device import NVIDIA, Accelerator, Kernel, Op, SimulatedBackend  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
WIDTH, LAYERS = 16, 4
# Seven sizes, which each block of timed steps and the profiled ones have alike often; and five,
# of which the profiled steps have others than the timed ones.
ROWS, OTHERS = (1, 2, 3, 4, 5, 6, 21), (1, 2, 3, 5, 14)
US_OF_ROW = 100


def by_rows(op: Op) -> tuple[Kernel, ...]:
    """A product takes as long as it has rows; everything else next to nothing."""
    rows = op.inputs[0][0][0] if op.name == "aten::mm" else 0
    return (Kernel(NVIDIA.name_of(op), US + rows * US_OF_ROW * US),)


def diagnosed(monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], steps: int = 14) -> Diagnosed:
    gpu = Accelerator(table=by_rows)
    SimulatedBackend(gpu).install(monkeypatch)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    done = [0]

    def step() -> Any:
        done[0] += 1
        return model(torch.ones(rows[done[0] % len(rows)], WIDTH))

    with gpu, torch.no_grad():
        return diagnose_work(step, Plan(steps=steps), ceilings_of(gpu), None, lambda *_: None)


def products(done: Diagnosed) -> list[Any]:
    return [row for row in done.diagnosis.ops if row.name == "aten::mm"]


def test_work_and_time_of_steps_that_vary_are_means(monkeypatch: pytest.MonkeyPatch) -> None:
    done = diagnosed(monkeypatch, ROWS)
    found = done.diagnosis
    assert found.device.kind == "cuda"
    assert found.step.varying and found.step.basis == "mean"
    # Four products of 100 us a row, six rows in the mean and four in the median.
    row_s = LAYERS * US_OF_ROW * 1e-6
    assert found.step.time_s.mean == pytest.approx(row_s * mean(ROWS), rel=0.02)
    assert found.step.time_s.median == pytest.approx(row_s * median(ROWS), rel=0.02)
    assert sum(found.leaves.values()) == pytest.approx(found.step.time_s.mean)
    flops = 2 * LAYERS * WIDTH * WIDTH * mean(ROWS)
    assert sum(row.flops for row in products(done)) == pytest.approx(flops)
    assert sum(row.time_s for row in products(done)) == pytest.approx(row_s * 6, rel=0.05)
    assert sum(row.count for row in products(done)) == pytest.approx(LAYERS)
    # Each size has its own shapes, its own work and its own time.
    for row in products(done):
        rows = int(row.shapes[1:].split(",")[0])
        assert row.flops == pytest.approx(2 * rows * WIDTH * WIDTH * row.count)
        assert row.time_s == pytest.approx((rows * US_OF_ROW + 1) * 1e-6 * row.count, rel=0.05)
    assert {row.shapes.split(",")[0] for row in products(done)} == {f"({n}" for n in ROWS}
    # Of what size they are makes no difference to where they are.
    named = {row.name.rpartition(".")[2] for row in found.modules if row.name}
    assert {str(layer) for layer in range(LAYERS)} <= named
    assert found.mfu == pytest.approx(flops / NVIDIA.matrix[4] / found.step.time_s.mean, rel=0.01)


def test_profiled_steps_count_as_the_sizes_of_the_timed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = diagnosed(monkeypatch, OTHERS, steps=23)
    found, measured = done.diagnosis, done.measured
    timed = [*measured.plain_windows[0], *measured.plain_windows[1]]
    rows = mean(measured.windows[i].size / WIDTH for i in timed)
    # Or the test would test nothing.
    assert max(measured.kind.window_counts) > 1.03
    assert found.step.time_s.mean == pytest.approx(LAYERS * US_OF_ROW * 1e-6 * rows, rel=0.02)
    flops = sum(row.flops for row in products(done))
    assert flops == pytest.approx(2 * LAYERS * WIDTH * WIDTH * rows)
    assert found.counters["flops"] == pytest.approx(flops, rel=0.01)
    # They fill the step, as they did: nothing of it is left for the host, and nothing is scaled.
    taken_s = sum(row.time_s for row in products(done))
    assert taken_s == pytest.approx(found.step.time_s.mean, rel=0.02)
    assert found.step.kernel_scale == pytest.approx(1.0, rel=0.02)
    assert found.split.overhead_s < 0.05 * found.step.time_s.mean
    assert sum(row.count for row in products(done)) == pytest.approx(LAYERS)


def test_an_op_of_a_step_that_varies_has_the_work_of_the_mean_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = diagnosed(monkeypatch, ROWS)
    analysis = done.analysis
    assert isinstance(analysis, DeviceAnalysis)
    works = [op.work for op in analysis.ordered_ops() if op.op.call.name == "aten::mm"]
    assert [work and work.matrix_flops for work in works] == [
        pytest.approx(2 * WIDTH * WIDTH * mean(ROWS))
    ] * LAYERS


def test_steps_of_one_size_have_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(monkeypatch, (4,)).diagnosis
    assert not found.step.varying
    assert found.step.basis == "median"
    assert sum(found.leaves.values()) == pytest.approx(found.step.time_s.median)
