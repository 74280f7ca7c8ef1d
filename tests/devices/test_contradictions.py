"""Data sheets whose figures cannot all be true."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.devices.contradictions import contradiction, contradiction_of_sheet
from gobrrr.devices.datasheet import all_datasheets, ceilings_of_sheet, find_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.errors import InputError


@pytest.mark.parametrize("sheet", all_datasheets(), ids=lambda sheet: sheet.key)
def test_no_sheet_of_the_table_contradicts_itself(sheet: DeviceSheet) -> None:
    assert contradiction_of_sheet(sheet) is None
    assert contradiction(ceilings_of_sheet(sheet)) is None


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ('base_clock = "3 GHz"', "is below its base clock (3.00 GHz)"),
        ('memory = "10 MiB"', "its l2 holds "),
        ('cache.l2.bandwidth = "3 TB/s"', "slower than its memory at "),
        ('vector.float32 = "669 GFLOP/s"', "in float32, and its vector rate is 669 GFLOP/s"),
        (
            'matrix.float16 = "495 TFLOP/s"',
            "in float16 as on other Hopper devices, ",
        ),
    ],
)
def test_a_card_that_contradicts_itself_is_one_sentence(
    field: str, says: str, tmp_path: Path
) -> None:
    card = tmp_path / "card.toml"
    card.write_text(f'[mine]\nlike = "H100-SXM"\n{field}\n')
    with pytest.raises(InputError) as error:
        target_device(str(card))
    said = str(error.value)
    assert said.startswith(f"{card} contradicts itself: ")
    assert says in said and "\n" not in said
    assert find_datasheet("mine") is None
