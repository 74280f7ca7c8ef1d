"""Quantities of claims as people read them."""

from __future__ import annotations

import pytest

from gobrrr.lab.page import value_text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0, "kernels", "1 kernel"),
        (37.0, "kernels", "37 kernels"),
        (1234.0, "kernels", "1,234 kernels"),
        (2.5, "operators", "2.5 operators"),
        (1.0, "x", "1.00x"),
        (54.7e6, "op/s", "54.7 Mop/s"),
        (6.83, "%", "6.8 %"),
        (31.0, "", "31.0"),
    ],
)
def test_a_quantity_has_its_unit(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit) == text
