"""What a card's states around timed steps say of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices.card import CardSpan, CardState, OtherProcess
from gobrrr.devices.ceilings import Ceiling
from gobrrr.diagnosis.card import card_notices, card_record
from gobrrr.diagnosis.step_schema import CardRecord
from gobrrr.reports.sentences import card as card_line

SECOND = 10**9


def spans(*, seconds: float = 1.0, **after: Any) -> list[CardSpan]:
    wall_ns = round(seconds * SECOND)
    start = CardState(at_ns=0, energy_mj=1000, power_held_ns=10, heat_held_ns=0)
    fields = {"energy_mj": 601_000, "power_held_ns": 10 + wall_ns * 38 // 100, "heat_held_ns": 0,
              "sm_mhz": 1500, "sm_mean_mhz": 1410.0, "sm_max_mhz": 1980, "power_limit_w": 700.0,
              "temperature_c": 61, "reasons": ("idle", "power cap")} | after  # fmt: skip
    return [CardSpan(start, CardState(at_ns=wall_ns, **fields), 20)] * 2


def notices(record: CardRecord | None, **ceiling: Any) -> list[str]:
    row = Ceiling("matrix.bfloat16", 800e12, "FLOP/s", "measured", "a test", **ceiling)
    diagnosis: Any = SimpleNamespace(
        card=record, mfu_dtype="bfloat16", device=SimpleNamespace(ceilings=[row])
    )
    return card_notices(diagnosis)


def test_energy_clock_and_time_held() -> None:
    record = card_record(spans())
    assert record is not None and record.steps == 40
    assert record.joules_per_step == pytest.approx(30)
    assert record.mean_w == pytest.approx(600)
    assert record.power_held == pytest.approx(0.38) and record.heat_held == 0
    assert (record.sm_mhz, record.reasons) == (1410, ["power cap"])
    line = card_line(SimpleNamespace(card=record))  # type: ignore[arg-type]
    assert line == (
        "Card: 30.0 J a step and 600 W of 700 W, measured by it; SM clock 1410 of 1980 MHz; 61 °C."
    )
    assert card_line(SimpleNamespace(card=None)) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 0.1}, {"mig": True}, {"energy_mj": None}, {"energy_mj": 1000},
        {"others": (OtherProcess(7, 10, 0.2),)},
    ],
)  # fmt: skip
def test_energy_that_is_not_the_steps_own_is_not_told(changed: dict[str, Any]) -> None:
    record = card_record(spans(**changed))
    assert record is not None and record.joules_per_step is None and record.mean_w is None


def test_a_card_that_tells_nothing() -> None:
    start = CardState(at_ns=0)
    record = card_record([CardSpan(start, CardState(at_ns=SECOND), 5)])
    assert record == CardRecord(steps=5)
    assert notices(record) == [] and card_record([]) is None
    assert card_record([CardSpan(start, start, 0)]) is None


def test_the_ceiling_at_the_clock_that_was_held() -> None:
    (said,) = notices(card_record(spans()), sm_hz=1.88e9)
    assert said == (
        "The card held its clock at 1410 of 1980 MHz on average, for power (its limit is 700 W) in "
        "38 % of the time in which steps were timed: its ceiling of products in bfloat16 at that "
        "clock is 600 TFLOP/s (of 800 TFLOP/s at 1880 MHz)."
    )
    # Measured at that clock, or at none that is known.
    for sm_hz in (1.41e9, None):
        (said,) = notices(card_record(spans()), sm_hz=sm_hz)
        assert said.endswith("were timed.")


def test_heat_and_clocks_that_were_set() -> None:
    (said,) = notices(card_record(spans(heat_held_ns=SECOND // 2, temperature_c=88)))
    assert "for heat (88 degrees Celsius) in 50 %" in said
    (said,) = notices(card_record(spans(power_held_ns=10, reasons=("clocks set",))))
    assert "nvidia-smi --reset-applications-clocks" in said


def test_a_clock_at_its_maximum_needs_no_word() -> None:
    assert notices(card_record(spans(sm_mean_mhz=1965.0))) == []
    assert notices(card_record(spans(power_held_ns=10))) == []
