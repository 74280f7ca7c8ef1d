"""The work of a mean step, from steps of several sizes."""

from __future__ import annotations

from gobrrr.attribution.mean_work import mean_works
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work


def op(name: str, faults: int = 0) -> StepOp:
    return StepOp(OpCall(f"aten::{name}", ()), "", "", Phase.FORWARD, 1, faults)


def work(flops: float | None, moved: int | None = 0, fresh: int = 0) -> Work:
    return Work(flops, 2.0, moved, moved, moved, "float32", "other", 1.0, fresh)


def test_each_step_counts_as_much_as_its_share() -> None:
    ops = [op("mm", 10), op("add", 2)]
    more = [op("mm", 50), op("add", 6)]
    works, calls, faults = mean_works(
        [
            (ops, [work(100.0, 40, 8), work(4.0, 7)], 0.75),
            (more, [work(300.0, 80, 16), None], 0.25),
        ]
    )
    product, unknown = works
    assert product is not None
    # 3/4 of the first, 1/4 of the second.
    assert (product.matrix_flops, product.vector_flops, product.special) == (150.0, 2.0, 1.0)
    assert (product.bytes_read, product.bytes_written, product.unique_bytes) == (50, 50, 50)
    assert product.fresh_bytes == 10
    # One that is unknown makes the mean unknown.
    assert unknown is None
    assert calls.tolist() == [1.0, 1.0]
    assert faults.tolist() == [20.0, 3.0]


def test_an_op_that_not_every_step_runs_is_called_less() -> None:
    both, one = [op("mm"), op("dropout", 8)], [op("mm")]
    works, calls, faults = mean_works(
        [(both, [work(10.0), work(6.0)], 0.4), (one, [work(20.0)], 0.6)]
    )
    assert calls.tolist() == [1.0, 0.4]
    assert [each and each.matrix_flops for each in works] == [16.0, 6.0]
    assert faults.tolist() == [0.0, 8.0]


def test_bytes_that_one_step_does_not_know_are_unknown() -> None:
    ops = [op("mm")]
    (found,), _, _ = mean_works([(ops, [work(1.0, None)], 0.5), (ops, [work(3.0, 8)], 0.5)])
    assert found is not None
    assert (found.matrix_flops, found.bytes_read) == (2.0, None)


def test_beyond_the_recorded_sizes_nothing_is_below_zero() -> None:
    ops = [op("mm", 1)]
    # 1.5 of the larger less 0.5 of the smaller.
    (found,), calls, faults = mean_works(
        [(ops, [work(10.0, 100)], 1.5), ([op("mm", 9)], [work(40.0, 4)], -0.5)]
    )
    assert found is not None
    assert (found.matrix_flops, found.bytes_read) == (0.0, 148)
    assert (calls.tolist(), faults.tolist()) == ([1.0], [0.0])
    # What only the smaller runs: the step itself stands.
    (alone,), calls, faults = mean_works([(ops, [work(10.0)], -0.5)])
    assert alone is not None
    assert (alone.matrix_flops, calls.tolist(), faults.tolist()) == (10.0, [1.0], [1.0])
