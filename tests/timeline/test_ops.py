"""Tensors by shape and strides."""

from __future__ import annotations

import pytest

from gobrrr.timeline.ops import TensorSpec


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous", "elements"),
    [
        ((2, 3, 4), None, True, 24),
        ((2, 3, 4), (12, 4, 1), True, 24),
        ((2, 3, 4), (12, 1, 3), False, 24),
        # Of a dimension of one the stride says nothing.
        ((2, 1, 4), (4, 99, 1), True, 8),
        ((1, 3), (7, 1), True, 3),
        ((3, 1), (1, 1), True, 3),
        ((3, 2), (3, 1), False, 6),
        # Expanded: each element once. Windows that overlap: what they span.
        ((5, 4), (0, 1), False, 4),
        ((3, 4), (2, 1), False, 8),
        ((0, 4), (4, 1), True, 0),
        ((), (), True, 1),
    ],
)
def test_memory_of_a_tensor(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, contiguous: bool, elements: int
) -> None:
    spec = TensorSpec(shape, "float16", strides)
    assert spec.is_contiguous is contiguous
    assert (spec.unique_elements, spec.unique_bytes) == (elements, 2 * elements)
    assert TensorSpec(shape, "mystery", strides).unique_bytes is None
