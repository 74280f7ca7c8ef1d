"""Which events of a profiled step are the ops that a recorder saw, where layers lie above them."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.live.profiles.candidates import candidate_rows, match_steps
from gobrrr.live.profiles.profile import RawEvents


def nested(*lines: str) -> RawEvents:
    """One event a line, each inside the last one that is indented less."""
    depth = [len(line) - len(line.lstrip()) for line in lines]
    names = tuple(dict.fromkeys(line.strip() for line in lines))
    count = len(lines)
    end = []
    for i in range(count):
        after = next((j for j in range(i + 1, count) if depth[j] <= depth[i]), count)
        # Later than any that it holds, before the next one starts.
        end.append(after * 100_000 - 1000 * depth[i] - 1000)
    return RawEvents(
        names=names,
        start_ns=np.arange(count, dtype=np.int64) * 100_000,
        end_ns=np.array(end, np.int64),
        name=np.array([names.index(line.strip()) for line in lines], np.int32),
        thread=np.zeros(count, np.int32),
        annotation=np.zeros(count, bool),
        length_ns=count * 100_000,
    )


def matched(step: RawEvents, recorded: list[str]) -> list[tuple[str, int, int]]:
    ((rows, found),) = match_steps([step], recorded)
    return [
        (step.names[step.name[row]], row, place)
        for row, place in zip(rows.tolist(), found.tolist())
    ]


def test_an_operator_below_layers_is_the_innermost_of_its_name() -> None:
    step = nested("aten::relu", " aten::relu", "  aten::relu", "   aten::clamp_min")
    assert candidate_rows(step, {"aten::relu"}).tolist() == [2]


def test_an_overload_that_calls_another_is_one_operator() -> None:
    step = nested("aten::div", " aten::div", "aten::_to_copy", " aten::copy_")
    recorded = ["aten::div", "aten::_to_copy", "aten::copy_"]
    assert matched(step, recorded) == [("aten::div", 0, 0), ("aten::_to_copy", 2, 1)]


@pytest.mark.parametrize("layers", [2, 4])
def test_a_batching_layer_makes_another_operator_of_one(layers: int) -> None:
    # A plain product of matrices, and one of which a batching layer makes a batched one.
    around = [" " * i + "aten::mm" for i in range(layers)]
    inside = ["aten::matmul", " aten::matmul", "  aten::view", "  aten::bmm"]
    step = nested("aten::mm", *around, *(" " * layers + line for line in inside))
    recorded = ["aten::mm", "aten::view", "aten::bmm"]
    view = layers + 3
    assert matched(step, recorded) == [
        ("aten::mm", 0, 0), ("aten::view", view, 1), ("aten::bmm", view + 1, 2),
    ]  # fmt: skip


def test_an_operator_and_the_layer_that_ends_in_another_stay_apart() -> None:
    # ``t`` is a view of its own, and what a batching layer makes ``transpose`` of.
    real = ["aten::t", " aten::t", "  aten::t", "   aten::transpose"]
    layer = ["aten::t", " aten::t", "  aten::t",
             "   aten::transpose", "    aten::transpose", "     aten::transpose"]  # fmt: skip
    recorded = ["aten::t", "aten::transpose", "aten::t"]
    found = matched(nested(*real, *layer, *real), recorded)
    assert found == [("aten::t", 2, 0), ("aten::transpose", 9, 1), ("aten::t", 12, 2)]


def test_an_operator_on_zeros_that_it_makes_is_itself_and_comes_after_them() -> None:
    # The derivative of a constant: the product with it makes zeros first, in its own event.
    step = nested("aten::mm", " aten::mm", "  aten::mm", "  aten::mm", "   aten::mm",
                  "    aten::zeros", "    aten::expand")  # fmt: skip
    recorded = ["aten::mm", "aten::zeros", "aten::expand", "aten::mm"]
    assert matched(step, recorded) == [
        ("aten::mm", 2, 0), ("aten::zeros", 5, 1), ("aten::expand", 6, 2), ("aten::mm", 4, 3),
    ]  # fmt: skip


def test_an_empty_step_has_no_candidates() -> None:
    empty = RawEvents((), *(np.empty(0, np.int64),) * 2, *(np.empty(0, np.int32),) * 2,
                      np.empty(0, bool), 0)  # fmt: skip
    assert matched(empty, ["aten::mm"]) == []
