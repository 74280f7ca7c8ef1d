"""Commands, exit codes, and one line for every error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gobrrr
from gobrrr.cli import COMMANDS, main


def gobrrr_process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gobrrr", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in shown
    assert "examples:" in shown


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: gobrrr") and f"gobrrr {command}" in shown.split("examples:")[1]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_into_80_columns(
    command: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"] if command else ["--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, gobrrr.cli; gobrrr.cli.main(['--help']); gobrrr.cli.main(['run', '--help']);"
        "print([m for m in ('torch', 'numpy', 'rich', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gobrrr {gobrrr.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rum"], "no command 'rum'; did you mean run? (see gobrrr --help)"),
        (["zzz"], "no command 'zzz'; there are run,"),
        (["--json", "x"], "unrecognized arguments: --json (see gobrrr --help)"),
        (["report"], "the following arguments are required: FILE (see gobrrr report --help)"),
        (["report", "no.json"], "cannot read no.json: No such file or directory"),
        (["report", "x", "--top", "0"], "argument --top: '0' is not a positive whole number"),
        (["report", "x", "--by", "ops"], "no table 'ops'; there are op, module, line,"),
        (["report", "x", "--json", "no/d.json"], "the folder no does not exist"),
        (["report", "x", "--js", "d.json"], "unrecognized arguments: --js d.json"),
        (["run", "--stpe", "Linear", "x.py"], "arguments: --stpe; did you mean --step? (see"),
        (["check", "x", "--basline=b.json"], "--basline=b.json; did you mean --baseline?"),
    ],
)
def test_bad_usage_is_one_line_and_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gobrrr: ") and message in captured.err
    assert captured.err.count("\n") == 1


def test_a_script_named_as_command_is_pointed_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["train.py"]) == 2
    assert "did you mean gobrrr run train.py?" in capsys.readouterr().err


def test_report_shows_and_converts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again, summary = tmp_path / "again.json", tmp_path / "summary.md"
    code = main(
        ["report", str(data / "training.json"), "--json", str(again), "--markdown", str(summary),
         "--by", "module,line", "--top", "1"]
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 0
    assert "Modules" in shown and "Source lines" in shown and "\nOps\n" not in shown
    assert f"\nSaved: {again}, {summary}\nNext" in shown
    assert gobrrr.load(again) == gobrrr.load(data / "training.json")
    assert summary.read_text().startswith("### train\\_gpt.py")


def test_python_m_gobrrr(data: Path) -> None:
    done = gobrrr_process("report", str(data / "training.json"))
    assert done.returncode == 0 and done.stderr == ""
    text = str(gobrrr.load(data / "training.json"))
    assert done.stdout.partition("\nNext")[0] == text.partition("\nNext")[0]
    assert f"gobrrr report {data / 'training.json'} --by" in done.stdout.splitlines()[-1]


def test_ascii_stdout(data: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = gobrrr_process("report", str(data / "training.json"), env=environment)
    assert done.returncode == 0 and done.stdout.isascii()


def test_closed_pipe_is_quiet(data: Path) -> None:
    # The reader leaves before anything is written; the report is larger than no buffer at all.
    command = [sys.executable, "-u", "-m", "gobrrr", "report", str(data / "training.json")]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_interrupt_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gobrrr.cli.report.execute", interrupted)
    assert main(["report", "x"]) == 130
    assert capsys.readouterr().err == "gobrrr: interrupted\n"


def test_json_is_not_touched_when_the_input_is_bad(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"schema_version": 99}))
    assert main(["report", str(bad), "--json", str(kept)]) == 2
    assert kept.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.json", "kept.json"]


def test_doctor_always_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "Python" in shown and "What works" in shown and "gobrrr trace" in shown


FULL = Path("/dev/full")


def printing_to(where: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose streams a shell leads elsewhere (``>/dev/full``, ``>&-``)."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, "-m", "gobrrr", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip


COMMANDS_THAT_PRINT = [
    ["report", "training.json"], ["compare", "training.json", "training.json"],
    ["check", "training.json", "--max", "kernels=1"], ["--help"],
]  # fmt: skip


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", COMMANDS_THAT_PRINT, ids=lambda each: each[0])
def test_a_full_stdout_is_one_sentence_and_2(data: Path, arguments: list[str]) -> None:
    given = [str(data / each) if each.endswith(".json") else each for each in arguments]
    done = printing_to(f">{FULL}", *given)
    assert done.stderr == "gobrrr: cannot write to standard output: no space left on device\n"
    assert done.returncode == 2
    silent = printing_to(f">{FULL} 2>&1", *given)
    assert silent.returncode == 2


@pytest.mark.parametrize("where", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    list(zip(COMMANDS_THAT_PRINT, (0, 0, 1, 0))),
    ids=lambda each: str(each)[:12],
)
def test_a_closed_stdout_is_silence(
    data: Path, where: str, arguments: list[str], code: int
) -> None:
    given = [str(data / each) if each.endswith(".json") else each for each in arguments]
    done = printing_to(where, *given)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", code)


def test_an_error_of_the_system_that_is_not_of_printing_keeps_its_traceback(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gobrrr.cli.report.load", failing)
    with pytest.raises(OSError, match="No space left"):
        main(["report", str(data / "training.json")])


@pytest.mark.parametrize("given", ["200", "100.5%", "-1", "much"])
def test_a_share_of_the_step_is_refused_in_percent(
    data: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(data / "training.json"), f"--max-overhead={given}"]) == 2
    said = capsys.readouterr().err
    assert f"'{given}' is not a percentage from 0 to 100" in said
