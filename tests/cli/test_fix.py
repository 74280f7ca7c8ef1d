from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from gobrrr.cli import main
from gobrrr.cli.fix import _text_of, _write, seconds
from gobrrr.fixes.catalogue import FIXES
from gobrrr.timeline.errors import InputError
from gobrrr.verification.numerics import TOLERANCE


def test_times():
    assert [seconds(t) for t in ("120s", "5m", "1.5h", "30")] == [120.0, 300.0, 5400.0, 30.0]


@pytest.mark.parametrize("text", ["", "0s", "-3", "fast", "5 m", "1e3s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to fix"),
        (["--tolerance", "0", "x.py"], "relative error"),
        (["--require", "nan", "x.py"], "speedup"),
        (["--budget", "soon", "x.py"], "time"),
        (["--write", "out.py", "-m", "package"], "--write"),
        (["--write", "x.py", "x.py"], "overwrite"),
        (["--only", "", "x.py"], "names no fix"),
        (["--only", "warp_drive", "x.py"], "no fix 'warp_drive'; there are"),
        (["--only", "compile", "--exclude", "compile", "x.py"], "no fix is left to try"),
    ],
)
def test_bad_usage_is_one_sentence(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fix", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.torch
def test_a_script_that_is_not_there(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert main(["fix", "missing.py"]) == 2
    assert "missing.py: no such file" in capsys.readouterr().err
    assert main(["fix", "missing.py:make"]) == 2
    assert main(["fix", "--only", "warp_drive", "missing.py"]) == 2


@pytest.mark.torch
def test_threads_are_those_of_each_process(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    asked = []

    def bench(program, tolerance):
        asked.append(program.threads)
        raise InputError("enough")

    monkeypatch.setattr("gobrrr.pipeline.fix.program_bench", bench)
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    assert main(["fix", "--quiet", "--threads", "3", str(script)]) == 2
    assert main(["fix", "--quiet", str(script)]) == 2
    assert asked == [3, None]


@pytest.mark.torch
def test_a_script_is_written_after_its_difference_is_shown(capsys, tmp_path):
    written = tmp_path / "fast.py"
    source = "import torch\noptimizer = torch.optim.SGD(p, lr=0.1)\n"
    fused = next(fix for fix in FIXES if fix.name == "fused_optimizer")
    _write(
        "train.py",
        source,
        written,
        SimpleNamespace(
            best_fixes=(fused,), speedup=1.5, modules=0, compiles_by_method=False, objects={}
        ),
    )
    shown = capsys.readouterr().out
    assert "+optimizer = torch.optim.SGD(p, lr=0.1, fused=True)" in shown
    assert shown.index("+optimizer") < shown.index("Saved:")
    assert "fused=True" in written.read_text()


@pytest.mark.torch
def test_a_script_keeps_its_line_ends(tmp_path):
    script, written = tmp_path / "train.py", tmp_path / "fast.py"
    script.write_bytes(b"import torch\r\nnet = make()\r\nnet.eval()\r\nnet(1)\r\n")
    best = (next(fix for fix in FIXES if fix.name == "compile"),)
    found = SimpleNamespace(
        best_fixes=best, speedup=1.5, modules=1, compiles_by_method=True, objects={}
    )
    _write("train.py", _text_of(script), written, found)
    lines = written.read_bytes().split(b"\n")
    assert b"net.compile()\r" in lines
    assert all(line.endswith(b"\r") for line in lines[:-1])


@pytest.mark.torch
def test_what_was_tried_on_several_modules_is_not_written_for_one(capsys, tmp_path):
    source = "import torch\nteacher = make().eval()\nnet = make()\nnet.train()\nnet(teacher(1))\n"
    best = (next(fix for fix in FIXES if fix.name == "compile"),)
    found = SimpleNamespace(
        best_fixes=best, speedup=1.5, modules=2, compiles_by_method=True, objects={}
    )
    _write("train.py", source, tmp_path / "fast.py", found)
    said = capsys.readouterr().out
    assert "compile was tried on 2 modules" in said and "torch.compile(model)" in said
    assert not (tmp_path / "fast.py").exists()


def test_what_cannot_be_rewritten_is_said_before_the_search(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import torch\n")
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\n# ü\n".encode("latin-1"))
    for name, says in (("package", "is a directory"), ("latin.py", "in UTF-8")):
        assert main(["fix", "--write", "out.py", name]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


@pytest.mark.torch
def test_nothing_is_written_where_nothing_is_faster(capsys, tmp_path):
    _write("a.py", "", tmp_path / "b.py", SimpleNamespace(best_fixes=(), speedup=1.0))
    assert "is not written: no fix was verified" in capsys.readouterr().out
    assert not (tmp_path / "b.py").exists()


def test_the_names_are_listed_and_help_says_how(capsys):
    assert main(["fix", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {fix.name for fix in FIXES} <= set(listed)
    assert len(listed) == len(set(listed))
    assert main(["fix", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--list" in said
    assert f"(default {TOLERANCE:g})" in said
    assert "exit codes: 0 searched" in said


@pytest.mark.torch
def test_a_function_that_is_not_there_is_refused_before_the_file_runs(
    capsys, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text("print('it ran')\ndef make_step():\n    return print\n")
    for target in ("bench.py:nothere", "bench.py:"):
        assert main(["fix", target]) == 2
        said = capsys.readouterr()
        assert "make_step" in said.err and said.err.count("\n") == 1
        assert "diagnosing" not in said.err and "it ran" not in said.out
