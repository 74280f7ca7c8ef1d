"""How many lines each room of ``src/gobrrr`` may have, and all together: ``budget.toml``.

``--check`` fails where a room has more, or stands in only one of the two; ``--write`` lowers each
budget to what is there, and raises none. To raise one is an edit of ``budget.toml``, with the
reason in the changelog.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "gobrrr"
LIST = ROOT / "benchmarks" / "budget.toml"
# Files beside the rooms, and the sum.
BESIDE, ALL = "gobrrr", "all"
HEAD = """\
# The most lines of Python that each room of src/gobrrr may have: `make check` holds them to it.
# lines: physical ones. code: without blank lines and docstrings. `gobrrr` are the files beside the
# rooms. They only fall (`python benchmarks/budget.py --write`); raising one takes a line in the
# changelog with the reason.

"""


class Size(NamedTuple):
    """Lines of Python: all, and those that are neither blank nor in a docstring."""

    lines: int = 0
    code: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.lines + other.lines, self.code + other.code)


def size_of(text: str) -> Size:
    """Of one file."""
    lines = text.splitlines()
    described = set(_docstring_lines(ast.parse(text)))
    code = sum(bool(line.strip()) for i, line in enumerate(lines, 1) if i not in described)
    return Size(len(lines), code)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def sizes(package: Path = PACKAGE) -> dict[str, Size]:
    """Of each room, by name, and of all."""
    found: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        room, *rest = path.relative_to(package).parts
        size = size_of(path.read_text(encoding="utf-8"))
        for name in (room if rest else BESIDE, ALL):
            found[name] = found.get(name, Size()).plus(size)
    return found


def budgets(path: Path = LIST) -> dict[str, Size]:
    """What the list says."""
    return {name: Size(**row) for name, row in tomllib.loads(path.read_text()).items()}


def problems(found: Mapping[str, Size], allowed: Mapping[str, Size]) -> Iterator[str]:
    """What is not as it may be, a sentence each."""
    for name in sorted(found.keys() | allowed.keys()):
        if name not in allowed:
            yield f"{name}: has {found[name].lines} lines and no budget"
        elif name not in found:
            yield f"{name}: has a budget, and there is no such room"
        else:
            for kind, there, most in zip(Size._fields, found[name], allowed[name]):
                if there > most:
                    yield f"{name}: {there} of {most} ({kind}), {there - most} too many"


def lowered(found: Mapping[str, Size], allowed: Mapping[str, Size]) -> dict[str, Size]:
    """Each budget no higher than what is there; of a room that is gone, none."""
    return {
        name: Size(*(min(pair) for pair in zip(most, found[name])))
        for name, most in allowed.items()
        if name in found
    }


def as_text(allowed: Mapping[str, Size]) -> str:
    """The list as a file, the sum last."""
    rows = sorted(allowed.items(), key=lambda row: (row[0] == ALL, row[0]))
    return HEAD + "".join(
        f"{name} = {{ lines = {most.lines}, code = {most.code} }}\n" for name, most in rows
    )


def main() -> int:
    """Exit status 1 where a room has more lines than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--check", action="store_true", help="fail where there are more lines")
    group.add_argument("--write", action="store_true", help="lower budgets to what is there")
    options = parser.parse_args()
    found, allowed = sizes(), budgets()
    if options.write:
        LIST.write_text(as_text(lowered(found, allowed)))
        allowed = budgets()
    told = list(problems(found, allowed))
    for sentence in told:
        print(f"line budget: {sentence}", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
