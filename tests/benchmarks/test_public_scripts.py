"""The benchmark of public scripts: its keys, and how lengths are read from their own clock."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.public_scripts.keys import CALL, EXPLICIT, HERE, OPTIMIZER, Key, read_keys
from benchmarks.public_scripts.run import lengths_s, right_kind, said_first, score, typical_s

KEYS = read_keys()


def test_every_script_has_a_key_and_every_key_a_script() -> None:
    scripts = {path.stem for path in (HERE / "scripts").glob("*.py")} - {"own_clock"}
    assert set(KEYS) == scripts
    assert len(KEYS) >= 60


@pytest.mark.parametrize("key", KEYS.values(), ids=str)
def test_a_script_compiles_and_marks_its_steps(key: Key) -> None:
    tree = ast.parse(key.script.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    marks = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "mark"]
    assert marks, "without marks nothing is known of its steps"
    assert key.step in (OPTIMIZER, CALL, EXPLICIT)
    assert (key.optimizer_steps > 0) == (key.step == OPTIMIZER)
    assert key.project.count("/") == 1 and key.path and key.marks >= 1


def test_the_clock_writes_when_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    code = "from own_clock import mark; mark('setup'); mark(); mark('evaluation')"
    environment = {**os.environ, "PUBLIC_SCRIPT_CLOCK": str(path)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=HERE / "scripts", check=True)
    assert [line.split()[1] for line in path.read_text().splitlines()] == [
        "setup", "step", "evaluation"
    ]  # fmt: skip


def test_evaluations_count_to_no_step() -> None:
    marks = [(0, "setup"), (2, "step"), (5, "step"), (105, "evaluation"), (109, "step")]
    marks = [(int(when * 1e9), name) for when, name in marks]
    assert lengths_s(marks, 1) == pytest.approx([2, 3, 4])


def test_a_cycle_is_its_turns_together() -> None:
    turns = [(0, "setup"), (1, "step"), (4, "step"), (5, "step"), (8, "step"), (9, "step")]
    marks = [(int(when * 1e9), name) for when, name in turns]
    assert lengths_s(marks, 2) == pytest.approx([4, 4])
    assert lengths_s([*marks[:2], (int(2e9), "evaluation"), *marks[2:]], 2) == pytest.approx([3, 4])


def test_the_first_steps_and_one_long_one_do_not_decide() -> None:
    lengths = [9.0, 9.0, 9.0, 1.0, 1.0, 2.0, 2.0, 100.0]
    assert typical_s(lengths, varying=False) == 2.0
    assert typical_s(lengths, varying=True) == pytest.approx((1 + 1 + 2 + 2 + 10) / 5)


def test_a_step_is_found_by_kind_and_length() -> None:
    key = KEYS["mnist"]
    diagnosis = {"step": {"kind": "training step", "time_s": {"median": 1.05, "mean": 3.0}}}
    report = "\nmnist.py · training step\n1.05 s per step\n\nThe optimizer takes most.\n"
    told = score(key, 1.0, diagnosis, report)
    assert told["found"] and told["first_line"]
    assert not score(key, 1.2, diagnosis, report)["found"]
    diagnosis["step"]["kind"] = "step"
    assert not score(key, 1.0, diagnosis, "ms")["found"]
    assert right_kind(KEYS["eval_only"], "step") and not right_kind(key, "decode step")
    assert said_first(report) == "mnist.py · training step 1.05 s per step"
