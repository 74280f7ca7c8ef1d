"""What the benchmark of broken lines counts."""

from __future__ import annotations

import pytest
import tomllib
from benchmarks.mutations.run import EQUIVALENT, in_function, statement, summary, wilson


def test_wilsons_interval() -> None:
    # Of 10: by hand, with 1.96 squared = 3.8415.
    assert wilson(0, 10) == pytest.approx((0.0, 3.8415 / 13.8415), abs=1e-5)
    assert wilson(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-5)


def test_the_share_alive_is_of_those_that_change_something() -> None:
    def row(outcome: str, by: str | None, files: int = 1) -> dict[str, object]:
        return {"module": "work.views", "outcome": outcome, "by": by, "files": files}

    rows = [
        row("killed", "tests/work/test_views.py::test_a"),
        row("killed", "tests/attribution/test_cpu.py::test_b"),
        row("timeout", "tests/work/test_views.py"),
        row("survived", None, 0),
        row("survived", None),
        row("equivalent", None),
    ]
    found = summary(rows, {"work": 700})["work"]
    assert (found["mutants"], found["drawn"], found["killed"], found["timeout"]) == (700, 6, 2, 1)
    assert (found["survived"], found["equivalent"], found["share_alive"]) == (2, 1, 2 / 5)
    # Without the tests of others three would live; no test runs the lines of one.
    assert (found["alive_of_own_tests"], found["not_run"]) == (3, 1)


def test_a_line_is_run_where_its_statement_is() -> None:
    code = "@cache\ndef f(a):\n    b = (\n        a,\n        1,\n    )\n    return b\n"
    assert statement(code, 5) == range(3, 7)
    assert statement(code, 1) == range(1, 8)
    assert statement(code, 7) == range(7, 8)
    assert [line for line in range(1, 8) if in_function(code, line)] == [3, 4, 5, 6, 7]


def test_each_equivalent_mutant_has_its_reason() -> None:
    for each in tomllib.loads(EQUIVALENT.read_text())["mutant"]:
        assert set(each) == {"module", "was", "now", "why"}
        assert each["was"] != each["now"] and each["why"]
