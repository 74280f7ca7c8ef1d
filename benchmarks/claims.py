"""The figures that README and docs state, each read from the result file that it rests on.

``python benchmarks/claims.py --check`` fails when a text and its file differ, when a figure
averages what was fitted with what was not, when the code behind a file has changed and the claim
does not say so, or when a figure stands in a checked section without a claim. ``--write`` remakes
``docs/evidence.md``. ``claims.toml`` is the list.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.command import sources  # noqa: E402
from benchmarks.prediction_kernels.accuracy import markdown  # noqa: E402

LIST = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "docs" / "evidence.md"
# Rooms as they are now.
SOURCES = sources()
# Every figure with a unit in these sections of a text must belong to a claim.
COVERED = {
    "README.md": ("## What would make it faster", "## How far to trust it"),
    "docs/how-it-measures.md": ("## How far off it is",),
    "docs/how-it-predicts.md": ("## How good it is",),
    "docs/fixing.md": ("## How good the predictions are",),
}
# A page that is written from the newest file of a benchmark.
ACCURACY = ROOT / "docs" / "accuracy.md"
_FIGURE = re.compile(r"\b\d+(?:\.\d+)?(?:x\b| %| times\b)")


class ClaimError(Exception):
    """The list itself cannot be read: a path that is not in the file, a key that is missing."""


@dataclass(frozen=True)
class Claim:
    """One sentence with figures.

    Attributes:
        name: of the claim.
        text: the sentence, with ``{name:format}`` where a figure stands.
        values: name of a figure -> its path in the result file, keys and positions joined by dots.
        file: the result file.
        where: the texts that state it, relative to the repository.
        command: what remakes the file.
        fitted: what was fitted on rows that are in the figure; ``"nothing"`` if none was.
        n: path of the number of measurements, or the number itself.
        spread, worst: paths of what else a sceptic asks for; ``""`` where the file has none.
        rooms: source rooms whose change makes the figure stale.
        stale: whether the claim says of itself that they have changed.
    """

    name: str
    text: str
    values: dict[str, str]
    file: str
    where: tuple[str, ...]
    command: str
    fitted: str
    n: str = ""
    spread: str = ""
    worst: str = ""
    rooms: tuple[str, ...] = ()
    stale: bool = False
    result: Any = field(default=None, compare=False)

    def figure(self, path: str) -> Any:
        """What stands at a path of the result file."""
        here = self.result
        # A key may hold dots itself: where it is not there alone, it goes on to the next dot.
        key = ""
        for part in path.split("."):
            key = f"{key}.{part}" if key else part
            try:
                here = here[int(key)] if isinstance(here, list) else here[key]
                key = ""
            except (IndexError, ValueError, TypeError) as error:
                raise ClaimError(f"{self.name}: {self.file} has no {path}") from error
            except KeyError:
                continue
        if key:
            raise ClaimError(f"{self.name}: {self.file} has no {path}")
        return here

    def rendered(self) -> str:
        """The sentence with the figures of the file."""

        def put(match: re.Match[str]) -> str:
            name, _, how = match[1].partition(":")
            if name not in self.values:
                raise ClaimError(f"{self.name}: the text names {name}, which has no path")
            return as_written(self.figure(self.values[name]), how)

        return re.sub(r"\{([^}]*)\}", put, self.text)

    @property
    def commit(self) -> str:
        """The commit that the file was made on, or that brought it."""
        told = self.result.get("commit") if isinstance(self.result, dict) else None
        if told:
            return str(told)[:7]
        return _git("log", "-1", "--format=%h", "--", str(RESULTS / self.file))

    @property
    def date(self) -> str:
        """The day on which the file was made."""
        told = re.search(r"\d{4}-\d\d-\d\d", self.file)
        return told[0] if told else str(self.result.get("date", "unknown"))

    @property
    def device(self) -> str:
        """Where it was measured, as the file says."""
        for key in ("machine", "device", "hardware", "processor"):
            told = self.result.get(key) if isinstance(self.result, dict) else None
            if isinstance(told, dict):
                told = told.get("processor") or told.get("name")
            if told:
                return str(told)
        return "see the file"

    def changed_since(self) -> tuple[str, ...] | None:
        """Which of its rooms have changed since; ``None`` where nothing says."""
        told = self.result.get("sources") if isinstance(self.result, dict) else None
        if told:
            return tuple(room for room in self.rooms if told.get(room) != SOURCES.get(room))
        try:
            return tuple(
                room
                for room in self.rooms
                if int(
                    _git("rev-list", "--count", f"{self.commit}..HEAD", "--", f"src/gobrrr/{room}")
                )
            )
        except (subprocess.CalledProcessError, ValueError):
            return None


def as_written(value: Any, how: str) -> str:
    """A figure as the texts write it: ``.1%`` is "2.0 %", no format leaves it as it is.

    ``1e-9*.2f`` is in units of 1e9 (bytes as GB); ``len`` is the length of a list.
    """
    if value is None:
        return "unknown"
    if how == "len":
        return str(len(value))
    factor, times, rest = how.partition("*")
    if times:
        value, how = value * float(factor), rest
    return format(value, how).replace("%", " %")


def read_claims(path: Path = LIST) -> list[Claim]:
    """The list, each claim with its result file read.

    Raises:
        ClaimError: a file is missing, or a claim has an unknown or lacks a needed key.
    """
    claims = []
    for name, row in tomllib.loads(path.read_text()).items():
        file = RESULTS / row.get("file", "")
        if not file.is_file():
            raise ClaimError(f"{name}: there is no benchmarks/results/{row.get('file')}")
        row = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        try:
            claims.append(Claim(name, **row, result=json.loads(file.read_text())))
        except TypeError as error:
            raise ClaimError(f"{name}: {error}") from error
    return claims


def problems(claims: list[Claim], root: Path = ROOT) -> Iterator[str]:
    """What is not so, a sentence each."""
    said: dict[str, list[str]] = {}
    for claim in claims:
        sentence = claim.rendered()
        for where in claim.where:
            said.setdefault(where, []).append(sentence)
            if plain(sentence) not in plain((root / where).read_text()):
                yield f"{where} does not say what {claim.file} does: {sentence!r} ({claim.name})"
        changed = claim.changed_since()
        if changed and not claim.stale:
            yield (
                f"{claim.name}: {', '.join(changed)} changed since {claim.file} was made: "
                "measure again, or say stale = true"
            )
        if claim.stale and changed == ():
            yield f"{claim.name} says that it is stale, and is not"
        if claim.fitted != "nothing" and not claim.fitted.startswith(("only ", "apart")):
            yield f"{claim.name}: averages what was fitted with what was not ({claim.fitted})"
    for where, headings in COVERED.items():
        for heading in headings if (root / where).is_file() else ():
            yield from _uncovered(where, section(root / where, heading), said.get(where, []))


def _uncovered(where: str, text: str, said: list[str]) -> Iterator[str]:
    # What a command printed is an example, not a claim.
    left = plain(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for sentence in said:
        left = left.replace(plain(sentence), " ")
    for match in _FIGURE.finditer(left):
        around = left[max(0, match.start() - 40) : match.end() + 20]
        yield f"{where}: a figure without a claim: ...{around}..."


def section(path: Path, heading: str) -> str:
    """A text's section, from its heading to the next of the same depth."""
    text = path.read_text()
    begin = text.index(heading + "\n")
    end = text.find("\n## ", begin + 1)
    return text[begin : end if end >= 0 else len(text)]


