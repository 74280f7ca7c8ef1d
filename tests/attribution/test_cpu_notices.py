"""What is said of a step on a processor beside its times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from gobrrr.attribution.cpu import causes as cpu_causes
from gobrrr.attribution.cpu.attribute import OtherKernel
from gobrrr.attribution.cpu.attributed import _notices
from gobrrr.attribution.leaves import IdleGap
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.measurements import Measurements


def notices(
    recorded: tuple[object, ...], others: tuple[object, ...], matched: float, faults: float = 0.0
) -> list[str]:
    analysis = SimpleNamespace(
        capture=SimpleNamespace(
            recorded=recorded,
            matched_fraction=matched,
            timeline=SimpleNamespace(host=SimpleNamespace(kind=np.empty(0, np.uint8))),
        ),
        result=SimpleNamespace(other_kernels=others),
        fixed=SimpleNamespace(estimated=0),
        page_faults=faults,
    )
    kind = SimpleNamespace(fault_ns=None)
    measured = SimpleNamespace(notices=[], load_notices=[], kind=kind)
    return _notices(cast("Any", measured), cast("Any", analysis), Ceilings("a processor", {}, ()))


def test_a_step_without_ops_is_said_to_have_none() -> None:
    assert notices((), (), 0.0) == ["The step ran no PyTorch op."]


def test_page_faults_of_unknown_cost_are_said_to_count_elsewhere() -> None:
    (said,) = notices((object(),), (), 1.0, faults=12.0)
    assert said.startswith("What a page fault costs is not known here: 12 of each step count in")


def test_ops_that_other_steps_ran_are_not_forgotten() -> None:
    (said,) = notices((), (OtherKernel("aten::mm", 1.0, None, None),), 0.0)
    assert said.startswith("Only 0 % of the profiled ops match the recorded step")


@pytest.mark.parametrize(("matched", "said"), [(1.0, 0), (0.5, 1)])
def test_a_step_whose_ops_were_found_is_not_doubted(matched: float, said: int) -> None:
    assert len(notices((object(),), (), matched)) == said


@pytest.mark.parametrize(("severity", "line"), [(0.4, "train.py:9 in f"), (0.6, None)])
def test_no_line_of_python_is_blamed_for_waiting_for_a_processor(
    severity: float, line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = [
        IdleGap(5.0, "overhead.python", "train.py:9 in f"),
        IdleGap(3.0, "overhead.dispatch", "train.py:8 in f"),
    ]
    monkeypatch.setattr(cpu_causes, "causes_of_lane", lambda *given: gaps)
    monkeypatch.setattr(cpu_causes, "_sampled_steps", lambda *given: [])
    measured = Measurements(disturbance="other programs took 90 %", severity=severity)
    analysis = SimpleNamespace(capture=None, result=None)
    found = cpu_causes.causes_of_overhead(measured, analysis)  # type: ignore[arg-type]
    assert [gap.source for gap in found] == [line, "train.py:8 in f"]
    assert ("no line of Python is blamed" in measured.load_notices[0]) == (line is None)
    # Why there is no verdict is said once, with that.
    measured.taken_away = True
    assert measured.mostly_waited and measured.load_notices == []
