"""``%load_ext gobrrr``: the magics, in a shell of IPython's and in a notebook's kernel."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("IPython", reason="IPython is not installed")

from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402

SET_UP = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(16, 64)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
TRAIN = "done = 0\nfor _ in range(60):\n    train(1)\n    done += 1\n"


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell with the extension, and a model in its namespace."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    hook = sys.excepthook
    shell.run_cell("%load_ext gobrrr")
    shell.run_cell(SET_UP)
    yield shell
    sys.excepthook = hook
    InteractiveShell.clear_instance()


def run(shell: Any, cell: str) -> Any:
    return shell.run_cell(cell, store_history=True)


def test_the_steps_of_a_cell_are_diagnosed_and_its_names_stay(shell: Any) -> None:
    found = run(shell, f"%%gobrrr\n{TRAIN}").result
    assert isinstance(found, Diagnosis)
    assert found.step.kind == "training step"
    assert shell.user_ns["done"] == 60
    # By the number of the cell, and the line as the notebook counts them.
    number = len(shell.history_manager.input_hist_parsed) - 1
    assert found.source["name"] == f"In[{number}]"


def test_lines_are_those_of_the_cell(shell: Any) -> None:
    cell = "%%gobrrr --step call\nfor _ in range(60):\n    model(x)\n"
    named = {
        row.name.rpartition("]:")[2] for row in run(shell, cell).result.lines if "]:" in row.name
    }
    assert "3 in <module>" in named
    assert named <= {"2 in <module>", "3 in <module>"}


def test_a_callable_on_the_line_is_diagnosed(shell: Any) -> None:
    found = run(shell, "%gobrrr --steps 5 lambda: model(x)").result
    assert isinstance(found, Diagnosis)
    assert found.source["name"] == "lambda: model(x)"
    assert isinstance(run(shell, "d = %gobrrr (model, x)").result, type(None))
    assert isinstance(shell.user_ns["d"], Diagnosis)


def test_what_the_cell_raises_is_its_own_error(shell: Any) -> None:
    outcome = run(shell, f"%%gobrrr\n{TRAIN}1 / 0\n")
    assert isinstance(outcome.error_in_exec, ZeroDivisionError)
    assert shell.user_ns["done"] == 60
    outcome = run(shell, "def bad():\n    raise KeyError('mine')\n%gobrrr bad")
    assert isinstance(outcome.error_in_exec, KeyError)


def test_the_exit_of_a_cell_is_the_cell_s(shell: Any) -> None:
    assert isinstance(run(shell, "%%gobrrr\nraise SystemExit(3)").error_in_exec, SystemExit)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%gobrrr", "nothing to diagnose"),
        ("%gobrrr model(x)", "not a step"),
        ("%gobrrr --step call model", "--step is of a cell"),
        ("%gobrrr --steps none model", "none"),
        ("%%gobrrr train.py\n1", "train.py"),
        ("%%gobrrr\nprint('no step')", "no step"),
    ],
)
def test_bad_input_is_one_line(
    shell: Any, cell: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.error import UsageError

    outcome = run(shell, cell)
    assert isinstance(outcome.error_in_exec, UsageError)
    assert said in str(outcome.error_in_exec)
    assert "Traceback" not in capsys.readouterr().out


def test_a_syntax_error_is_the_cell_s(shell: Any) -> None:
    assert isinstance(run(shell, "%%gobrrr\nx = (\n").error_in_exec, SyntaxError)


def test_in_a_kernel_the_view_is_shown_and_only_the_users_warnings() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cells = (
        f"%load_ext gobrrr\nimport warnings{SET_UP}",
        textwrap.dedent(
            """
            %%gobrrr
            for step in range(60):
                train(1)
                x.std(0)
                if step == 30:
                    warnings.warn("the program's own")
            """
        ).strip(),
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbclient.NotebookClient(notebook, timeout=600).execute()
    outputs = notebook.cells[1].outputs
    (shown,) = [each.data for each in outputs if "data" in each]
    assert "<details>" in shown["text/html"]
    lines = "".join(each.text for each in outputs if each.output_type == "stream").splitlines()
    assert any("the program's own" in line for line in lines)
    said = [line for line in lines if "Warning" in line and "the program's own" not in line]
    assert said == []
