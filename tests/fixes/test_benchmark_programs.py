"""The benchmark's new programs: what was mended by hand computes what the flawed one does."""

import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gobrrr import Workload  # noqa: E402

pytestmark = pytest.mark.torch
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "fixes"


def load(path):
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


PROGRAMS = load(FOLDER / "new" / "programs.py").PROGRAMS


def result_of(program, name):
    made = getattr(load(FOLDER / "new" / program.file), name)()
    torch.manual_seed(1)
    step = made.step if isinstance(made, Workload) else made
    step()
    return step()


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.kind == "function" and p.flaw], ids=lambda p: p.name
)
def test_mended_by_hand_computes_the_same(program):
    flawed, mended = (result_of(program, name) for name in (program.name, program.mended))
    pairs = zip(flawed, mended, strict=True) if isinstance(flawed, tuple) else [(flawed, mended)]
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-2, atol=1e-3)


def test_there_are_24_with_a_flaw_and_6_without_and_every_flaw_is_marked():
    flawed = [p for p in PROGRAMS if p.flaw]
    assert (len(flawed), len(PROGRAMS) - len(flawed)) == (24, 6)
    for program in flawed:
        folder = FOLDER / "new"
        path = folder / "scripts" / f"{program.name}.py" if program.kind == "script" else (
            folder / program.file
        )  # fmt: skip
        assert "# flaw" in path.read_text()
        assert program.fixed_by and program.mended


def test_the_first_programs_and_keys_are_as_they_were():
    original = load(FOLDER / "original" / "programs.py").PROGRAMS
    assert len(original) == 23
    keys = {p.name: p.fixed_by for p in original if p.flaw}
    assert len(keys) == 20
    # Widened once, and put back.
    assert keys["attention_by_hand"] == ("fused_attention",)
    assert keys["images_nchw"] == ("channels_last",)
    assert keys["decoding_without_cache"] == ("kv_cache",)
    assert keys["gpt2_training"] == ("fused_optimizer",)
