"""The words of the reports, each with what it means: for the page, ``gobrrr explain`` and the docs.

One word for one thing: what a report says in other words is a spelling of a term here, or wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True, slots=True)
class Term:
    """A word and its meaning in one sentence.

    ``spellings``: how headers, JSON and other tools write it.
    """

    word: str
    meaning: str
    spellings: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = (
    Term("step", "one iteration of the program's loop: forward, or forward, backward and update"),
    Term(
        "kernel",
        "one stretch of work on a device; on a CPU what an op does beside its fixed cost",
    ),
    Term("compute", "time in which the device does arithmetic"),
    Term("memory", "time in which bytes move: in a device, to and from the host, between devices"),
    Term(
        "overhead",
        "time that is neither compute nor memory: Python, the framework's dispatch, launches, "
        "waiting for data",
    ),
    Term(
        "bound by",
        "which of compute, memory and overhead takes most of a step or an op",
        ("regime", "compute-bound", "memory-bound", "overhead-bound"),
    ),
    Term(
        "ceiling",
        "the fastest that this device does one kind of work: FLOP/s by dtype, bytes/s by level of "
        "memory, seconds of fixed cost",
        ("ceilings", "peak", "peak rate"),
    ),
    Term(
        "at the ceiling",
        "the least time that this work can take on this device; its share of the time taken is "
        "of ceiling, and the rest is below the ceiling: another kernel could save it",
        ("below the ceiling", "of ceiling", "at ceiling", "roof"),
    ),
    Term(
        "roofline",
        "the ceilings drawn as the rate that can be reached at each arithmetic intensity",
    ),
    Term(
        "arithmetic intensity",
        "FLOPs for each byte that an op moves",
        ("FLOP/B", "intensity"),
    ),
    Term(
        "ridge point",
        "the arithmetic intensity above which a device is bound by compute instead of memory",
        ("ridge",),
    ),
    Term(
        "speed of light",
        "the time of a step if nothing were left but its unavoidable work at the ceilings",
        ("SOL",),
    ),
    Term(
        "memory traffic",
        "the bytes that kernels read and write in the device's memory and caches",
        ("traffic",),
    ),
    Term(
        "MFU",
        "model FLOPs utilisation: the model's FLOPs over what the peak rate allows in that time; "
        "HFU counts what is computed again too",
        ("HFU", "model FLOPs utilisation"),
    ),
    Term(
        "provisional",
        "of a verdict: by processor time and counts alone, because other programs took so much of "
        "the machine that the time of a step says nothing",
    ),
    Term(
        "too noisy",
        "of a trial: what the program differs from itself by on this machine is as much as what "
        "the change seems to win or lose",
    ),
    Term(
        "exposed",
        "of copies and communication: the part that no kernel hides by running at the same time",
    ),
    Term(
        "modelled",
        "with a work formula and a ceiling; time of other ops is unmodelled, never zero work",
        ("unmodelled",),
    ),
)
_BY_SPELLING = {
    spelling.lower(): term for term in TERMS for spelling in (term.word, *term.spellings)
}
# The longest first: "memory traffic" is not "memory".
_SPELLINGS = re.compile(
    r"(?<![\w-])("
    + "|".join(re.escape(text) for text in sorted(_BY_SPELLING, key=len, reverse=True))
    + r")(?![\w-])",
    re.IGNORECASE,
)


def meaning_of(spelling: str) -> str:
    """What the term means that is spelled so; KeyError: none is."""
    return _BY_SPELLING[spelling.lower()].meaning


class Glosses:
    """Marks terms in the headings and labels of one page, each where it first stands."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> Markup:
        """The text as HTML, with an ``<abbr>`` around each term that is new on the page."""
        parts: list[Markup] = []
        end = 0
        for found in _SPELLINGS.finditer(text):
            term = _BY_SPELLING[found[0].lower()]
            if term.word in self._seen:
                continue
            self._seen.add(term.word)
            parts += [
                escape(text[end : found.start()]),
                Markup('<abbr title="{}">{}</abbr>').format(term.meaning, found[0]),
            ]
            end = found.end()
        return Markup("").join([*parts, escape(text[end:])])
