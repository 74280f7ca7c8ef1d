"""What a text states: its figures, paragraphs and examples, and the marks of what is stale."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol


class Stated(Protocol):
    """A claim (``claims.Claim``), as far as a text is concerned."""

    @property
    def commit(self) -> str | None: ...
    @property
    def stale(self) -> bool: ...
    @property
    def file(self) -> str: ...
    def rendered(self) -> str: ...


WHOLE = ""
# What ``--write`` puts at the end of a paragraph that states something stale.
_MARK = re.compile(r"\s*\*Measured (?:in part )?on [^*]*; the code has changed since\.\*")
_RESULT = re.compile(r"[\w.-]+_\d{4}-\d\d-\d\d\.json")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_UNITS = r"times|of (?:the )?\d+|[GMk]B|[GMK]iB|ns|µs|us|ms|s|min|minutes|seconds|hours|W|J"
# A number with a unit, "84 of 100", or any decimal; not a part of a name, a date or a path.
_FIGURE = re.compile(
    rf"(?<![\w.:/])(?<!\w-)(?:\d+(?:[.,]\d+)*(?:x\b| ?%| ?(?:{_UNITS})\b)|\d+\.\d+\b(?!\.\d))"
)
_VERSION = re.compile(r"\b(?:Python|PyTorch|torch) \d+\.\d+(?: to \d+\.\d+)?")


def marked(text: str, claims: Sequence[Stated]) -> str:
    """A text whose paragraphs, list items and tables end with a mark if they state what is stale.

    The mark names the commits that it was measured on. Marks that are there already count for
    nothing.
    """
    blocks = _blocks(_MARK.sub("", text))
    return "\n".join(line for block in blocks for line in [*block, *_mark(block, claims)])


def _blocks(text: str) -> list[list[str]]:
    """Lines of each paragraph, list item or table."""
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if not line.strip() or re.match(r"\s*(?:[-*] |\d+\. |#)", line):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _stated(lines: Sequence[str], claims: Sequence[Stated]) -> list[Stated]:
    words = plain(" ".join(lines))
    return [claim for claim in claims if plain(claim.rendered()) in words]


def scattered(text: str, claims: Sequence[Stated]) -> list[str]:
    """Sentences that stand in no single paragraph, list item or table: no mark would be theirs."""
    blocks = _blocks(text)
    return [c.rendered() for c in claims if not any(_stated(block, [c]) for block in blocks)]


def other_files(where: str, text: str, claims: Sequence[Stated]) -> Iterator[str]:
    """Result files named beside figures that are read from others."""
    for block in _blocks(text):
        is_table = any(line.startswith("|") for line in block)
        for lines in [[line] for line in block] if is_table else [block]:
            files = {claim.file for claim in _stated(lines, claims)}
            for name in _RESULT.findall(" ".join(lines)) if files else ():
                if name not in files:
                    yield f"{where} names {name} beside what is read from {', '.join(files)}"


def _mark(block: Sequence[str], claims: Sequence[Stated]) -> list[str]:
    stated = _stated(block, claims)
    stale = [claim for claim in stated if claim.stale]
    if not stale:
        return []
    commits = ", ".join(dict.fromkeys(claim.commit or "an unknown commit" for claim in stale))
    part = "" if len(stale) == len(stated) else "in part "
    mark = f"*Measured {part}on {commits}; the code has changed since.*"
    first = next(line for line in block if line.strip())
    if first.startswith("|"):
        return ["", mark]
    indent = re.match(r"\s*(?:[-*] |\d+\. )?", first)
    assert indent is not None
    return [" " * len(indent[0]) + mark]


def uncovered(where: str, text: str, said: Sequence[str]) -> Iterator[str]:
    """Figures of a text, without its examples, that no claim or condition is about."""
    left = plain(_MARK.sub("", _FENCE.sub("", text)))
    # Longest first: a short one may be a part of a longer one.
    for sentence in sorted(said, key=len, reverse=True):
        left = left.replace(plain(sentence), " ")
    for around in figures_in(left):
        yield f"{where}: a figure without a claim: ...{around}..."


def examples(text: str, said: Sequence[str]) -> Iterator[str]:
    """Of each fenced example with figures that no claim or condition is about: the first."""
    for example in map(plain, _FENCE.findall(text)):
        if not any(plain(sentence) in example for sentence in said):
            yield from figures_in(example)[:1]


def figures_in(text: str) -> list[str]:
    """Figures of a text without line breaks, each with the words around it."""
    text = _VERSION.sub(" ", text)
    return [text[max(0, match.start() - 40) : match.end() + 20] for match in _FIGURE.finditer(text)]


def section(path: Path, heading: str) -> str:
    """A text's section, from its heading to the next of the same depth; ``WHOLE`` is all of it."""
    text = path.read_text()
    if heading == WHOLE:
        return text
    begin = text.index(heading + "\n")
    end = text.find("\n## ", begin + 1)
    return text[begin : end if end >= 0 else len(text)]


def plain(text: str) -> str:
    """Text without line breaks, so that it may be wrapped anywhere."""
    return " ".join(text.split())
