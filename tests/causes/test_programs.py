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
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))


def diagnosed(name, tmp_path, *arguments):
    saved = tmp_path / "d.json"
    command = [sys.executable, "-m", "gobrrr", "run", "--quiet", "--json", str(saved)]
    ended = subprocess.run(
        [*command, str(PROGRAMS / f"{name}.py"), *arguments],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(saved.read_text())


def causes(diagnosis):
    return [finding for finding in diagnosis["findings"] if finding.get("words")]


def sentences(verdict):
    return re.split(r"(?<=\.) (?=[A-Z0-9])", verdict)


def place(name):
    text = (PROGRAMS / f"{name}.py").read_text().splitlines()
    return next(number for number, line in enumerate(text, 1) if line.endswith("# here"))


@pytest.mark.parametrize("name", NAMES)
def test_a_cause_is_named_where_it_is(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "torch"))
    found = diagnosed(name, tmp_path)
    (finding,) = [each for each in causes(found) if each["fix"] == name]
    first = sentences(found["verdict"])[:3]
    assert any(finding["title"].lower() in sentence.lower() for sentence in first), first
    assert any(f"{name}.py:{place(name)} in" in source for source in finding["sources"])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_not_promised_where_it_is_not(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "torch"))
    assert [each["fix"] for each in causes(diagnosed(name, tmp_path, "--sound"))] == []
