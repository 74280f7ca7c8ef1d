"""A script runs to its end whatever gobrrr does, and whatever classes it has."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.capture.measurements import Measurements, Plan  # noqa: E402
from gobrrr.capture.script import load_script  # noqa: E402
from gobrrr.capture.script_run import ScriptEnd, measure_script  # noqa: E402
from gobrrr.capture.session import Session  # noqa: E402

TRAIN = """
    import sys, torch
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(80):
        optimizer.zero_grad()
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    open(sys.argv[1], "w").write("whole")
"""

OWN_HOOKS = """
    import sys, torch
    class Net(torch.nn.Linear):
        training = property(lambda self: 1 / 0, lambda self, value: None)
        def register_forward_hook(self, hook):
            raise TypeError("none of yours")
        def register_forward_pre_hook(self, hook):
            raise TypeError("none of yours")
    net = Net(8, 8)
    with torch.no_grad():
        for _ in range(400):
            net(torch.ones(2, 8))
    open(sys.argv[1], "w").write("whole")
"""


@pytest.fixture(autouse=True)
def main_module_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script takes the place of the main module and of the arguments."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(text: str, folder: Path) -> tuple[ScriptEnd, list[Measurements]]:
    script, out = folder / "train.py", folder / "out"
    script.write_text(textwrap.dedent(text))
    found: list[Measurements] = []
    ended = measure_script(
        load_script(str(script)), [str(out)], Plan(1, 2),
        lambda measured, _: found.append(measured), stop=False, progress=lambda *_: None,
    )  # fmt: skip
    assert ended.exit.code == 0 and out.read_text() == "whole"
    return ended, found


@pytest.mark.parametrize(
    ("when", "error"), [(3, LookupError), (8, LookupError), (8, OSError), (11, LookupError)]
)
def test_a_defect_of_ours_ends_the_measurement_and_not_the_script(
    when: int,
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    original, calls = Session._step_ended, []

    def fails(session: Session, *given: Any) -> None:
        calls.append(session.phase)
        if len(calls) >= when:
            raise error("what is not there")
        original(session, *given)

    monkeypatch.setattr(Session, "_step_ended", fails)
    ended, found = run(TRAIN, tmp_path)
    assert not found
    assert ended.problem is not None
    assert ended.problem.startswith("gobrrr failed while it measured the script's steps.")
    assert (
        "bug in gobrrr" in ended.problem and f"{error.__name__}: what is not there" in ended.problem
    )
    assert error.__name__ in capsys.readouterr().err


def test_a_class_with_its_own_idea_of_a_module_is_measured(tmp_path: Path) -> None:
    ended, found = run(OWN_HOOKS, tmp_path)
    assert ended.problem is None
    (measured,) = found
    assert measured.source == "module" and measured.all_plain_ns
