"""Data sheets whose figures cannot all be true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gobrrr.devices import datasheets
from gobrrr.devices.contradictions import contradiction, contradiction_of_sheet
from gobrrr.devices.datasheet import all_datasheets, ceilings_of_sheet, find_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet, Figure
from gobrrr.models.target import target_device
from gobrrr.timeline.errors import InputError

Change = Callable[[DeviceSheet], DeviceSheet]


def _scaled(figure: Figure | None, factor: float) -> Figure:
    assert figure is not None
    return Figure(figure.value * factor, figure.source)


def _h100() -> DeviceSheet:
    found = find_datasheet("H100-SXM")
    assert found is not None
    return found


@pytest.mark.parametrize("sheet", all_datasheets(), ids=lambda sheet: sheet.key)
def test_no_sheet_of_the_table_contradicts_itself(sheet: DeviceSheet) -> None:
    assert contradiction_of_sheet(sheet) is None
    assert contradiction(ceilings_of_sheet(sheet)) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda s: replace(s, memory_bytes_per_s=Figure(-1.0, "")),
            "its memory bandwidth is -1, not a positive number",
        ),
        (
            lambda s: replace(s, matrix={**s.matrix, "float16": Figure(0.0, "")}),
            "its matrix float16 is 0, not a positive number",
        ),
        (
            lambda s: replace(s, base_clock_hz=_scaled(s.clock_hz, 1.5)),
            "is below its base clock (",
        ),
        (
            lambda s: replace(s, memory_bytes=_scaled(s.caches[-1].capacity_bytes, 0.5)),
            "its l2 holds ",
        ),
        (
            lambda s: replace(
                s, caches=(replace(s.caches[-1], bytes_per_s=_scaled(s.memory_bytes_per_s, 0.9)),)
            ),
            "slower than its memory at ",
        ),
        (
            lambda s: replace(s, vector={"float32": _scaled(s.vector["float32"], 0.01)}),
            "in float32, and its vector rate is ",
        ),
        (
            lambda s: replace(s, matrix={"float16": _scaled(s.matrix["float16"], 0.5)}),
            "in float16 as on other Hopper devices, and its peak is ",
        ),
    ],
)
def test_a_sheet_that_contradicts_itself_is_one_sentence_when_it_is_used(
    change: Change, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(change(_h100()), key="Mine", name="My device", driver_names=(), aliases=())
    table = _Table(SHEETS=(mine,))
    monkeypatch.setattr(datasheets, "TABLES", (*datasheets.TABLES, table))
    with pytest.raises(InputError) as error:
        target_device("Mine")
    said = str(error.value)
    assert said.startswith("the data sheet of Mine contradicts itself: ")
    assert says in said and "\n" not in said


def test_a_sound_sheet_of_a_user_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(_h100(), key="Mine", name="My device", driver_names=(), aliases=())
    monkeypatch.setattr(datasheets, "TABLES", (*datasheets.TABLES, _Table(SHEETS=(mine,))))
    assert target_device("Mine").key == "Mine"


class _Table(SimpleNamespace):
    """Stands for a module, which has a hash too."""

    __hash__ = object.__hash__
