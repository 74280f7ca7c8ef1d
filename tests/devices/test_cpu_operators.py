from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.devices.cpu import operators as cpu_operators  # noqa: E402


@pytest.fixture(scope="module")
def rates() -> dict[str, float]:
    state = torch.get_rng_state()
    with torch.no_grad():
        rows = list(cpu_operators.operator_rates(torch, 1))
    assert torch.equal(torch.get_rng_state(), state), "a program's random numbers are its own"
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.how == "measured" and row.source for row in rows)
    return {row.name.removeprefix("operator."): row.value for row in rows}


def test_every_operator_has_a_rate_that_a_processor_can_have(rates: dict[str, float]) -> None:
    # From a thousand instructions for an element, of a processor that runs this for a hundredth of
    # the time, to a few elements an instruction.
    assert {name: value for name, value in rates.items() if not 1e4 < value < 1e13} == {}


def test_attention_is_timed_at_several_sizes_of_a_head(rates: dict[str, float]) -> None:
    for kind in ("attention", "attention_backward"):
        assert {f"{kind}.{size}" for size in cpu_operators.HEADS} <= set(rates)


def test_elements_that_are_counted_otherwise_are_measured(rates: dict[str, float]) -> None:
    counted = {"max_pool2d_with_indices", "avg_pool2d", "upsample_nearest2d", "index", "index_add"}
    assert counted <= set(rates)
