"""An operator from outside: one formula, and a trace, a prediction and a run know what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobrrr.cli import main
from gobrrr.timeline.ops import OpCall
from gobrrr.work import register_work, unregister_work
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import account
from gobrrr.work.traits import Role
from trace_writing import WrittenTrace

NAME = "gobrrr_tests::halve_rows"
ROWS, COLUMNS = 4096, 2048
# 3 operations for each element; float32 read once and written once.
FLOPS, BYTES = 3 * ROWS * COLUMNS, 2 * 4 * ROWS * COLUMNS


def halve_rows(call: OpCall) -> Work:
    x = call.tensors[0]
    return account([x], [x], vector=3.0 * x.numel, dtype="float32", op_class="elementwise")


@pytest.fixture
def added() -> Iterator[None]:
    # One file (this one) and one line.
    register_work(NAME, halve_rows, fusion=Role.POINTWISE, rate="mul")
    yield
    unregister_work(NAME)


def row_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [row for row in rows if row["name"] == NAME]
    return found


def recorded(folder: Path) -> Path:
    trace = WrittenTrace(deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    shape = {"Input Dims": [[ROWS, COLUMNS]], "Input type": ["float"],
             "Input Strides": [[COLUMNS, 1]], "Concrete Inputs": [""]}  # fmt: skip
    for i in range(2):
        trace.op(NAME, 100 * i, 10, **shape)
        trace.launch("halve_rows_kernel", 100 * i + 2, 100 * i + 8, 50, i + 1)
    return trace.write(folder)


def test_a_trace_knows_it(added: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "d.json"
    assert main(["trace", str(recorded(tmp_path)), "--json", str(saved)]) == 0
    found = json.loads(saved.read_bytes())
    row = row_of(found["ops"])
    assert (row["flops"], row["bytes"], row["regime"]) == (2 * FLOPS, 2 * BYTES, "memory")
    assert found["coverage"]["modelled_time_fraction"] == 1.0
    # Two of them are one kernel to a compiler, which its role says.
    (fusion,) = [finding for finding in found["findings"] if finding["fix"] == "fusion"]
    assert "2 ops move 134 MB; one kernel would move 67.1 MB" in fusion["because"]
    capsys.readouterr()


def test_without_the_line_it_is_unmodelled(tmp_path: Path) -> None:
    saved = tmp_path / "d.json"
    assert main(["trace", str(recorded(tmp_path)), "--json", str(saved)]) == 0
    found = json.loads(saved.read_bytes())
    assert row_of(found["ops"])["flops"] is None
    assert found["coverage"]["modelled_time_fraction"] == 0.0


@pytest.fixture(scope="module")
def operator() -> Any:
    torch = pytest.importorskip("torch")

    @torch.library.custom_op(NAME, mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x: Any) -> Any:
        return x / x.sum(dim=1, keepdim=True)

    @op.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    return op


@pytest.mark.torch
def test_a_prediction_knows_it(added: None, operator: Any) -> None:
    import torch

    import gobrrr

    x = torch.empty(ROWS, COLUMNS, device="meta")
    found = gobrrr.predict(lambda: operator(x), "H100-SXM", progress=False)
    (row,) = [row for row in found.ops if row.name == NAME]
    assert (row.flops, row.bytes, row.regime) == (FLOPS, BYTES, "memory")
    assert row.roof_s is not None and row.time_s >= row.roof_s
    assert not any(NAME in notice for notice in found.notices)


@pytest.mark.torch
def test_a_run_knows_it(added: None, operator: Any) -> None:
    import torch

    import gobrrr

    x = torch.rand(ROWS, COLUMNS)
    found = gobrrr.diagnose(
        lambda: operator(x), steps=4, warmup=1, batch_test=False, progress=False
    )
    (row,) = [row for row in found.ops if row.name == NAME]
    assert (row.flops, row.bytes) == (FLOPS, BYTES)
