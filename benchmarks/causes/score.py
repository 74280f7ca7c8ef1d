"""A diagnosis held against the key of its program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from benchmarks.causes.keys import Key

# Share of the step above which a cause that is told counts as promised.
PROMISE = 0.03
SENTENCES = 3


def first_sentences(text: str, count: int = SENTENCES) -> str:
    """The beginning of a verdict; a dot inside a name or a number ends no sentence."""
    return " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z`\"(])", text.strip())[:count])


def has_any(words: Iterable[str], text: str) -> bool:
    """Whether one of them stands in the text, whatever the case."""
    lowered = text.lower()
    return any(word.lower() in lowered for word in words)


def share(finding: dict[str, Any], step_s: float) -> float | None:
    """Of the step that a finding promises to save; ``None`` if it promises nothing."""
    saving = finding.get("saving_s")
    if saving is None and finding.get("prediction"):
        saving = finding["prediction"]["expected_s"]
    return None if saving is None or step_s <= 0 else saving / step_s


def lines_of(finding: dict[str, Any], script: str) -> list[int]:
    """Lines of the script that a finding names."""
    pattern = re.compile(rf"(?:^|[/\\\s]){re.escape(script)}:(\d+)")
    return [
        int(line) for source in finding.get("sources") or [] for line in pattern.findall(source)
    ]


def score_program(key: Key, diagnosis: dict[str, Any], report: str) -> dict[str, Any]:
    """What the answer to the slow program says.

    ``named``: the cause is among the findings, and one of its words stands in the first three
    sentences. ``line``: one of its lines is named there; ``None`` where the key has none.
    """
    step_s = diagnosis["step"]["time_s"]["median"]
    found = [row for row in diagnosis["findings"] if row["fix"] in key.names]
    begin = first_sentences(diagnosis["verdict"])
    lines = sorted({line for row in found for line in lines_of(row, "program.py")})
    ranked = [row["fix"] for row in diagnosis["findings"] if (share(row, step_s) or 0) > PROMISE]
    return {
        "found": [row["fix"] for row in found],
        "words_first": has_any(key.words, begin),
        "words_anywhere": has_any(key.words, report),
        "named": bool(found) and has_any(key.words, begin),
        "lines": lines,
        "line": bool(set(lines) & set(key.lines)) if key.lines else None,
        "remedy": has_any(key.remedy, report),
        "wrong": [what for what in key.wrong if what in ranked or has_any((what,), begin)],
        "promised": max((share(row, step_s) or 0.0 for row in found), default=None),
        "ranked": ranked[:5],
        "begin": begin,
    }


def score_sound(key: Key, causes: frozenset[str], diagnosis: dict[str, Any]) -> dict[str, Any]:
    """What the answer to the sound twin says.

    ``false``: it names the twin's cause, or promises more than 3 % for any cause at all.
    """
    step_s = diagnosis["step"]["time_s"]["median"]
    told = {
        row["fix"]: share(row, step_s)
        for row in diagnosis["findings"]
        if row["fix"] in key.names or row["fix"] in causes
    }
    false = {
        name: saves for name, saves in told.items() if name in key.names or (saves or 0) > PROMISE
    }
    return {"told": told, "false": sorted(false), "begin": first_sentences(diagnosis["verdict"])}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many programs were named, at the right line, and how many sound ones got a promise."""
    told = [row["told"] for row in rows if "told" in row]
    lines = [row["line"] for row in told if row["line"] is not None]
    sound = [row["sound"] for row in rows if "sound" in row]
    fixes = [row["fix"] for row in rows if "fix" in row]
    return {
        "programs": len(rows),
        "errors": [row["program"] for row in rows if "error" in row],
        "named": [sum(row["named"] for row in told), len(told)],
        "line": [sum(lines), len(lines)],
        "remedy": [sum(row["remedy"] for row in told), len(told)],
        "wrong": [row["program"] for row in rows if row.get("told", {}).get("wrong")],
        "false": [sum(bool(row["false"]) for row in sound), len(sound)],
        "fix": [sum(row["verdict"] == "faster" for row in fixes), len(fixes)],
        "missed": [row["program"] for row in rows if not row.get("told", {}).get("named")],
        "wrong_line": [row["program"] for row in rows if row.get("told", {}).get("line") is False],
        "false_promises": [row["program"] for row in rows if row.get("sound", {}).get("false")],
        "flaw_below_10_percent": [
            row["program"]
            for row in rows
            if "alone" in row and max(row["alone"]["wall_ratio"], row["alone"]["cpu_ratio"]) < 1.1
        ],
    }
