"""``gobrrr explain``: what a word of a report means, and what helps."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import COLUMNS
from gobrrr.timeline.errors import InputError

if TYPE_CHECKING:
    from gobrrr.reports.explanations import Explanation

DESCRIPTION = """Say what a word of a report means: a term, a part of a step, a known cause or a
fix. Without a word, list all of them, a line at most for each."""
EXAMPLES = """examples:
  gobrrr explain
  gobrrr explain roofline
  gobrrr explain memory.page_faults
  gobrrr explain no_loader_workers
"""
# What one of each kind is called.
_ONE = {"Words": "word", "Parts of a step": "part of a step", "Known causes": "known cause",
        "Fixes": "fix"}  # fmt: skip
_LABEL = 13
# So many that a line each would fill several screens; their names say what they are.
_LISTED_BY_NAME = ("Known causes", "Fixes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr explain``."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="a term or a name, as reports show it"
    )


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Prints one explanation, or the list of all.

    Raises:
        InputError: nothing is called so.
    """
    from gobrrr.reports.explanations import explanations, explanations_of, nearest_names

    word = " ".join(parser.parse_args(arguments).words)
    if not word:
        for kind, of_kind in explanations().items():
            print(kind)
            if kind in _LISTED_BY_NAME:
                print(_filled(", ".join(each.name for each in of_kind), 2))
                continue
            for each in of_kind:
                line = textwrap.shorten(f"{each.name}: {each.title}", COLUMNS - 2, placeholder=" …")
                print(f"  {line}")
        return 0
    found = explanations_of(word)
    if not found:
        near = nearest_names(word)
        hint = f"did you mean {', '.join(near)}?" if near else "gobrrr explain lists all names"
        raise InputError(f"nothing is called {word!r}; {hint}")
    print("\n\n".join(_text(kind, each) for kind, each in found))
    return 0


def _text(kind: str, found: Explanation) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    lines = [f"{found.name} ({_ONE[kind]})", _filled(f"{title}.", 2)]
    lines += [
        _filled(f"{label + ':':<{_LABEL}} {text}", 2, _LABEL + 3) for label, text in found.lines
    ]
    lines += [f"    {line}".rstrip() for line in found.code.splitlines()]
    return "\n".join(lines)


def _filled(text: str, indent: int, hanging: int = 0) -> str:
    return textwrap.fill(
        text, COLUMNS, initial_indent=" " * indent, subsequent_indent=" " * (hanging or indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
