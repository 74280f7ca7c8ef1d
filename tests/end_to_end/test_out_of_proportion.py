"""A step whose dropout costs much is told so: in the diagnosis, the text, the page and the JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.reports.html import render  # noqa: E402
from gobrrr.reports.markdown import report_markdown  # noqa: E402
from gobrrr.reports.terminal import Options, report_text  # noqa: E402

pytestmark = pytest.mark.torch
# More than any processor draws, so that no roof is beaten here.
DRAWN_PER_S = 1e10


def ceilings() -> Ceilings:
    values = {"matrix.float32": 1e12, "vector.float32": 1e12, "operator.bernoulli_": DRAWN_PER_S}
    rows = {name: Ceiling(name, value, "op/s", "given", "test") for name, value in values.items()}
    return Ceilings("a processor", rows, (MemoryLevel("dram", None, ((0.0, 1e12),)),))


@pytest.fixture(scope="module")
def dropped() -> Diagnosis:
    """A training step that is mostly dropout, diagnosed here."""
    net = torch.nn.Sequential(torch.nn.Linear(16, 4096), torch.nn.Dropout(0.1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    data = torch.randn(64, 16)

    def step() -> None:
        optimizer.zero_grad()
        net(data).sum().backward()
        optimizer.step()

    return gobrrr.diagnose(
        step, steps=4, warmup=1, batch_test=False, ceilings=ceilings(), progress=False
    )


def test_what_dropout_costs_is_a_finding_of_its_own(dropped: Diagnosis) -> None:
    (found,) = [finding for finding in dropped.findings if finding.fix == "random_numbers"]
    assert found.title is not None and found.title.startswith("Dropout's random numbers take ")
    # The same nanoseconds as in the table of ops.
    (row,) = [row for row in dropped.ops if row.name == "aten::bernoulli_"]
    assert found.prediction is not None
    assert found.prediction.low_s == pytest.approx(row.time_s)
    assert found.prediction.low_s <= found.prediction.expected_s <= found.prediction.high_s
    # Its masks go with it: made once, applied forward and backward.
    masks = [r for r in dropped.ops if r.name in ("aten::div_", "aten::mul")]
    assert sum(r.count for r in masks) == 3
    assert found.prediction.expected_s == pytest.approx(
        row.time_s + sum(r.time_s for r in masks), rel=1e-6
    )
    (line,) = found.sources
    assert "test_out_of_proportion.py" in line and line.endswith(" in step")


def test_every_report_has_it(dropped: Diagnosis, tmp_path: Path) -> None:
    (found,) = [finding for finding in dropped.findings if finding.fix == "random_numbers"]
    share = dropped.ops[0].time_s / dropped.accounted_s
    if share > 0.2 and dropped.verdict:
        assert "Dropout's random numbers take" in dropped.verdict
    # The one screen holds the three largest, by times of here; all that is known holds it always.
    text = " ".join(report_text(dropped, Options(verbose=True)).split())
    assert "bernoulli_" in text and "Without dropout" in text
    assert found.title in render(dropped).decode().replace("&#39;", "'")
    assert "Without dropout" in report_markdown(dropped)
    again = gobrrr.load(dropped.save(tmp_path / "d.json"))
    assert again.findings == dropped.findings
