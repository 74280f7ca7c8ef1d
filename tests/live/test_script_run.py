"""A script runs to its end whatever gobrrr does, and whatever classes it has."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.jobs.job import Job  # noqa: E402
from gobrrr.live import steps  # noqa: E402
from gobrrr.live.measurements import Measurements, Plan  # noqa: E402
from gobrrr.live.profiling import NOT_ASKED  # noqa: E402
from gobrrr.live.rank_of_job import RankOfJob  # noqa: E402
from gobrrr.live.script import ScriptExit, load_script  # noqa: E402
from gobrrr.live.script_run import SEVERAL_THREADS, ScriptEnd, measure_script  # noqa: E402
from gobrrr.live.session import Session  # noqa: E402
from gobrrr.timeline.errors import UserCodeError  # noqa: E402

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

# It prepares its trace in the first 25 steps and records it in the next three.
OWN_PROFILER = """
    import sys, torch
    from torch.profiler import ProfilerActivity, profile, schedule
    net = torch.nn.Linear(8, 8)
    def ready(profiler):
        profiler.export_chrome_trace(sys.argv[1] + ".json")
    when = schedule(wait=0, warmup=25, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=when, on_trace_ready=ready) as own:
        for _ in range(60):
            net(torch.ones(2, 8)).sum().backward()
            own.step()
    open(sys.argv[1], "w").write("whole")
"""

# Of both kinds, each around more steps than gobrrr profiles; gobrrr's profiler is on by then.
PROFILED_PARTS = """
    import sys, torch
    from torch.profiler import ProfilerActivity, profile
    net = torch.nn.Linear(8, 8)
    def train(steps):
        for _ in range(steps):
            net(torch.ones(2, 8)).sum().backward()
    start = int(sys.argv[2])
    train(start)
    if sys.argv[3] == "plain":
        own = torch.autograd.profiler.profile()
    else:
        own = profile(activities=[ProfilerActivity.CPU])
    with own:
        train(100)
    own.export_chrome_trace(sys.argv[1] + ".json")
    train(60)
    open(sys.argv[1], "w").write("whole")
"""

TOLD = """
import sys, torch
from gobrrr.live.measurements import Plan
from gobrrr.live.script import load_script
from gobrrr.live.script_run import measure_script
def told(measured, watcher):
    ended = any("The script ended" in notice for notice in measured.notices)
    print("told", torch.autograd._profiler_enabled(), ended)
ended = measure_script(
    load_script(sys.argv[1]), sys.argv[2:], Plan(1, 2), told, stop=False, progress=lambda *_: None
)
assert ended.exit.code == 0 and ended.problem is None
print("ran on", ended.ran_on)
"""

MEASURED = """
import sys
from gobrrr.live.measurements import Plan
from gobrrr.live.script import load_script
from gobrrr.live.script_run import measure_script
found = []
ended = measure_script(
    load_script(sys.argv[1]), sys.argv[2:], Plan(1, 2), lambda measured, _: found.append(measured),
    stop=False, progress=lambda *_: None,
)
assert ended.exit.code == 0 and ended.problem is None
print(found[0].by_dispatch, bool(found[0].profiled), found[0].notices[0])
"""


@pytest.fixture(autouse=True)
def main_module_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script takes the place of the main module and of the arguments."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(text: str, folder: Path, step: str = "") -> tuple[ScriptEnd, list[Measurements]]:
    script, out = folder / "train.py", folder / "out"
    script.write_text(textwrap.dedent(text))
    found: list[Measurements] = []
    ended = measure_script(
        load_script(str(script)), [str(out)], Plan(1, 2),
        lambda measured, _: found.append(measured), stop=False, progress=lambda *_: None,
        step=step,
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


def test_a_failure_of_the_programs_own_is_not_called_a_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(session: Session, *given: Any) -> None:
        raise UserCodeError("the GPU failed while gobrrr waited for it (illegal access)")

    monkeypatch.setattr(Session, "_step_ended", fails)
    ended, found = run(TRAIN, tmp_path)
    assert not found and ended.problem is not None
    assert ended.problem.endswith("the GPU failed while gobrrr waited for it (illegal access)")
    assert "bug" not in ended.problem and "Traceback" not in capsys.readouterr().err


def test_a_class_with_its_own_idea_of_a_module_is_measured(tmp_path: Path) -> None:
    ended, found = run(OWN_HOOKS, tmp_path)
    assert ended.problem is None
    (measured,) = found
    assert measured.source == "module" and measured.all_plain_ns


RAISES = (
    TRAIN.replace("range(80)", "range(at)")
    .replace('open(sys.argv[1], "w").write("whole")', 'raise ValueError("mine")')
    .replace("import sys, torch", "import sys, torch\n    at = int(sys.argv[1])")
)


def raising(
    steps: int,
    folder: Path,
    plan: Plan,
    conclude: Callable[[Measurements], None],
    rank: RankOfJob | None = None,
) -> ScriptEnd:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(RAISES))
    return measure_script(
        load_script(str(script)), [str(steps)], plan,
        lambda measured, _: conclude(measured), stop=False, progress=lambda *_: None, rank=rank,
    )  # fmt: skip


THREADS = """
    import sys, threading, torch
    net = torch.nn.Linear(8, 8)
    turns = [threading.Event(), threading.Event()]
    def serve(own):
        for _ in range(20):
            turns[own].wait()
            turns[own].clear()
            net(torch.ones(2, 8))
            turns[1 - own].set()
    both = [threading.Thread(target=serve, args=(own,)) for own in (0, 1)]
    for thread in both:
        thread.start()
    turns[0].set()
    for thread in both:
        thread.join()
    open(sys.argv[1], "w").write("whole")
