from __future__ import annotations

from typing import Any

import pytest

from gobrrr.recordings.numbers import Numbering, ThreadNumbering


def test_keys_are_numbered_in_order_of_appearance_over_columns() -> None:
    names = Numbering()
    assert names.column(["b", "a", "b"]).tolist() == [0, 1, 0]
    assert names.column(["c", "a"]).tolist() == [2, 1]
    assert names.column([]).tolist() == []


@pytest.mark.parametrize(
    ("pids", "tids"),
    [
        ([], []),
        ([7, 7, 7, 7, 8, 7], [1, 1, 2, 1, 1, 1]),
        ([7, "7", 7, None], [1, "1", "0x1", 2.5]),
        ([7, 7, 7], [2**70, 1, 2**70]),
    ],
    ids=["none", "stretches", "texts", "large"],
)
def test_the_threads_of_a_column_are_those_of_its_pairs(pids: list[Any], tids: list[Any]) -> None:
    one_by_one = ThreadNumbering()
    wanted = [one_by_one[pair] for pair in zip(pids, tids)]
    numbers = ThreadNumbering()
    assert numbers.column(pids, tids).tolist() == wanted
    # Known threads keep their numbers.
    assert numbers.column(pids[::-1], tids[::-1]).tolist() == wanted[::-1]


def test_a_thread_written_as_text_and_as_a_number_is_one() -> None:
    assert ThreadNumbering().column([7, 7, "7"], [1, 2, "1"]).tolist() == [0, 1, 0]
