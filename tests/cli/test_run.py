"""``gobrrr run``: whose option is whose, exit codes, and when what is written."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr.cli import main
from gobrrr.cli.launcher import run_launcher
from gobrrr.cli.progress import Progress
from gobrrr.cli.run import Target, add_arguments, job_command, meant_command, split_target
from gobrrr.live.script import module_of
from gobrrr.timeline.errors import InputError, UserCodeError

PARSER = argparse.ArgumentParser()
add_arguments(PARSER)


@pytest.mark.parametrize(
    ("arguments", "own", "target"),
    [
        (["t.py"], [], Target("script", "t.py")),
        (["t.py", "--steps", "3"], [], Target("script", "t.py", ("--steps", "3"))),
        (["--steps", "3", "t.py", "-m"], ["--steps", "3"], Target("script", "t.py", ("-m",))),
        (["--steps=3", "t.py", "x"], ["--steps=3"], Target("script", "t.py", ("x",))),
        (["--stop", "t.py", "--", "x"], ["--stop"], Target("script", "t.py", ("--", "x"))),
        (["--stop", "--", "-odd.py", "y"], ["--stop"], Target("script", "-odd.py", ("y",))),
        (["-m", "a.b", "--steps", "3"], [], Target("module", "a.b", ("--steps", "3"))),
        (["-ma.b", "x"], [], Target("module", "a.b", ("x",))),
        (["--stop", "-m", "a", "-m", "b"], ["--stop"], Target("module", "a", ("-m", "b"))),
        (["b.py:f"], [], Target("function", "b.py:f")),
        (["--stop", "b.py:f", "--steps", "3"], ["--stop", "--steps", "3"],
         Target("function", "b.py:f")),
        (["d/b.py:make_step"], [], Target("function", "d/b.py:make_step")),
        (["b.py:1f"], [], Target("script", "b.py:1f")),
        (["--steps", "3"], ["--steps", "3"], None),
        ([], [], None),
    ],
)  # fmt: skip
def test_whose_argument_is_whose(
    arguments: list[str], own: list[str], target: Target | None
) -> None:
    assert split_target(PARSER, arguments) == (own, target)


@pytest.mark.parametrize(
    ("own", "argv", "meant"),
    [
        ([], ["--stop"], "gobrrr run --stop t.py"),
        (["--quiet"], ["--json", "d.json", "x", "--n", "3"],
         "gobrrr run --quiet --json d.json t.py x --n 3"),
        ([], ["--json=d.json"], "gobrrr run --json=d.json t.py"),
        # The script names it: it is its own.
        ([], ["--steps", "3"], ""),
        ([], ["--n", "3", "x"], ""),
    ],
)  # fmt: skip
def test_options_that_stand_after_the_script(
    own: list[str], argv: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text('parser.add_argument("--steps")')
    assert meant_command(PARSER, own, Target("script", "t.py", tuple(argv))) == meant


@pytest.mark.parametrize(
    ("text", "packages", "name"),
    [
        ("from . import x", ("pkg", "pkg/sub"), "pkg.sub.train"),
        ("from . import x", (), "sub.train"),
        ("from ..model import x", (), "pkg.sub.train"),
        ("def broken(", ("pkg/sub",), "sub.train"),
    ],
)
def test_the_module_that_a_script_is(
    text: str, packages: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    for package in packages:
        (tmp_path / package / "__init__.py").touch()
    script = tmp_path / "pkg" / "sub" / "train.py"
    script.write_text(text)
    root, found = module_of(script)
    assert found == name
    assert root.joinpath(*name.split(".")).with_suffix(".py") == script


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        ("import argparse; argparse.ArgumentParser().parse_args()", ["--stop"], 2,
         "gobrrr's options go before the script: gobrrr run --stop t.py"),
        ("import sys; sys.exit(2)", [], 2, None),
        ("from .a import b", ["--n", "3"], 3, ".t --n 3"),
    ],
)  # fmt: skip
def test_what_was_meant_is_said_where_a_script_fails(
    text: str, arguments: list[str], code: int, said: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "t.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "gobrrr", "run", "t.py", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == code
    if said is None:
        assert "options go before" not in ran.stderr
    else:
        assert said in ran.stderr.splitlines()[-1]


def test_a_file_that_is_really_called_that_is_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.py:f").write_text("")
    assert split_target(PARSER, ["b.py:f"])[1] == Target("script", "b.py:f")


@dataclass
class Exit:
    code: int = 0
    raised: bool = False
    interrupted: bool = False
    error: BaseException | None = None


@dataclass
class Outcome:
    exit: Exit
    diagnosis: Any
    problem: str | None = None
    too_few_steps: bool = False
    ran_on: bool = False


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, data: Path) -> types.SimpleNamespace:
    """In place of the two journeys: records its calls, and behaves as it is told."""
    state = types.SimpleNamespace(
        outcome=Outcome(Exit(), gobrrr.load(data / "training.json")),
        calls=[],
        during=None,
        shown=True,
    )

    def diagnose_script(target: str, argv: list[str], **options: Any) -> Outcome:
        state.calls.append((target, argv, options))
        print("from the script")
        if state.outcome.diagnosis is not None:
            options["on_diagnosis"](state.outcome.diagnosis, state.shown)
        if state.during is not None:
            state.during()
        return state.outcome

    def diagnose(target: Any, **options: Any) -> Any:
        state.calls.append((target, options))
        return state.outcome.diagnosis

    for journey in (diagnose_script, diagnose):
        home = "gobrrr.pipeline." + ("live" if journey is diagnose else "script")
        fake = types.ModuleType(home)
        setattr(fake, journey.__name__, journey)
        monkeypatch.setitem(sys.modules, home, fake)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    return state


def test_report_follows_the_script(
    pipeline: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--steps", "5", "--stop", "train.py", "--epochs", "3"]) == 0
    target, argv, options = pipeline.calls[0]
    assert (target, argv) == ("train.py", ["--epochs", "3"])
    assert options["is_module"] is False and options["steps"] == 5 and options["stop"] is True
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "from the script"
    assert lines[1] == "-" * 80
    assert lines[2].startswith("train_gpt.py · training step")


def test_module(pipeline: types.SimpleNamespace) -> None:
    assert main(["run", "-m", "package.train", "--steps", "x"]) == 0
    target, argv, options = pipeline.calls[0]
    assert (target, argv, options["is_module"]) == ("package.train", ["--steps", "x"], True)


def test_files_are_written_while_the_script_still_runs(
    pipeline: types.SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "d.json"
    pipeline.during = lambda: pipeline.calls.append(gobrrr.load(path).regime)
    assert main(["run", "--json", str(path), "train.py"]) == 0
    assert pipeline.calls[-1] == "compute"


def test_unwritable_output_is_refused_before_anything_runs(
    pipeline: types.SimpleNamespace, tmp_path: Path
) -> None:
    assert main(["run", "--json", str(tmp_path / "no" / "d.json"), "train.py"]) == 2
    assert pipeline.calls == []


@pytest.mark.parametrize(
    ("exit_", "has_diagnosis", "code", "message"),
    [
        (Exit(0), True, 0, ""),
        (Exit(7), True, 7, ""),
        (Exit(7), False, 7, "gobrrr: no step was seen\n"),
        (Exit(0), False, 2, "gobrrr: no step was seen\n"),
        (Exit(3, raised=True), True, 3, "gobrrr: train.py raised, see above\n"),
        (Exit(3, raised=True), False, 3, "gobrrr: train.py raised, see above\n"),
        (Exit(130, interrupted=True), False, 130, "gobrrr: interrupted\n"),
    ],
)
def test_exit_codes(
    pipeline: types.SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    exit_: Exit,
    has_diagnosis: bool,
    code: int,
    message: str,
) -> None:
    diagnosis = pipeline.outcome.diagnosis if has_diagnosis else None
    pipeline.outcome = Outcome(exit_, diagnosis, None if has_diagnosis else "no step was seen")
    assert main(["run", "train.py"]) == code
    captured = capsys.readouterr()
    assert captured.err == message
    # A diagnosis is shown however the script ended.
    assert ("Compute-bound" in captured.out) == has_diagnosis


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_without_a_diagnosis_ends_as_its_script_does(
    pipeline: types.SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    pipeline.outcome = Outcome(Exit(0), None, "no step was seen")
    assert main(["run", "--quiet", "train.py"]) == 0
    told = "gobrrr: no diagnosis of the job; rank 0: no step was seen\n" if rank == "0" else ""
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("shown", [False, True])
def test_a_rank_beside_the_first_shows_its_own_where_no_other_does(
    pipeline: types.SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shown: bool,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    pipeline.shown = shown
    assert main(["run", "--json", str(tmp_path / "d.json"), "train.py"]) == 0
    assert ("Compute-bound" in capsys.readouterr().out) == shown
    assert [path.name for path in tmp_path.iterdir()] == ["d.rank1.json"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_whose_copy_cannot_be_written_does_not_fail_its_job(
    pipeline: types.SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rank: str,
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "d.rank1.json").mkdir()
    asked = tmp_path / ("d.json" if rank == "1" else "d.rank1.json")
    assert main(["run", "--json", str(asked), "train.py"]) == (0 if rank == "1" else 2)
    assert ("rank 1: " in capsys.readouterr().err) == (rank == "1")


def test_no_copy_of_a_rank_is_written_beside_a_stream(
    pipeline: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["run", "--json", "/dev/stdout", "train.py"]) == 0
    assert not Path("/dev/stdout.rank1").exists()


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize("gone", ["closed", "taken away", "its descriptor closed"])
def test_a_script_may_close_a_stream(
    pipeline: types.SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: int,
    name: str,
    gone: str,
) -> None:
    stream = (tmp_path / "stream").open("w")
    monkeypatch.setattr(sys, name, stream)

    def close() -> None:
        if gone == "closed":
            stream.close()
        elif gone == "taken away":
            monkeypatch.setattr(sys, name, None)
        else:
            os.close(stream.fileno())

    pipeline.during = close
    ended = Exit(code, raised=code == 3)
    pipeline.outcome = Outcome(ended, pipeline.outcome.diagnosis, None, ran_on=True)
    assert main(["run", "train.py"]) == code
    with contextlib.suppress(OSError):
        stream.close()


def test_errors_of_the_users_code_keep_their_traceback(
    pipeline: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        try:
            raise ZeroDivisionError("their own")
        except ZeroDivisionError as error:
            raise UserCodeError("the step raised ZeroDivisionError") from error

    pipeline.during = fail
    assert main(["run", "train.py"]) == 3
    err = capsys.readouterr().err
    assert "Traceback" in err and "ZeroDivisionError: their own" in err
    assert err.endswith("gobrrr: the step raised ZeroDivisionError\n")


def test_input_errors_have_none(
    pipeline: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise InputError("train.py: no such\nfile")

    pipeline.during = fail
    assert main(["run", "train.py"]) == 2
    assert capsys.readouterr().err == "gobrrr: train.py: no such file\n"


def test_function_takes_options_on_both_sides(
    pipeline: types.SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = tmp_path / "bench.py"
    bench.write_text("def make_step():\n    return lambda: None\n")
    target = f"{bench}:make_step"
    assert main(["run", "--quiet", target, "--steps", "4", "--no-batch-test"]) == 0
    step, options = pipeline.calls[0]
    assert callable(step)
    assert options["steps"] == 4 and options["batch_test"] is False
    assert options["name"] == "bench.py:make_step"
    assert main(["run", target, "stray"]) == 2
    assert "unrecognized arguments: stray" in capsys.readouterr().err


def test_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["run", "train.py"]) == 2
    assert "gobrrr run needs torch: pip install" in capsys.readouterr().err


def test_progress_is_a_line_per_phase(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(sys.stderr)
    for done in range(3):
        progress("warm-up", done, 3)
    for what in ("matrix", "copy"):
        progress(f"ceilings: {what}", 1, 2)
    progress("timing", 0, 12)
    progress.end()
    assert capsys.readouterr().err.splitlines() == [
        "gobrrr: warming up, 3 steps",
        "gobrrr: measuring this machine's ceilings (once; cached afterwards)",
        "gobrrr: timing without the profiler, 12 steps",
    ]


def test_progress_in_a_terminal_has_a_bar_for_ceilings_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = Progress(sys.stderr)
    progress("ceilings: matrix float32", 6, 12)
    progress("ceilings: copy dram", 12, 12)
    progress("warm-up", 0, 3)
    drawn = capsys.readouterr().err
    assert "\rgobrrr: measuring ceilings [############------------] 6/12 matrix float32" in drawn
    assert drawn.endswith("\ngobrrr: warming up, 3 steps\n")


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(None)
    progress("warm-up", 0, 3)
    progress.end()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["-m", "torch.distributed.run", "--nproc_per_node=2", "t.py"],
         "python -m torch.distributed.run [its options] -m gobrrr run SCRIPT"),
        (["/usr/bin/torchrun", "--nproc_per_node=2", "t.py"],
         "torchrun [its options] -m gobrrr run SCRIPT"),
    ],
)  # fmt: skip
def test_launchers_are_put_before_gobrrr(
    arguments: list[str], start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    assert start in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("own", "target", "ends_with"),
    [
        (
            ["--json", "d.json", "--nproc-per-node", "2", "--stop"],
            Target("script", "train.py", ("--epochs", "3")),
            ["run", "--json", "d.json", "--stop", "--", "train.py", "--epochs", "3"],
        ),
        (["--nproc-per-node=2"], Target("module", "a.b", ("x",)), ["run", "-m", "a.b", "x"]),
        (
            ["--nproc-per-node", "4", "--stop", "--nproc-per-node", "2"],
            Target("script", "a.py", ()),
            ["run", "--stop", "--", "a.py"],
        ),
    ],
)
def test_a_job_is_started_by_torchs_own_launcher(
    own: list[str], target: Target, ends_with: list[str]
) -> None:
    command = job_command(2, own, target)
    assert command[-len(ends_with) :] == ends_with
    assert command[: -len(ends_with)] == [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "gobrrr",
    ]  # fmt: skip


def test_a_job_too_large_for_the_machine_starts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("gobrrr.cli.run.run_launcher", lambda command: started.append(command) or 0)
    monkeypatch.setattr("gobrrr.cli.run.require_torch", lambda command: None)
    assert main(["run", "--nproc-per-node", "100000000", "t.py"]) == 2
    assert not started
    said = " ".join(capsys.readouterr().err.split())
    assert "100,000,000 processes are more than this machine can start" in said
    assert main(["run", "--nproc-per-node", "2", "t.py"]) == 0
    assert len(started) == 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_launcher_is_asked_to_end_when_gobrrr_is() -> None:
    """Its exit code counts: what ends gobrrr (a scheduler, ``timeout``) asks no rank itself."""

    def ended(launcher: str) -> int:
        # A process of its own: what signals do in that of the tests is theirs.
        program = (
            "import signal, sys; from gobrrr.cli.launcher import run_launcher; "
            "before = signal.getsignal(signal.SIGTERM); "
            f"code = run_launcher([sys.executable, '-c', {launcher!r}]); "
            "sys.exit(code if signal.getsignal(signal.SIGTERM) == before else 99)"
        )
        done = subprocess.run([sys.executable, "-c", program], timeout=50, check=False)
        return done.returncode

    asks = "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    start = "import os, signal, sys, time; "
    ends = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
    assert ended(start + ends + asks) == 7
    assert ended(start + asks) == 128 + signal.SIGTERM
    assert ended("raise SystemExit(3)") == 3


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_launcher_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobrrr.cli.launcher.LAUNCHER_ENDS_IN_S", 0.2)
    ended = tmp_path / "ended"
    # Only gobrrr is interrupted; the launcher takes its time once it is asked.
    code = (
        "import os, pathlib, signal, sys, time\n"
        "def end(*_):\n"
        f"    time.sleep(0.5); pathlib.Path({str(ended)!r}).touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    )
    # A process that was started in a shell's background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_launcher([sys.executable, "-c", code])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.exists()


def test_a_function_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"needs a script: b\.py:f is measured in one process"):
        job_command(2, [], Target("function", "b.py:f"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["run", "b.py:f"]) == 2
