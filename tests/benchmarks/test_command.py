"""One command line and one head of a result for all benchmarks, and the run over all of them."""

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import all as every
from benchmarks import command

ROOT = Path(__file__).parents[2]


def options(out: Path | None, quick: bool = False) -> argparse.Namespace:
    return argparse.Namespace(out=out, quick=quick)


@pytest.mark.parametrize("topic", sorted(every.topics()))
def test_every_benchmark_uses_the_common_command_line_and_head(topic: str) -> None:
    tree = ast.parse(every.topics()[topic].read_text())
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert {"Record", "parser"} <= called and "ArgumentParser" not in called


def test_every_folder_of_a_benchmark_is_run() -> None:
    folders = {path.parent for path in (ROOT / "benchmarks").glob("*/*.py")}
    assert folders == {path.parent for path in every.topics().values()}
    assert all((ROOT / "benchmarks" / path).is_file() for path in every.FURTHER.values())


def test_a_result_says_on_what_it_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "x.json"
    command.Record("x", options(out), "msgspec", "no-such-package", device="a card").write(
        {"rows": [1]}
    )
    found = json.loads(out.read_text())
    assert found["topic"] == "x" and found["rows"] == [1] and found["device"] == "a card"
    assert found["versions"]["no-such-package"] is None and found["versions"]["msgspec"]
    assert {"date", "commit", "dirty", "threads", "command", "load_before", "load_after"} <= set(
        found
    )


def test_quick_figures_are_not_kept() -> None:
    with pytest.raises(SystemExit, match="mean nothing"):
        command.Record("x", options(command.RESULTS / "x.json", quick=True), device="a card")


def test_what_is_not_here_is_said_and_has_a_status_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.needed(tmp_path / "traces", "recorded traces")
    assert ended.value.code == command.SKIPPED
    assert "skipped: recorded traces are not in" in capsys.readouterr().err


def benchmark(folder: Path, topic: str, code: str) -> None:
    path = folder / "benchmarks" / topic / "run.py"
    path.parent.mkdir(parents=True)
    path.write_text(code)


def test_a_failing_benchmark_does_not_keep_the_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark(tmp_path, "a_broken", "raise ValueError('too bad')")
    benchmark(tmp_path, "b_absent", "import sys; print('skipped: no GPU', file=sys.stderr); "
              "sys.exit(77)")  # fmt: skip
    benchmark(tmp_path, "c_fine", "import sys; open(sys.argv[2], 'w').write('{}')")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "device_name", lambda: "cpu")
    monkeypatch.setattr(sys, "argv", ["all.py", "--out", str(tmp_path / "out")])
    assert every.main() == 1
    assert [path.name.split("_cpu_")[0] for path in (tmp_path / "out").iterdir()] == ["c_fine"]
    lines = capsys.readouterr().out.strip().splitlines()[-4:]
    assert [line.split()[:2] for line in lines] == [
        ["done", "c_fine"], ["skipped", "b_absent"], ["failed", "a_broken"], ["total", "3"],
    ]  # fmt: skip
    assert lines[1].endswith("no GPU")
    assert "ValueError: too bad" in lines[2]


def test_a_quick_benchmark_that_takes_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark(tmp_path, "slow", "import time; time.sleep(600)")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "QUICK_LIMIT_S", 1.0)
    outcome = every.run("slow", tmp_path / "slow.json", quick=True)
    assert (outcome.state, outcome.said) == ("failed", "it took longer than 1 s")


def test_quick_benchmarks_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark(tmp_path, "a_slow", "import time; time.sleep(600)")
    benchmark(tmp_path, "b_never", "raise ValueError('it was run')")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "device_name", lambda: "cpu")
    monkeypatch.setattr(every, "QUICK_TOTAL_S", 2.0)
    monkeypatch.setattr(sys, "argv", ["all.py", "--quick"])
    assert every.main() == 1
    slow, never, _ = capsys.readouterr().out.strip().splitlines()[-3:]
    assert slow.endswith(
        "it took longer than 2 s, what was left of 2 s for all benchmarks together"
    )
    assert never.endswith("not run: 2 s for all benchmarks together were over")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_no_benchmark_goes_on_when_the_run_over_all_is_stopped(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark(tmp_path, "slow", "import time; time.sleep(60)")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    waited: list[subprocess.Popen[bytes]] = []
    whole = subprocess.Popen.wait

    def wait(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waited.append(child)
        if len(waited) == 1:
            raise stop
        return whole(child, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(stop):
        every.run("slow", tmp_path / "slow.json", quick=False)
    # By the signal, long before it would have ended.
    assert waited[0].returncode == -9


@pytest.mark.torch
def test_without_a_gpu_its_benchmark_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    outcome = every.run("gpu", tmp_path / "gpu.json", quick=True)
    assert (outcome.state, outcome.said) == ("skipped", "skipped: PyTorch sees no GPU here")


@pytest.mark.torch
@pytest.mark.parametrize("topic", ["ceilings", "regimes", "trace"])
def test_quick_benchmarks_still_run(topic: str, tmp_path: Path) -> None:
    out = tmp_path / f"{topic}.json"
    outcome = every.run(topic, out, quick=True)
    assert outcome.state == "done", outcome.said
    assert json.loads(out.read_text())["quick"] is True
