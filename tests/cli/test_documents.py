"""README, docs and examples of --help: their commands can be parsed, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gobrrr.cli import COMMANDS
from gobrrr.cli.parsing import Parser
from gobrrr.cli.run import split_target

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^ *```[a-z]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(text: str) -> Iterator[str]:
    """Lines that start gobrrr, those of several lines joined."""
    waiting = ""
    for line in text.replace("\\\n", " ").splitlines():
        begun = f"{waiting} {line.strip()}" if waiting else line.strip()
        if not re.match(r"(\S.* -m )?gobrrr [a-z]", begun):
            continue
        try:
            shlex.split(begun, comments=True)
        except ValueError:  # a quotation that the next line ends
            waiting = begun
            continue
        waiting = ""
        yield begun


def documented() -> list[tuple[str, str]]:
    found = [
        (page.name, line)
        for page in PAGES
        for block in _FENCE.findall(page.read_text())
        for line in commands(block)
    ]
    for name in COMMANDS:
        examples = import_module(f"gobrrr.cli.{name}").EXAMPLES
        found += [(f"{name} --help", line) for line in commands(examples)]
    return found


def test_there_are_commands_to_check() -> None:
    pages = {page for page, _ in documented()}
    assert {"README.md", "fixing.md", "fleet.md", "meshes.md", "gates.md"} <= pages
    assert {f"{name} --help" for name in COMMANDS} <= pages


@pytest.mark.parametrize(("page", "line"), documented())
def test_every_documented_command_can_be_parsed(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)
    name, *rest = words[words.index("gobrrr") + 1 :]
    assert name in COMMANDS
    command = import_module(f"gobrrr.cli.{name}")
    parser = Parser(prog=f"gobrrr {name}", description="", examples="")
    command.add_arguments(parser)
    if name == "predict":
        command.parse(parser, rest)
        return
    if name in ("run", "fix"):
        rest, target = split_target(parser, rest)
        assert target is not None or "--list" in rest
    parser.parse_args(rest)


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted((ROOT / "benchmarks").glob("*/README.md"))],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_links_lead_to_files(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_readme_links_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in text] == []
