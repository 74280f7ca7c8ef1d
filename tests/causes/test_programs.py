"""Small programs that each have one known cause, and the same programs without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
PROGRAMS = Path(__file__).parent / "programs"
NEEDS = {"image_decoding": "PIL", "progress_bar": "tqdm"}
JOBS = Path(__file__).parent / "jobs"
# Those of two ranks last: each takes as long as several others.
FILES = {path.stem: path for folder in (PROGRAMS, JOBS) for path in sorted(folder.glob("*.py"))}
NAMES = list(FILES)


def diagnosed(name, tmp_path, *arguments):
    saved = tmp_path / "d.json"
    # One thread without OMP_NUM_THREADS, which is a cause itself; torchrun sets it.
    how = ["--nproc-per-node", "2"] if FILES[name].parent == JOBS else ["--threads", "1"]
    command = [sys.executable, "-m", "gobrrr", "run", *how, "--quiet", "--json", str(saved)]
    given = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    if FILES[name].parent == JOBS:
        # What malloc gives back differs from process to process.
        given |= {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296"}
    ended = subprocess.run(
        [*command, str(FILES[name]), *arguments],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=given,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(saved.read_text())


def causes(diagnosis):
    return [finding for finding in diagnosis["findings"] if finding.get("words")]


def sentences(verdict):
    return re.split(r"(?<=\.) (?=[A-Z0-9])", verdict)


def place(name):
    """The line that the report names; ``None``: what differs is no line but data."""
    text = FILES[name].read_text().splitlines()
    # Before Python 3.12 a thread beside the program's own is not asked for its line.
    begins = sys.version_info < (3, 12) and any(line.endswith("# begins") for line in text)
    mark = "# begins" if begins else "# here"
    return next((number for number, line in enumerate(text, 1) if line.endswith(mark)), None)


@pytest.mark.parametrize("name", NAMES)
def test_a_cause_is_named_where_it_is(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "torch"))
    found = diagnosed(name, tmp_path)
    (finding,) = [each for each in causes(found) if each["fix"] == name]
    first = sentences(found["verdict"])[:3]
    assert any(finding["title"].lower() in sentence.lower() for sentence in first), first
    wanted = [] if place(name) is None else [f"{name}.py:{place(name)} in"]
    assert all(any(line in source for source in finding["sources"]) for line in wanted)
    assert bool(finding["sources"]) == bool(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_not_promised_where_it_is_not(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "torch"))
    assert [each["fix"] for each in causes(diagnosed(name, tmp_path, "--sound"))] == []
