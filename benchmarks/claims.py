"""The figures that README and docs state, each read from the result file that it rests on.

``python benchmarks/claims.py --check`` fails when a text and its file differ, when a file's summary
is not what its rows give (``recompute.py``), when a figure averages what was fitted with what was
not, when one is called free of fitting and an interval is from its file's rows (``intervals.py``),
or when a figure stands in a checked section or an example without a claim. A figure is stale once
the code behind its file has changed, or where nothing tells whether it has: the README may not
state it, and the paragraph of any other text says so at its end. ``--write`` writes these marks,
and remakes ``docs/evidence.md`` and ``docs/gpu-status.md`` (by ``gpu/status.py``). ``claims.toml``
is the list: claims, and as ``[[condition]]`` the figures that are no results. Both need git and the
whole history.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomllib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.command import sources  # noqa: E402
from benchmarks.figures import as_written, figure_at  # noqa: E402
from benchmarks.history import NoHistoryError, git, in_history  # noqa: E402
from benchmarks.prediction_kernels.accuracy import markdown  # noqa: E402
from benchmarks.texts import (  # noqa: E402
    WHOLE,
    examples,
    marked,
    other_files,
    plain,
    scattered,
    section,
    uncovered,
)

from benchmarks import recompute  # noqa: E402

if TYPE_CHECKING:
    from benchmarks.intervals import Constant

LIST = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "docs" / "evidence.md"
# Rooms as they are now.
SOURCES = sources()
# Every figure with a unit in these sections of a text must belong to a claim or be a condition.
COVERED = {
    "README.md": (WHOLE,),
    "docs/measured.md": (WHOLE,),
    "docs/fixing.md": ("## Memory against time", "## How good the predictions are"),
    "docs/fleet.md": ("## Speed and memory",),
    "docs/how-it-measures.md": ("## How far off it is",),
    "docs/how-it-predicts.md": ("## How good it is",),
    "docs/jobs.md": ("## How it is checked",),
    "docs/meshes.md": ("## How times are predicted",),
}
# A page that is written from the newest file of a benchmark.
ACCURACY = ROOT / "docs" / "accuracy.md"
# What may have been fitted on the rows of a figure, as the page writes it.
FITTED = {
    "nothing": "nothing",
    "in view": "no constant, but the model was chosen with them in view",
    "interval": "no constant, but the interval that is told of such",
    "all": "yes, on all of them",
}
LABELS = {"n": "n", "spread": "spread", "p90": "90th percentile", "worst": "worst"}


class ClaimError(Exception):
    """The list itself cannot be read: a path that is not in the file, a key that is missing."""


@dataclass(frozen=True)
class Condition:
    """A figure in a checked section that is no result: a setting, a limit, arithmetic, a quotation.

    Attributes:
        where: the text, relative to the repository.
        text: its words around the figure; in an example, any of its words: it is what was printed.
        why: it is no result.
    """

    where: str
    text: str
    why: str


@dataclass(frozen=True)
class Claim:
    """One sentence with figures.

    Attributes:
        name: of the claim.
        text: the sentence, with ``{name:format}`` where a figure stands.
        values: name of a figure -> its path in the result file (``figure``).
        file: the result file.
        where: the texts that state it, relative to the repository.
        command: what remakes the file.
        fitted: whether anything was fitted on rows that are in the figure, a key of ``FITTED``.
        disclosed: where that is not ``"nothing"``, the words with which each text says so.
        n: paths of the number of measurements, with formats, or the number itself.
        spread: path of a list, told from its least to its largest, or of two numbers.
        p90, worst: paths of what else a sceptic asks for; ``""`` where the file has none.
        rooms: source rooms whose change makes the figure stale.
    """

    name: str
    text: str
    values: dict[str, str]
    file: str
    where: tuple[str, ...]
    command: str
    fitted: str
    disclosed: str = ""
    n: str = ""
    spread: str = ""
    p90: str = ""
    worst: str = ""
    rooms: tuple[str, ...] = ()
    result: Any = field(default=None, compare=False)

    def figure(self, path: str) -> Any:
        """What stands at a path of the result file (``figures.figure_at``)."""
        try:
            return figure_at(self.result, path)
        except (LookupError, TypeError, ValueError) as error:
            raise ClaimError(f"{self.name}: {self.file} has no {path}") from error

    def paths(self) -> Iterator[str]:
        """Paths of all figures, without their formats."""
        yield from self.values.values()
        for key in LABELS:
            told = getattr(self, key)
            if not told.isdigit():
                yield from (one.partition(":")[0] for one in told.split(", ") if one)

    def rendered(self) -> str:
        """The sentence with the figures of the file."""

        def put(match: re.Match[str]) -> str:
            name, _, how = match[1].partition(":")
            if name not in self.values:
                raise ClaimError(f"{self.name}: the text names {name}, which has no path")
            return as_written(self.figure(self.values[name]), how)

        return re.sub(r"\{([^}]*)\}", put, self.text)

    def said(self, key: str) -> Any:
        """What the head of the file says; ``None`` if nothing."""
        return self.result.get(key) if isinstance(self.result, dict) else None

    @property
    def commit(self) -> str | None:
        """The commit that the file was made on; ``None`` where it does not say."""
        told = self.said("commit")
        return str(told)[:7] if told else None

    @property
    def date(self) -> str:
        """The day on which the file was made."""
        told = re.search(r"\d{4}-\d\d-\d\d", self.file)
        return told[0] if told else str(self.said("date") or "unknown")

    @property
    def device(self) -> str:
        """Where it was measured, as the file says, or its name."""
        for key in ("machine", "device", "hardware", "processor"):
            told = self.said(key)
            if isinstance(told, dict):
                told = told.get("processor") or told.get("name")
            if told:
                return str(told)
        named = re.search(r"_([a-z][a-z-]*)_\d{4}-", self.file)
        return f"{named[1]} (by the file's name)" if named else "unknown device"

    def measured(self) -> str:
        """Day, commit and device, as the page writes them."""
        if self.commit is None:
            brought = git("log", "-1", "--format=%H", "--", f"benchmarks/results/{self.file}")[:7]
            commit = f"commit unknown (the file came with {brought or 'no commit yet'})"
        else:
            commit = f"commit {self.commit}"
            commit += "" if in_history(self.commit) else " (commit not in this history)"
        dirty = ", with uncommitted changes" if self.said("dirty") else ""
        return f"{self.date}, {commit}, {self.device}{dirty}"

    @cached_property
    def stale(self) -> bool:
        """Whether its rooms have changed since, or nothing tells."""
        return self.changed_since() != ()

    def changed_since(self) -> tuple[str, ...] | None:
        """Which of its rooms have changed since; ``None`` where nothing says.

        Raises:
            ClaimError: there is no such room.
            NoHistoryError: there is no history to ask.
        """
        for room in self.rooms:
            if room not in SOURCES:
                raise ClaimError(f"{self.name}: there is no room {room}")
        told = self.said("sources")
        if told:
            return tuple(room for room in self.rooms if told.get(room) != SOURCES[room])
        if self.commit is None or not in_history(self.commit):
            return None
        changed = (f"{self.commit}..HEAD", "--")
        return tuple(
            room
            for room in self.rooms
            if int(git("rev-list", "--count", *changed, f"src/gobrrr/{room}"))
        )


def read_claims(path: Path = LIST) -> list[Claim]:
    """The list, each claim with its result file read.

    Raises:
        ClaimError: a file is missing, or a claim has an unknown or lacks a needed key.
    """
    claims = []
    for name, row in tomllib.loads(path.read_text()).items():
        if name == "condition":
            continue
        file = RESULTS / row.get("file", "")
        if not file.is_file():
            raise ClaimError(f"{name}: there is no benchmarks/results/{row.get('file')}")
        row = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        if not row.get("rooms"):
            raise ClaimError(f"{name}: no rooms, so that it would never be stale")
        try:
            result = recompute.with_recomputed(_loaded(file), _made_again(file))
            claims.append(Claim(name, **row, result=result))
        except TypeError as error:
            raise ClaimError(f"{name}: {error}") from error
    return claims


@cache
def _loaded(file: Path) -> Any:
    return json.loads(file.read_text())


@cache
def _made_again(file: Path) -> Any:
    return recompute.recomputed(_loaded(file))


def _sums(claims: Sequence[Claim]) -> Iterator[str]:
    """Files whose summary is not what their rows give, or that lack rows of what is stated."""
    listed = dict(recompute.WITHOUT_ROWS)
    for file in sorted(RESULTS.glob("*.json")):
        if file.name not in recompute.OLDER_ROWS:
            for difference in recompute.differences(_loaded(file), _made_again(file)):
                yield f"benchmarks/results/{file.name}: {difference}"
    for claim in claims:
        again = _made_again(RESULTS / claim.file)
        bare = [path for path in claim.paths() if not recompute.rests_on_rows(path, again)]
        if bare and not listed.pop(claim.file, None) and claim.file not in recompute.WITHOUT_ROWS:
            yield f"{claim.name}: {claim.file} has no rows that give {', '.join(bare)}"
    for name in listed:
        yield f"recompute.py lists {name} as without rows, and nothing is stated without them"


def read_conditions(path: Path = LIST) -> list[Condition]:
    """The figures that are no results; a ``ClaimError`` where one has another key or lacks one."""
    try:
        return [Condition(**row) for row in tomllib.loads(path.read_text()).get("condition", ())]
    except TypeError as error:
        raise ClaimError(f"condition: {error}") from error


def problems(
    claims: Sequence[Claim],
    root: Path = ROOT,
    conditions: Iterable[Condition] = (),
    constants: Sequence[Constant] = (),
) -> Iterator[str]:
    """What is not so, a sentence each; ``constants``: intervals, with the files they are from."""
    said: dict[str, list[str]] = {}
    for claim in claims:
        sentence = claim.rendered()
        for where in claim.where:
            said.setdefault(where, []).append(sentence)
            if scattered((root / where).read_text(), [claim]):
                yield f"{where} does not say what {claim.file} does: {sentence!r} ({claim.name})"
        yield from _age(claim)
        yield from _fitted(claim, root)
        yield from _intervals(claim, constants)
    for condition in conditions:
        said.setdefault(condition.where, []).append(condition.text)
        if plain(condition.text) not in plain((root / condition.where).read_text()):
            yield f"{condition.where} does not say {condition.text!r}, a condition in claims.toml"
    for where, headings in _checked(root).items():
        own = said.get(where, [])
        for heading in headings:
            yield from uncovered(where, section(root / where, heading), own)
        for example in examples((root / where).read_text(), own):
            yield f"{where}: figures of an example that nothing says to be one: ...{example}..."
    for where, own_claims in _by_text(claims).items():
        yield from other_files(where, (root / where).read_text(), own_claims)
    for where, text in marked_texts(claims, root).items():
        if text != (root / where).read_text():
            yield (
                f"{where}: what is stale is not marked as such, or a mark stands where nothing is: "
                "benchmarks/claims.py --write"
            )


def _checked(root: Path) -> dict[str, tuple[str, ...]]:
    """Texts whose examples are checked -> headings of the sections whose figures are."""
    readmes = dict.fromkeys(sorted(root.glob("benchmarks/*/README.md")), (WHOLE,))
    found = dict.fromkeys([root / "README.md", *sorted(root.glob("docs/*.md"))], ()) | readmes
    names = {path.relative_to(root).as_posix(): own for path, own in found.items()}
    return {name: COVERED.get(name, own) for name, own in names.items()}


def _age(claim: Claim) -> Iterator[str]:
    if "README.md" in claim.where and claim.stale:
        yield (
            f"{claim.name}: the README states what was measured on other code than is beside it: "
            "measure again, or move it to docs/measured.md"
        )


def marked_texts(claims: Iterable[Claim], root: Path) -> dict[str, str]:
    """The texts as they should be: each paragraph, list item or table with its mark."""
    return {
        where: marked((root / where).read_text(), own)
        for where, own in _by_text(claims).items()
        if where != "README.md"  # Which may not state them.
    }


def _by_text(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        for where in claim.where:
            found.setdefault(where, []).append(claim)
    return found


def _fitted(claim: Claim, root: Path) -> Iterator[str]:
    if claim.fitted not in FITTED:
        yield f"{claim.name}: averages what was fitted with what was not ({claim.fitted})"
    elif claim.fitted != "nothing":
        for where in claim.where:
            said = claim.disclosed and plain(claim.disclosed) in plain((root / where).read_text())
            if not said:
                yield (
                    f"{where} does not say what was fitted on the rows of {claim.name}: "
                    f"{claim.disclosed or 'the claim has no words for it (disclosed)'}"
                )


def _intervals(claim: Claim, constants: Iterable[Constant]) -> Iterator[str]:
    """Intervals from rows that a claim calls free of fitting.

    Another run of a benchmark has the same rows. A path says whether its figure is of others.
    """
    for constant in constants if claim.fitted == "nothing" else ():
        # The first files do not say their topic.
        topics = {_loaded(RESULTS / n).get("topic", n.split("_")[0]) for n in constant.files}
        mixed = [
            path
            for path in claim.values.values()
            if not any(words in path for words in constant.apart)
        ]
        if claim.said("topic") in topics and mixed:
            yield (
                f"{claim.name}: says that nothing was fitted on its rows, and the interval "
                f"{constant.name} is from {', '.join(constant.files)}: {', '.join(mixed)}"
            )


def evidence(claims: Iterable[Claim], conditions: Sequence[Condition] = ()) -> str:
    """The page: every claim with what it rests on, and the figures that are no results."""
    lines = [
        "# Evidence",
        "",
        "Every figure that README and docs state, read from its result file by",
        "`benchmarks/claims.py`; `make check` fails when text and file differ. *Stale*: the code",
        "that the figure is about has changed since it was measured, or nothing tells whether it",
        "has.",
        "",
    ]
    for claim in claims:
        lines += [f"## {claim.name}", "", *textwrap.wrap(plain(claim.rendered()), 100), ""]
        lines += [f"- file: [{claim.file}](../benchmarks/results/{claim.file})"]
        lines += [f"- measured: {claim.measured()}{'; **stale**' if claim.stale else ''}"]
        for what, label in LABELS.items():
            if path := getattr(claim, what):
                lines += [f"- {label}: {_told(claim, path)}"]
        words = f': "{claim.disclosed}"' if claim.disclosed else ""
        if claim.file in recompute.WITHOUT_ROWS:
            lines += [f"- not made again from rows: {recompute.WITHOUT_ROWS[claim.file]}"]
        lines += [f"- fitted on these rows: {FITTED.get(claim.fitted, claim.fitted)}{words}"]
        lines += [f"- command: `{claim.command}`", ""]
    if conditions:
        lines += ["## Figures that are no results", ""]
        lines += [f'- {each.where}, "{each.text}": {each.why}' for each in conditions] + [""]
    return "\n".join(lines)


def accuracy_problems() -> list[str]:
    """Whether docs/accuracy.md is what its result file makes."""
    newest = sorted(RESULTS.glob("prediction_kernels_*.json"))[-1]
    if ACCURACY.is_file() and ACCURACY.read_text() == markdown(json.loads(newest.read_text())):
        return []
    maker = "benchmarks/prediction_kernels/accuracy.py"
    return [f"docs/accuracy.md is not what {maker} makes of {newest.name}"]


def _told(claim: Claim, paths: str) -> str:
    if paths.isdigit():
        return paths
    parts = []
    for one in paths.split(", "):
        at, _, how = one.partition(":")
        parts.append(as_written(claim.figure(at), how))
    return ", ".join(parts)


def main() -> int:
    """Check the claims, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail where a text is not as its file")
    what.add_argument("--write", action="store_true", help="remake the pages")
    given = parser.parse_args()
    from benchmarks.gpu import status  # Its page is made of claims too.

    from benchmarks import intervals  # It needs numpy.

    try:
        claims, conditions = read_claims(), read_conditions()
        page = evidence(claims, conditions)
        if given.write:
            for where, text in marked_texts(claims, ROOT).items():
                (ROOT / where).write_text(text)
            EVIDENCE.write_text(page)
            status.PAGE.write_text(status.page())
            return 0
        stated = [*claims, *status.facts()]
        found = [*problems(stated, conditions=conditions, constants=intervals.CONSTANTS)]
        found += _sums(claims)
        found += [*accuracy_problems(), *status.problems()]
        if not EVIDENCE.is_file() or EVIDENCE.read_text() != page:
            found.append("docs/evidence.md is not what benchmarks/claims.py --write makes")
    except (ClaimError, NoHistoryError) as error:
        print(f"claims: {error}", file=sys.stderr)
        return 2
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    # Under its own name, as others import it: an error of theirs is then one of these.
    from benchmarks import claims

    sys.exit(claims.main())
