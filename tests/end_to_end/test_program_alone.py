"""A script under ``gobrrr run`` starts as it does alone: nothing heavy is there before it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import os, sys
print("loaded", *sorted({name.partition(".")[0] for name in sys.modules}))
print("rooms", *sorted({name.split(".")[1] for name in sys.modules if name.startswith("gobrrr.")}))
os.environ["OMP_NUM_THREADS"] = "1"
import torch
print("threads", torch.get_num_threads())
"""


def said(tmp_path: Path, *options: str) -> dict[str, list[str]]:
    script = tmp_path / "starts.py"
    script.write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "gobrrr", "run", "--quiet", *options, str(script)]
    # A file that is taken for the machine's ceilings: none are to be measured here.
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    folder = tmp_path / "gobrrr"
    folder.mkdir()
    import torch

    version = torch.__version__.replace("+", "-")
    for threads in (1, 2, 3):
        (folder / f"ceilings-any-{threads}t-torch{version}-0.json").touch()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    lines = (line.split() for line in done.stdout.splitlines())
    return {line[0]: line[1:] for line in lines if line}


def test_nothing_heavy_is_loaded_before_a_script_runs(tmp_path: Path) -> None:
    found = said(tmp_path)
    assert not {"torch", "msgspec", "rich", "jinja2"} & set(found["loaded"])
    # What finds steps and times them, and what the command line is made of.
    assert set(found["rooms"]) == {
        "cli", "devices", "jobs", "live", "measure", "observe", "pipeline", "reports", "timeline",
    }  # fmt: skip


def test_what_a_script_sets_before_it_imports_torch_counts(tmp_path: Path) -> None:
    assert said(tmp_path)["threads"] == ["1"]


def test_threads_that_were_asked_for_are_set_once_torch_is_there(tmp_path: Path) -> None:
    assert said(tmp_path, "--threads", "3")["threads"] == ["3"]
