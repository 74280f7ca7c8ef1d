"""What ``gobrrr explain`` tells: terms, parts of a step, known causes and fixes, by their names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from gobrrr.causes.catalogue import CAUSES
from gobrrr.causes.cause import Cause
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.fix import Fix
from gobrrr.reports.glossary import TERMS, Term
from gobrrr.reports.words import PARTS, Part

_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Explanation:
    """One name, what it is, and more of it as (label, text) pairs.

    ``spellings`` are other names of it, ``searched`` what people search for whose problem it is;
    ``code`` is a change as a user would write it.
    """

    name: str
    title: str
    lines: tuple[tuple[str, str], ...] = ()
    spellings: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    code: str = ""


def explanations() -> dict[str, tuple[Explanation, ...]]:
    """All there are, by kind, in the order of their lists."""
    return {
        "Words": tuple(map(_of_term, TERMS)),
        "Parts of a step": tuple(_of_part(level, p) for level in PARTS for p in PARTS[level]),
        "Known causes": tuple(map(_of_cause, CAUSES)),
        "Fixes": tuple(map(_of_fix, FIXES)),
    }


def explanations_of(word: str) -> list[tuple[str, Explanation]]:
    """Those of that name, each with its kind; else those that people find by it. Empty: none."""
    known = [(kind, one) for kind, of_kind in explanations().items() for one in of_kind]
    asked = _plain(word)
    named = [pair for pair in known if asked in _plain_texts(pair[1].name, *pair[1].spellings)]
    return named or [pair for pair in known if asked in _plain_texts(*pair[1].searched)]


def nearest_names(word: str) -> list[str]:
    """The names and spellings most like a word that is none."""
    known = [one for of_kind in explanations().values() for one in of_kind]
    texts = [text for one in known for text in (one.name, *one.spellings, *one.searched)]
    names = {_plain(text): text for text in reversed(texts)}
    asked = _plain(word)
    near = difflib.get_close_matches(asked, names, n=_NEAREST)
    near += [text for text in names if asked in text][:_NEAREST]
    return list(dict.fromkeys(names[text] for text in near))[:_NEAREST]


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def _plain_texts(*texts: str) -> list[str]:
    return [_plain(text) for text in texts]


def _lines(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in pairs if text)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _of_term(term: Term) -> Explanation:
    lines = _lines(("also", _listed(term.spellings)))
    return Explanation(term.word, term.meaning, lines, term.spellings)


def _of_part(level: str, part: Part) -> Explanation:
    leaves = [leaf for leaf in (part.leaf, part.roof, part.below) if leaf]
    name = part.leaf or part.roof.removesuffix(".roof")
    acting = [fix.name for fix in FIXES if not set(leaves).isdisjoint(fix.leaves)]
    sides = f"{part.roof} at the ceiling, {part.below} below it" if part.roof else ""
    return Explanation(
        name,
        part.meaning,
        _lines(("part of", level), ("in the JSON", sides), ("fixes", _listed(acting))),
        (part.label, name.rpartition(".")[2], *leaves),
    )


def _of_cause(cause: Cause) -> Explanation:
    tried = f"gobrrr fix --only {cause.verified_by}" if cause.verified_by else ""
    lines = _lines(
        ("remedy", cause.remedy), ("tried by", tried), ("words", _listed(cause.words))
    )  # fmt: skip
    return Explanation(cause.name, cause.title, lines, searched=cause.words)


def _of_fix(fix: Fix) -> Explanation:
    tried = f"gobrrr fix --only {fix.family or fix.name}"
    if not fix.can_be_applied:
        tried = "advice: the change is yours to make"
    elif fix.only_if_asked:
        tried += f" (else it is not: it {fix.only_if_asked})"
    lines = _lines(
        ("saves", _listed(fix.leaves)), ("may change", _listed(fix.may_change)), ("tried by", tried)
    )  # fmt: skip
    return Explanation(fix.name, fix.title, lines, (fix.title,), code=fix.snippet)
