"""A workload on twice the data, and inputs that cannot be had twice."""

from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import gobrrr  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402


def test_inputs_are_repeated_along_their_first_dimension() -> None:
    model = torch.nn.Linear(8, 8)
    doubled = gobrrr.Workload(model, (torch.randn(4, 8),)).with_batch_repeated(2)
    assert doubled.inputs[0].shape == (8, 8)


class Pair(NamedTuple):
    """What a data loader's collate function may return."""

    images: Any
    scale: Any


def test_named_tuples_stay_what_they_are_and_single_numbers_are_not_repeated() -> None:
    pair = Pair(torch.randn(4, 8), torch.tensor(2.0))
    work = gobrrr.Workload(lambda given: given.images * given.scale, (pair,))
    (doubled,) = work.with_batch_repeated(2).inputs
    assert isinstance(doubled, Pair)
    assert (doubled.images.shape, doubled.scale.shape) == ((8, 8), ())


def test_keyword_arguments_in_a_mapping_of_any_class_are_repeated() -> None:
    # A tokenizer returns a ``UserDict``.
    inputs = UserDict({"input": torch.randn(4, 8)})
    doubled = gobrrr.Workload(torch.nn.Linear(8, 8), inputs).with_batch_repeated(2)
    assert doubled.forward().shape == (8, 8)


def test_a_jagged_tensor_cannot_be_repeated_and_the_diagnosis_says_so() -> None:
    x = torch.nested.nested_tensor([torch.randn(5, 64), torch.randn(9, 64)], layout=torch.jagged)
    work = gobrrr.Workload(torch.nn.Linear(64, 64), (x,))
    with pytest.raises(InputError, match="a NestedTensor cannot be repeated"):
        work.with_batch_repeated(2)
    found = gobrrr.diagnose(work, steps=3, warmup=2)
    assert any("a NestedTensor cannot be repeated" in notice for notice in found.notices)
