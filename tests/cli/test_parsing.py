"""Values of options: what is read, and what is refused."""

from __future__ import annotations

import argparse

import pytest

from gobrrr.cli.parsing import memory_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9), ("64 B", 64), ("80 GiB", 80 << 30), ("1.5TB", 1_500 * 10**9),
        ("512MB", 512 * 10**6),
        ("2KB", 2000), ("1024", 1024),
    ],
)  # fmt: skip
def test_sizes_of_a_memory(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0.0GB", "0.5B", "8G1B", "8iB", "-1GB", "many"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a memory size such as 80GB"):
        memory_size(text)