def plain(text: str) -> str:
    """Text without line breaks, so that it may be wrapped anywhere."""
    return " ".join(text.split())


def evidence(claims: list[Claim]) -> str:
    """The page: every claim with what it rests on."""
    lines = [
        "# Evidence",
        "",
        "Every figure that README and docs state, read from its result file by",
        "`benchmarks/claims.py`; `make check` fails when text and file differ. *Stale*: the code",
        "that the figure is about has changed since it was measured.",
        "",
    ]
    for claim in claims:
        lines += [f"## {claim.name}", "", *_wrapped(claim.rendered()), ""]
        lines += [f"- file: [{claim.file}](../benchmarks/results/{claim.file})"]
        measured = f"{claim.date}, commit {claim.commit}, {claim.device}"
        if isinstance(claim.result, dict) and claim.result.get("dirty"):
            measured += ", with uncommitted changes"
        lines += [f"- measured: {measured}{'; **stale**' if claim.stale else ''}"]
        for what in ("n", "spread", "worst"):
            path = getattr(claim, what)
            if path:
                lines += [f"- {what}: {_told(claim, path)}"]
        lines += [f"- fitted on these rows: {claim.fitted}"]
        lines += [f"- command: `{claim.command}`", ""]
    return "\n".join(lines)


def accuracy_problems() -> list[str]:
    """Whether docs/accuracy.md is what its result file makes."""
    newest = sorted(RESULTS.glob("prediction_kernels_*.json"))[-1]
    if ACCURACY.is_file() and ACCURACY.read_text() == markdown(json.loads(newest.read_text())):
        return []
    maker = "benchmarks/prediction_kernels/accuracy.py"
    return [f"docs/accuracy.md is not what {maker} makes of {newest.name}"]


def _told(claim: Claim, path: str) -> str:
    if path.isdigit():
        return path
    parts = []
    for one in path.split(", "):
        at, _, how = one.partition(":")
        parts.append(as_written(claim.figure(at), how))
    return " to ".join(parts)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(plain(text), 100)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def main() -> int:
    """Check the claims, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail where a text is not as its file")
    what.add_argument("--write", action="store_true", help="remake docs/evidence.md")
    given = parser.parse_args()
    try:
        claims = read_claims()
        page = evidence(claims)
        if given.write:
            EVIDENCE.write_text(page)
            return 0
        found = list(problems(claims))
        found += accuracy_problems()
        if not EVIDENCE.is_file() or EVIDENCE.read_text() != page:
            found.append("docs/evidence.md is not what benchmarks/claims.py --write makes")
    except ClaimError as error:
        print(f"claims.toml: {error}", file=sys.stderr)
        return 2
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
