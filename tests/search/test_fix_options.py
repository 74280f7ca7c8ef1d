"""What a caller may hand to ``gobrrr.fix``, and what is refused before anything runs."""

from __future__ import annotations

import math

import pytest

import gobrrr
from gobrrr.fixes.catalogue import FIXES
from gobrrr.search.options import fix_titles, names_of, refuse_bad_choice, seconds_of
from gobrrr.timeline.errors import InputError


def test_times():
    assert [seconds_of(t) for t in ("40s", "5m", "2min", "1.5h", 40, "30")] == [
        40.0, 300.0, 120.0, 5400.0, 40.0, 30.0,
    ]  # fmt: skip


@pytest.mark.parametrize("time", ["", "soon", "-1", -1, 0, math.nan, math.inf, None, True, [3]])
def test_what_is_no_time(time):
    with pytest.raises(InputError, match="not a time such as"):
        seconds_of(time)


def test_a_string_is_a_name_and_not_its_letters():
    assert names_of("compile") == ("compile",)
    assert names_of("tf32, compile") == names_of(["tf32", "compile"]) == ("tf32", "compile")
    assert names_of(()) == ()
    with pytest.raises(InputError, match="names no fix"):
        names_of(" ,")


def test_choices():
    refuse_bad_choice((), ())
    refuse_bad_choice(("memory_budget",), ("compile",))
    with pytest.raises(InputError, match="no fix 'nonsense'"):
        refuse_bad_choice(("nonsense",), ())
    with pytest.raises(InputError, match="no fix is left"):
        refuse_bad_choice(("compile",), ("compile",))


def test_every_name_has_a_line():
    titles = fix_titles()
    assert {fix.name for fix in FIXES} <= set(titles)
    assert all(titles.values())
    assert titles["memory_budget"].startswith("memory_budget_75 to memory_budget_10")
    assert all(len(f"{name:<24}  {title}") <= 80 for name, title in titles.items())


@pytest.mark.torch
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"only": "nonsense"}, "no fix 'nonsense'"),
        ({"budget": -1}, "not a time"),
        ({"tolerance": 0.0}, "not a relative error"),
    ],
)
def test_the_function_refuses_before_the_program_runs(asked, says):
    pytest.importorskip("torch")

    def step():
        raise AssertionError("it ran")

    with pytest.raises(InputError, match=says):
        gobrrr.fix(step, **asked)