"""


def test_steps_of_several_threads_are_not_called_none(tmp_path: Path) -> None:
    ended, found = run(THREADS, tmp_path)
    assert not found
    assert ended.problem == SEVERAL_THREADS


A_THREAD_EACH = """
    import sys, threading, torch
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def epoch():
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    for _ in range(THREADS):
        thread = threading.Thread(target=epoch)
        thread.start()
        thread.join()
    open(sys.argv[1], "w").write("whole")
"""


@pytest.mark.parametrize(("steps", "threads"), [(6, 40), (14, 14), (90, 1)])
def test_a_loop_that_goes_on_in_a_new_thread_for_each_epoch_is_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], steps: int, threads: int
) -> None:
    script = A_THREAD_EACH.replace("STEPS", str(steps)).replace("THREADS", str(threads))
    ended, found = run(script, tmp_path)
    assert ended.problem is None
    (measured,) = found
    assert measured.profiled and measured.recorded
    # Each of the steps that were profiled is one thread's, and whole.
    names = {tuple(sorted(each.names[name] for name in each.name)) for each in measured.profiled}
    assert all("aten::mm" in each for each in names)
    # Only the main thread can be asked for its lines.
    assert NOT_ASKED in measured.notices
    # What begins in a thread has ended in it.
    assert "no active profiling session" not in capfd.readouterr().err


def test_a_thread_for_each_step_is_no_loop(tmp_path: Path) -> None:
    script = A_THREAD_EACH.replace("STEPS", "1").replace("THREADS", "60")
    ended, found = run(script, tmp_path)
    assert not found
    assert ended.problem == SEVERAL_THREADS


def test_what_was_timed_before_a_script_raises_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Measurements] = []
    ended = raising(60, tmp_path, Plan(1, 500), found.append)
    # The error and the exit code are as without gobrrr.
    assert ended.exit.raised and ended.exit.code == 3
    assert isinstance(ended.exit.error, ValueError)
    error = capsys.readouterr().err
    assert "Traceback" in error and error.endswith("ValueError: mine\n")
    assert ended.problem is None and not ended.ran_on
    (measured,) = found
    assert len(measured.timed_ns) > 20
    (notice,) = [each for each in measured.notices if "ended" in each]
    assert notice.startswith("The script ended with an error (ValueError) during timing: ")


def test_a_script_that_raises_too_soon_has_no_diagnosis(tmp_path: Path) -> None:
    found: list[Measurements] = []
    ended = raising(5, tmp_path, Plan(1, 500), found.append)
    assert ended.exit.raised and not found
    assert ended.too_few_steps


def test_a_defect_of_ours_does_not_take_the_place_of_a_scripts_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(measured: Measurements) -> None:
        raise LookupError("what is not there")

    ended = raising(60, tmp_path, Plan(1, 500), fails)
    assert isinstance(ended.exit.error, ValueError) and ended.exit.code == 3
    assert ended.problem is not None and "what is not there" in ended.problem
    assert "LookupError: what is not there" in capsys.readouterr().err


def test_of_a_job_the_others_hear_of_an_error_before_anything_is_made_of_the_steps(
    tmp_path: Path,
) -> None:
    first, second = [
        Job(
            {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            folder=tmp_path / "job", program="train.py", meeting_limit_s=0.1,
        )
        for rank in "01"
    ]  # fmt: skip
    found: list[Measurements] = []

    def conclude(measured: Measurements) -> None:
        found.append(measured)
        assert first.why_gone(1) == "ended: its script ended with ValueError: mine"
        # It still has to tell what it has found.
        assert not second.here.has_left(1)

    ended = raising(60, tmp_path, Plan(1, 500), conclude, RankOfJob(second))
    assert isinstance(ended.exit.error, ValueError) and ended.problem is None
    (measured,) = found
    assert len(measured.timed_ns) > 20 and measured.profiled


def test_an_error_that_cannot_say_what_it_is() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError

    def how(error: Exception) -> str:
        return ScriptExit(3, raised=True, error=error).how

    assert how(Mute()) == "its script ended with Mute"
    assert how(ValueError("one.\ntwo")) == "its script ended with ValueError: one"
    long = how(ValueError("long" * 1000))
    assert len(long) < 300 and long.endswith("long...")


def test_a_script_that_prepares_a_trace_of_its_own_gets_it(tmp_path: Path) -> None:
    # In a process of its own: where gobrrr takes the trace away, the program crashes.
    (tmp_path / "train.py").write_text(textwrap.dedent(OWN_PROFILER))
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "train.py"), str(tmp_path / "out")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "out").read_text() == "whole"
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert sum(event["name"] == "aten::addmm" for event in events) == 3
    assert told.stdout.startswith("True True The program runs a profiler of its own")


@pytest.mark.parametrize(("steps", "ran_on"), [(50, True), (500, False)])
def test_nothing_is_told_while_a_profiler_of_the_script_records(
    steps: int, ran_on: bool, tmp_path: Path
) -> None:
    program = OWN_PROFILER.replace("warmup=25, active=3", f"warmup=1, active={steps}")
    (tmp_path / "train.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "-c", TOLD, str(tmp_path / "train.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("told", "ran on"))] == [
        "told False False", f"ran on {ran_on}"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "torch.profiler"])
def test_a_script_that_profiles_a_part_while_gobrrr_does_gets_its_trace(
    kind: str, tmp_path: Path
) -> None:
    # In a process of its own: where both profile, the program crashes.
    (tmp_path / "train.py").write_text(textwrap.dedent(PROFILED_PARTS))
    script, out = str(tmp_path / "train.py"), str(tmp_path / "out")
    command = [sys.executable, "-c", MEASURED, script, out, "14", kind]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    names = {
        event["name"] for event in json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    }
    assert "aten::addmm" in names
    assert not any(name.startswith("gobrrr") for name in names)


@pytest.mark.parametrize(
    ("step", "said"),
    [("encodr", "did you mean encoder?"), ("Linaer", "did you mean Linear?"),
     ("optimizer", "Net `net`"), ("encoder", "")],
)  # fmt: skip
def test_a_step_that_nothing_is_yet_is_said_early(
    step: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A slip of the pen is said after a few calls, whatever the time.
    slip = "did you mean" in said
    monkeypatch.setattr(steps, "_LONG_UNMATCHED_S", math.inf if slip else 0.0)
    run(
        """
    import sys, torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Linear(8, 8)
        def forward(self, x):
            return self.encoder(x)
    net = Net()
    with torch.no_grad():
        for _ in range(60):
            net(torch.ones(2, 8))
    print("the end", file=sys.stderr)
    open(sys.argv[1], "w").write("whole")
""",
        tmp_path,
        step,
    )
    early = capsys.readouterr().err.partition("the end")[0]
    assert said in early and early.count("has run so far") == bool(said)
