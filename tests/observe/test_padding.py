"""Padding is read from masks, and from tokens that end rows; other matrices say nothing."""

from __future__ import annotations

import pytest

from gobrrr.observe.padding_watch import padding_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
LENGTHS = [4, 9, 16]


def rows(of, pad, *, left=False):
    width = max(LENGTHS)
    made = torch.full((len(LENGTHS), width), pad)
    for row, length in zip(made, LENGTHS, strict=True):
        row[slice(width - length, None) if left else slice(length)] = of[:length]
    return made


PADDED = 3 * 16 - sum(LENGTHS)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_mask_says_how_much_is_padding(left, turned):
    mask = rows(torch.ones(16, dtype=torch.long), 0, left=left).bool()
    mask = ~mask if turned else mask
    found = padding_of((), {"x": torch.randn(3, 16), "key_padding_mask": mask})
    assert found == ("mask", PADDED, 48)


@pytest.mark.parametrize("left", [False, True])
def test_tokens_that_end_in_one_value_say_so_too(left):
    tokens = rows(torch.arange(100, 116), 7, left=left)
    assert padding_of((tokens,), {}) == ("tokens", PADDED, 48)


def test_a_mask_comes_before_tokens_also_in_a_dictionary():
    tokens = rows(torch.arange(100, 116), 0)
    full = torch.ones(3, 16, dtype=torch.long)
    given = {"input_ids": tokens, "attention_mask": full}
    assert padding_of((given,), {}) == ("mask", 0, 48)


def test_masks_of_segments_and_of_the_loss_say_nothing():
    segments = rows(torch.zeros(16, dtype=torch.long), 1)
    mask = rows(torch.ones(16, dtype=torch.long), 0)
    assert padding_of((), {"token_type_ids": segments}) is None
    assert padding_of((), {"completion_mask": segments, "loss_mask": mask}) is None
    full = torch.ones(3, 16, dtype=torch.long)
    given = {"token_type_ids": segments, "mask": mask, "attention_mask": full}
    assert padding_of((), given) == ("mask", 0, 48)


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(16, 16).tril().bool(),
        torch.arange(48).reshape(3, 16),
        torch.randint(0, 2, (30, 16), generator=torch.Generator().manual_seed(0)),
        torch.full((3, 16), -100),
        torch.randn(3, 16),
        torch.zeros(3, 4, dtype=torch.long),
        torch.zeros(2, 3, 16, dtype=torch.long),
        torch.zeros(3, 16, dtype=torch.long),
        torch.ones(16, 3, dtype=torch.bool).T,
    ],
)
def test_other_matrices_say_nothing(other):
    assert padding_of((other, "text", None), {}) is None


def test_data_between_0_and_1_are_no_mask() -> None:
    data = torch.rand(8, 32)
    data[:, 0] = 0.0
    assert padding_of((data,), {}) is None and padding_of((), {"attention_mask": data}) is None
    kept = (torch.arange(32) < torch.arange(4, 36, 4)[:, None]).float()
    assert padding_of((), {"attention_mask": kept}) is not None
