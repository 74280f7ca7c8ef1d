"""One command line and one head of a result for all benchmarks, and the run over all of them."""

import argparse
import ast
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
    monkeypatch.setattr(every, "ONE_OF_ALL", 0.01)
    outcome = every.run("slow", tmp_path / "slow.json", every.Limit(100.0))
    assert (outcome.state, outcome.said) == ("failed", "it took longer than 1 s")


# Says in a file who it is, and that it was asked to end, which does not end the processes it has
# started: one of them has a session of its own, as a launcher's ranks have.
STARTS_OTHERS = """
import os, subprocess, sys, time
from pathlib import Path
wait = [sys.executable, "-c", "import time; time.sleep(600)"]
others = [subprocess.Popen(wait), subprocess.Popen(wait, start_new_session=True)]
told = Path(sys.argv[2]).with_name("told")
told.with_suffix(".new").write_text(" ".join(str(other.pid) for other in others))
told.with_suffix(".new").rename(told)
try:
    time.sleep(SECONDS)
except KeyboardInterrupt:
    Path(sys.argv[2]).with_name("tidied").touch()
    raise
"""


def still_runs_soon(pid: int) -> bool:
    """The same a little later: a signal takes its time."""
    for _ in range(500):
        if not still_runs(pid):
            return False
        time.sleep(0.02)
    return True


def still_runs(pid: int) -> bool:
    """Whether it does; one that has ended and that nobody has asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """What is started heeds Ctrl-C, though a shell may have told the tests to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_benchmark_that_is_ended_tidies_up_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark(tmp_path, "slow", STARTS_OTHERS.replace("SECONDS", "600"))
    monkeypatch.setattr(every, "ROOT", tmp_path)
    whole = subprocess.Popen.wait

    def wait(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        # As long as it takes to start, on a busy machine too.
        while child.returncode is None and not (tmp_path / "told").exists():
            time.sleep(0.02)
        return whole(child, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    # The grace is for a program that does not listen.
    monkeypatch.setattr(every, "GRACE_S", 60.0)
    monkeypatch.setattr(every, "ONE_OF_ALL", 0.001)
    assert every.run("slow", tmp_path / "slow.json", every.Limit(500.0)).state == "failed"
    assert (tmp_path / "tidied").exists()
    pids = [int(pid) for pid in (tmp_path / "told").read_text().split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if still_runs_soon(pid)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_benchmark_that_is_done_leaves_no_process_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = STARTS_OTHERS.replace("SECONDS", "0").replace(", start_new_session=True", "")
    benchmark(tmp_path, "fine", code)
    monkeypatch.setattr(every, "ROOT", tmp_path)
    assert every.run("fine", tmp_path / "fine.json", every.Limit()).state == "done"
    pids = [int(pid) for pid in (tmp_path / "told").read_text().split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if still_runs_soon(pid)]


def test_quick_benchmarks_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark(tmp_path, "a_slow", "import time; time.sleep(600)")
    benchmark(tmp_path, "b_never", "raise ValueError('it was run')")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "device_name", lambda: "cpu")
    monkeypatch.setattr(every, "ONE_OF_ALL", 2.0)
    monkeypatch.setattr(every, "processors", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["all.py", "--quick", "--limit-minutes", str(2 / 60)])
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
        every.run("slow", tmp_path / "slow.json")
    # By the signal, long before it would have ended. (A Python that is only starting ends with 1.)
    assert waited[0].returncode in (-signal.SIGINT, -signal.SIGKILL, 1)


@pytest.mark.torch
def test_without_a_gpu_its_benchmark_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    outcome = every.run("gpu", tmp_path / "gpu.json", every.Limit())
    assert (outcome.state, outcome.said) == ("skipped", "skipped: PyTorch sees no GPU here")


@pytest.mark.torch
@pytest.mark.parametrize("topic", ["ceilings", "regimes", "trace"])
def test_quick_benchmarks_still_run(topic: str, tmp_path: Path) -> None:
    out = tmp_path / f"{topic}.json"
    outcome = every.run(topic, out, every.Limit())
    assert outcome.state == "done", outcome.said
    assert json.loads(out.read_text())["quick"] is True


def test_quick_benchmarks_run_beside_each_other_but_for_the_one_that_measures_ceilings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "saw"
    folder.mkdir()
    # Each waits until it has seen the other, and would fail at the limit.
    meets = """
import sys, time
from pathlib import Path
folder = Path({folder!r})
assert (folder / "ceilings").exists()
(folder / {me!r}).touch()
while not (folder / {other!r}).exists():
    time.sleep(0.02)
"""
    for me, other in (("a", "b"), ("b", "a")):
        benchmark(tmp_path, me, meets.format(folder=str(folder), me=me, other=other))
    alone = f"""
import time
from pathlib import Path
folder = Path({str(folder)!r})
time.sleep(0.5)
assert not list(folder.iterdir())
(folder / "ceilings").touch()
"""
    benchmark(tmp_path, "ceilings", alone)
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "device_name", lambda: "cpu")
    monkeypatch.setattr(every, "processors", lambda: 2)
    monkeypatch.setattr(sys, "argv", ["all.py", "--quick"])
    assert every.main() == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split()[:2] == ["done", "ceilings"]
    assert {tuple(line.split()[:2]) for line in lines[1:3]} == {("done", "a"), ("done", "b")}


def test_what_a_quick_benchmark_prints_is_shown_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    benchmark(tmp_path, "fine", "print('nobody asks')")
    benchmark(tmp_path, "broken", "print('at row 7'); raise ValueError('too bad')")
    monkeypatch.setattr(every, "ROOT", tmp_path)
    for topic in ("fine", "broken"):
        every.run(topic, tmp_path / "x.json", every.Limit())
    out, err = capfd.readouterr()
    assert not out and "nobody asks" not in err
    assert "at row 7" in err and "ValueError: too bad" in err
