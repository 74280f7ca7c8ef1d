"""What is known of kinds of devices by measurement, and what is said where nothing is."""

import pytest
from tests.fixes.facts import facts

from gobrrr.fixes.device_constants import CONSTANTS, constant, unmeasured


@pytest.mark.parametrize("name", CONSTANTS)
def test_each_has_a_processors_row_its_values_in_order_and_a_source(name):
    assert "cpu" in CONSTANTS[name]
    for row in CONSTANTS[name].values():
        low, expected, high = row.values
        assert low <= expected <= high or low >= expected >= high
        assert row.source and row.measured


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_kind_that_was_not_measured_has_wider_ends_and_says_so(name):
    known, unknown = (constant(name, facts(device_kind=kind)) for kind in ("cpu", "xpu"))
    assert known is CONSTANTS[name]["cpu"] and not unmeasured(known)
    assert abs(unknown.low - unknown.expected) >= abs(known.low - known.expected)
    assert abs(unknown.high - unknown.expected) >= abs(known.high - known.expected)
    assert "was measured on no device of this kind" in unmeasured(unknown)
    assert known.source in unmeasured(unknown)


def test_attention_on_an_h200_is_held_to_what_it_reached_there():
    found = constant("attention.reached", facts(device_kind="cuda"))
    assert found.values == (0.66, 0.75, 0.85) and found.measured
    # In 16 bits it is another kernel's, and on a processor no other.
    for kind in ("cuda", "cpu"):
        in_16_bits = constant("attention.reached", facts(device_kind=kind), "bfloat16")
        assert (in_16_bits.low == 0.35) and (in_16_bits.high == 0.75) is (kind == "cuda")
