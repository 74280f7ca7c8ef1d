"""Values of options: what is read, and what is refused."""

from __future__ import annotations

import argparse

import pytest

from gobrrr.cli import fix, run, trace
from gobrrr.cli.parsing import Parser, given_options, memory_size
from gobrrr.reports.next_command import CARRIED, CHOICE


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


def test_each_option_that_is_carried_is_one_of_its_command() -> None:
    for name, command in (("run", run), ("fix", fix), ("trace", trace)):
        parser = Parser(prog=name, description="")
        command.add_arguments(parser)
        carried = {*CARRIED[name], *(CHOICE if name == "fix" else ())}
        assert carried <= set(parser._option_string_actions)


def test_what_was_given_is_told_with_its_values() -> None:
    parser = Parser(prog="run", description="")
    run.add_arguments(parser)
    own = ["--threads=1", "--stop", "--step", "Linear", "--quiet"]
    assert given_options(parser, own) == {
        "--threads": "1", "--stop": "", "--step": "Linear", "--quiet": "",
    }  # fmt: skip
