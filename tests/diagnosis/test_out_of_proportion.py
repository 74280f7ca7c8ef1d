"""Kinds of ops whose time is out of proportion have a line of their own, with what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.attribution.attributed import AttributedOp
from gobrrr.attribution.leaves import COMPUTE_VECTOR, MEMORY, KernelShares
from gobrrr.diagnosis.out_of_proportion import (
    FETCHES,
    FUNCTIONS,
    KINDS,
    LOOPS,
    RANDOM,
    SORTS,
    drawn_in,
    out_of_proportion,
)
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work

MS = 1e6  # ns


def tensor(storage: int, *shape: int, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(shape or (1024,), "float32", strides, storage)


class Steps:
    """A step put together op by op; times in ms."""

    def __init__(self) -> None:
        self.ops: list[StepOp] = []
        self.works: list[Work | None] = []
        self.roofs: list[Roof | None] = []
        self.times: list[float] = []

    def op(
        self,
        name: str,
        time: float,
        *,
        needs: float = 0.0,
        args: tuple[TensorSpec, ...] = (),
        outputs: tuple[TensorSpec, ...] | None = None,
        source: str = "",
        special: float = 0.0,
        op_class: str = "elementwise",
        limit: str = "",
        phase: Phase = Phase.FORWARD,
    ) -> Steps:
        """An op of so many ms, whose bytes need ``needs`` of them at the ceiling."""
        call = OpCall(f"aten::{name}", args, outputs)
        self.ops.append(StepOp(call, "", source, phase))
        self.works.append(Work(0.0, 1.0, 8, 0, 8, "float32", op_class, special))
        least_s = (time if limit else needs) * 1e-3
        regime = COMPUTE_VECTOR if limit else MEMORY
        self.roofs.append(Roof(least_s, regime, 0.0, 0.0, needs * 1e-3, "dram", limit))
        self.times.append(time * MS)
        return self

    def findings(self, step_ms: float, *, on_cpu: bool = True):
        time = np.array(self.times)
        zero = np.zeros(len(time))
        roof = np.array([roof.time_s * 1e9 for roof in self.roofs])
        at_roof = np.minimum(roof, time)
        shares = KernelShares(
            kernel=np.arange(len(time)), duration_ns=time, owned_ns=time, fixed_ns=zero,
            page_faults_ns=zero, roof_ns=at_roof, below_ns=time - at_roof, full_roof_ns=roof,
            regime=np.array([roof.regime for roof in self.roofs], np.uint8),
        )  # fmt: skip
        return out_of_proportion(self.items(), shares, step_ms * 1e-3, on_cpu=on_cpu)

    def items(self) -> list[AttributedOp]:
        return [
            AttributedOp(op, work, roof, row, 0.0)
            for row, (op, work, roof) in enumerate(zip(self.ops, self.works, self.roofs))
        ]


def dropout_step() -> Steps:
    """A matrix product, a dropout as PyTorch does it on a processor, and its backward pass."""
    x, mask, out, gradient = tensor(1), tensor(2), tensor(3), tensor(4)
    at = {"source": "model.py:7 in forward"}
    return (
        Steps()
        .op("mm", 60, needs=50, args=(tensor(9), x), outputs=(x,), op_class="contraction")
        .op("bernoulli_", 24, needs=1, args=(mask,), outputs=(mask,), limit="random numbers", **at)
        .op("div_", 2, needs=1, args=(mask,), outputs=(mask,), **at)
        .op("mul", 3, needs=2, args=(x, mask), outputs=(out,), **at)
        .op("mul", 3, needs=2, args=(gradient, mask), outputs=(tensor(5),), **at)
        .op("add", 8, needs=8, args=(out, x), outputs=(tensor(6),))
    )


def test_dropout_of_a_quarter_of_the_step_is_said_with_its_line_and_what_is_left_without():
    (found,) = dropout_step().findings(100)
    assert found.fix == RANDOM
    assert found.title == "Dropout's random numbers take 24 % of the step"
    assert "bernoulli_ takes 24.0 ms at model.py:7 in forward" in found.because
    # 24 of drawing, 2 + 3 + 3 of masks: 68 of 100 are left.
    assert "Without dropout" in found.because and "would take 0.68x" in found.because
    prediction = found.prediction
    assert prediction.low_s == pytest.approx(0.024)
    assert prediction.expected_s == pytest.approx(0.032)
    assert prediction.speedup == pytest.approx(100 / 68)
    assert found.sources == ["model.py:7 in forward"]
    assert found.leaves[0] == "compute.vector.roof"
    assert found.advice


def test_masks_end_where_their_memory_is_used_for_something_else():
    step = dropout_step()
    assert list(drawn_in(step.items()).masks) == [2, 3, 4]
    mask, x = tensor(2), tensor(1)
    step.op("mm", 5, args=(x, x), outputs=(mask,), op_class="contraction")
    step.op("mul", 5, args=(x, mask), outputs=(tensor(7),))
    assert list(drawn_in(step.items()).masks) == [2, 3, 4]


def test_a_dropout_written_by_hand_is_one_too():
    drawn, mask, x = tensor(2), tensor(3), tensor(1)
    step = (
        Steps()
        .op("rand", 20, args=(), outputs=(drawn,))
        .op("lt", 2, args=(drawn,), outputs=(mask,))
        .op("mul", 3, args=(x, mask), outputs=(tensor(4),))
    )
    (found,) = step.findings(100)
    assert found.title.startswith("Dropout's random numbers take 20 %")
    assert found.prediction.expected_s == pytest.approx(0.025)


def test_noise_is_no_dropout():
    noise, x = tensor(2), tensor(1)
    step = (
        Steps()
        .op("normal_", 30, args=(noise,), outputs=(noise,), source="diffuse.py:3 in q_sample")
        .op("mul", 1, args=(noise,), outputs=(tensor(3),))
        .op("add", 1, args=(x, tensor(3)), outputs=(tensor(4),))
    )
    (found,) = step.findings(100)
    assert found.title == "Random numbers take 30 % of the step"
    assert "dropout" not in found.because.lower()
    # What scales the noise goes with it, what adds it to the data does not.
    assert found.prediction.expected_s == pytest.approx(0.031)


def test_what_is_drawn_for_other_things_is_told_apart_from_dropout():
    data, mask = tensor(7), tensor(2)
    step = Steps().op("randn", 10, outputs=(data,), source="data.py:1 in batch")
    step.op("mul", 1, args=(data,), outputs=(tensor(8),))
    step.op("bernoulli_", 20, args=(mask,), outputs=(mask,), source="model.py:7 in forward")
    step.op("mul", 3, args=(tensor(8), mask), outputs=(tensor(9),))
    dropout, data_made = step.findings(100)
    assert dropout.title == "Dropout's random numbers take 20 % of the step"
    assert "randn" not in dropout.because
    assert dropout.sources == ["model.py:7 in forward"]
    # What drops data that was drawn goes with dropout.
    assert dropout.prediction.expected_s == pytest.approx(0.023)
    assert data_made.title == "Random numbers take 10 % of the step"
    assert data_made.prediction.expected_s == pytest.approx(0.011)


def test_lines_are_named_by_their_share():
    step = Steps()
    for line, time in (("a.py:1", 4), ("b.py:2", 3), ("c.py:3", 3)):
        step.op("bernoulli_", time, args=(tensor(2),), outputs=(tensor(2),), source=line)
    (found,) = step.findings(100)
    assert "bernoulli_ ×3 takes 10.0 ms, 40 % of it at a.py:1" in found.because
    assert found.sources == ["a.py:1", "b.py:2", "c.py:3"]


@pytest.mark.parametrize(
    ("op", "kind", "says"),
    [
        ({"name": "gelu", "special": 8.0}, FUNCTIONS, "Transcendental functions take 30 %"),
        ({"name": "sort", "op_class": "other"}, SORTS, "Sorting and selecting takes 30 %"),
        ({"name": "topk", "op_class": "other"}, SORTS, "Sorting and selecting takes 30 %"),
        ({"name": "index", "op_class": "movement"}, FETCHES, "Gathering by index takes 30 %"),
        ({"name": "embedding", "op_class": "movement"}, FETCHES, "Gathering by index takes 30 %"),
        ({"name": "cumsum", "op_class": "other"}, LOOPS, "cumsum takes 30 % of the step"),
    ],
)
def test_each_kind_has_its_own_line(op, kind, says):
    args = {"args": (tensor(1),), "outputs": (tensor(2),), "source": "m.py:1 in f"}
    (found,) = Steps().op(time=30, needs=2, **op, **args).findings(100)
    assert (found.fix, kind in KINDS) == (kind, True)
    assert found.title.startswith(says)
    # At the ceiling 2 of the 30 are left, at half of it 4.
    assert found.prediction.high_s == pytest.approx(0.028)
    assert found.prediction.expected_s == pytest.approx(0.026)
    assert found.prediction.low_s == 0.0
    assert "0.74x" in found.because and "m.py:1 in f" in found.because


@pytest.mark.parametrize(
    "op",
    [
        # In proportion to its bytes.
        {"name": "gelu", "time": 30, "needs": 15, "special": 8.0},
        {"name": "index", "time": 30, "needs": 12, "op_class": "movement"},
        {"name": "cumsum", "time": 30, "needs": 5, "op_class": "other"},
        # Too little of the step.
        {"name": "bernoulli_", "time": 4, "needs": 1},
        {"name": "sort", "time": 4, "needs": 0.1, "op_class": "other"},
        # Products have remedies of their own, and optimizers fixes.
        {"name": "mm", "time": 90, "needs": 1, "op_class": "contraction"},
        {"name": "add_", "time": 90, "needs": 1, "phase": Phase.OPTIMIZER},
        # At a ceiling that was measured of it.
        {"name": "silly", "time": 90, "needs": 1, "limit": "random numbers"},
    ],
    ids=lambda op: f"{op['name']}-{op['time']}",
)
def test_what_is_in_proportion_has_none(op):
    assert Steps().op(**op, args=(tensor(1),), outputs=(tensor(2),)).findings(100) == []


def test_many_calls_too_short_to_tell_are_no_slow_loop():
    step = Steps()
    for _ in range(5000):
        step.op("cumsum", 0.01, needs=1e-6, args=(tensor(1),), op_class="other")
    assert step.findings(60) == []


@pytest.mark.parametrize(
    ("strides", "on_cpu", "hint"),
    [
        (None, True, "channels-last"),
        ((4096, 1, 64, 8), True, "another kernel or layout"),
        (None, False, "another kernel or layout"),
    ],
    ids=["channels first", "channels last", "a GPU"],
)
def test_pooling_of_images_in_channels_first_is_told_of_the_other_layout(strides, on_cpu, hint):
    image = tensor(1, 2, 8, 64, 8, strides=strides)
    step = Steps().op(
        "max_pool2d_with_indices", 40, needs=1, args=(image,), outputs=(tensor(2),),
        op_class="movement",
    )  # fmt: skip
    (found,) = step.findings(100, on_cpu=on_cpu)
    assert f"{hint} could reduce the step" in found.because
    assert ("channels-last" in found.because) == (hint == "channels-last")


def test_the_longest_comes_first_and_loops_do_not_fill_the_page():
    step = Steps()
    for place, name in enumerate(("cumsum", "cumprod", "nonzero", "searchsorted", "flip")):
        step.op(name, 10 + place, needs=0.1, args=(tensor(1),), op_class="other")
    step.op("bernoulli_", 30, args=(tensor(2),), outputs=(tensor(2),))
    found = step.findings(200)
    assert [f.title.split()[0] for f in found] == ["Dropout's", "flip", "searchsorted", "nonzero"]


def test_a_step_of_no_time_has_no_findings():
    assert dropout_step().findings(0) == []
