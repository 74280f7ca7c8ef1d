"""Energy of a predicted step, and what reports say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis, EnergyRecord
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.energy import energy_record, tokens_of
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.sentences import energy
from gobrrr.reports.terminal import report_text
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of


@pytest.fixture
def minimal(data: Path) -> Diagnosis:
    return gobrrr.load(data / "minimal.json")


def _lookup(
    rows: int,
    indices: tuple[int, ...],
    phase: Phase = Phase.FORWARD,
    *,
    storage: int | None = None,
    width: int = 64,
) -> CostedOp:
    table = TensorSpec((rows, width), "float32", storage=storage)
    found = TensorSpec((*indices, width), "float32")
    call = OpCall("aten::embedding", (table, TensorSpec(indices, "int64")), (found,))
    cost = OpCost(call, work_of(call), None, 1e-4, 0.0, 1, 1, cold_bytes=1e6)
    return CostedOp(StepOp(call, phase=phase), cost)


def test_tokens_are_the_lookups_in_the_table_with_the_most() -> None:
    # A vocabulary, positions, and segments.
    ops = [_lookup(50_000, (4, 512)), _lookup(1024, (512,)), _lookup(2, (4, 512))]
    assert tokens_of(op.op for op in ops) == 2048
    # More positions than letters in the alphabet.
    assert tokens_of([_lookup(256, (4, 512)).op, _lookup(1024, (512,)).op]) == 2048
    assert tokens_of([_lookup(50_000, (4, 512), Phase.BACKWARD).op]) is None
    assert tokens_of([]) is None


def test_lookups_of_microbatches_and_of_decode_steps_add_up() -> None:
    # 4 x (2 x 512) tokens; positions are looked up once for both rows.
    microbatch = [_lookup(50_000, (2, 512), storage=1).op, _lookup(1024, (512,), storage=2).op]
    assert tokens_of(microbatch * 4) == 4096
    # A prompt of 512 and 16 tokens after it: 528.
    decode = [_lookup(50_000, (1, 1), storage=1).op, _lookup(1024, (1,), storage=2).op]
    assert tokens_of([_lookup(50_000, (1, 512), storage=1).op, *decode * 16]) == 528
    # Two tables of one shape are two.
    two = [_lookup(50_000, (2, 512), storage=1).op, _lookup(50_000, (2, 512), storage=2).op]
    assert tokens_of(two) == 1024


def test_a_table_of_biases_between_positions_holds_no_tokens() -> None:
    # As T5 has: 32 distances, a column for each of 12 heads; 512 x 512 lookups.
    assert tokens_of([_lookup(50_000, (1, 512)).op, _lookup(32, (512, 512), width=12).op]) == 512


def test_joules_per_token() -> None:
    found = energy_record([_lookup(50_000, (4, 512))], 1e-3, target_device("H100-SXM"))
    assert found is not None
    assert found.tokens == 2048
    assert found.joules_per_token == pytest.approx(found.joules / 2048)
    # 155 W over 1 ms are the least.
    assert found.joules > found.static_j == pytest.approx(0.155)
    assert energy_record([], 1e-3, target_device("M2")) is None


def test_reports_say_it_once_and_only_if_it_is_known(minimal: Diagnosis) -> None:
    assert energy(minimal) == ""
    record = EnergyRecord(
        joules=50.0, mean_w=500.0, board_w=700.0, static_j=15.5, arithmetic_j=24.5, memory_j=10.0,
        tokens=2500, joules_per_token=0.02, source="somewhere",
    )  # fmt: skip
    found = replace(minimal, energy=record)
    assert energy(found) == (
        "Energy about 50.0 J a step, 500 W of the board's 700 W: static 31 %, arithmetic 49 %, "
        "memory 20 %; not validated against measurements. 50.0 tokens per joule (2500 tokens)."
    )
    assert "Energy about 50.0 J" in report_text(found)
    assert "50.0 tokens per joule" in report_markdown(found)
    without = replace(record, tokens=None, joules_per_token=None)
    assert "tokens" not in energy(replace(minimal, energy=without))
