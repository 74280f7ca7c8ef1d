"""Functions of a file, read and not run."""

from __future__ import annotations

import pytest

from gobrrr.timeline.errors import InputError
from gobrrr.timeline.function_names import (
    offered_functions,
    refuse_without_result,
    require_function,
    which_function,
)

SOURCE = """
import other.made as made_elsewhere
from other import made_there
raise SystemExit("it ran")
def make(): return 1
def with_default(n=1, *, k=2):
    if n:
        return k
def main():
    def step():
        return 1
    step()
def needs(n): ...
def needs_keyword(*, n): ...
def _own(): ...
if True:
    also = lambda: 1
"""


@pytest.fixture
def write(tmp_path):
    def to(source: str) -> str:
        path = tmp_path / "bench.py"
        path.write_text(source)
        return str(path)

    return to


def test_what_a_file_offers(write):
    assert offered_functions(write(SOURCE)) == ("make", "with_default")


@pytest.mark.parametrize("name", ["make", "needs", "_own", "also", "made_elsewhere", "made_there"])
def test_a_name_that_is_bound_may_be_asked_for(write, name):
    require_function(write(SOURCE), name)


def test_a_name_that_cannot_be_there_is_refused_with_those_that_are(write):
    with pytest.raises(InputError, match="no function 'absent'; it has make, with_default"):
        require_function(write(SOURCE), "absent")


@pytest.mark.parametrize(
    "dynamic",
    [
        "globals()['a' + 'bsent'] = print", "from other import *", "exec('absent = 1')",
        "def __getattr__(name): ...", "import sys; sys.modules[__name__].__dict__['absent'] = 1",
    ],
)  # fmt: skip
def test_a_file_that_makes_names_is_given_the_benefit_of_the_doubt(write, dynamic):
    require_function(write(dynamic), "absent")


def test_the_question_names_what_could_be_meant(write):
    path = write(SOURCE)
    asked = which_function(path)
    assert asked == f"which function of {path}? write {path}:FUNCTION; it has make, with_default"
    assert which_function(write("def (")).endswith(":FUNCTION")
    assert which_function(write("x = 1")).endswith(":FUNCTION")


def test_a_function_that_returns_nothing_runs_the_program(write):
    path = write(SOURCE)
    refuse_without_result(path, "make")
    refuse_without_result(path, "made_there")
    with pytest.raises(InputError, match=f"give the script: {path}"):
        refuse_without_result(path, "main")


@pytest.mark.parametrize("source", ["def (", "\0"])
def test_what_is_no_python_is_refused(write, source):
    with pytest.raises(InputError, match=r"bench.py.* is not "):
        require_function(write(source), "make")
