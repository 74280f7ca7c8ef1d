"""An argument parser whose errors are one line, and the options that several commands share."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NoReturn

from gobrrr import reports
from gobrrr.cli.streams import flush_stdout
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import prefixed

# A number, a prefix, whether it is a binary one.
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B|B)?")

_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)\Z")

# What argparse says of an option that there is not, which follows.
_UNKNOWN = "unrecognized arguments: "

# Columns of a terminal as it opens. Help is no wider, whatever the width of its text in the code.
COLUMNS = 80


class Parser(argparse.ArgumentParser):
    """No abbreviated options, one-line errors (``InputError``), examples under the help."""

    def __init__(
        self,
        *,
        prog: str,
        description: str,
        examples: str = "",
        commands: Mapping[str, str] | None = None,
    ) -> None:
        listing = "".join(f"  {name:<10} {does}\n" for name, does in (commands or {}).items())
        epilog = f"commands:\n{listing}\n{examples}" if commands else examples
        super().__init__(
            prog=prog,
            description=_filled(description),
            epilog=_filled(epilog),
            usage=f"{prog} [--version] COMMAND ..." if commands else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._commands = commands or {}

    def error(self, message: str) -> NoReturn:
        """Raises ``InputError``; argparse would print the usage and leave."""
        unknown = message.removeprefix(_UNKNOWN).split(maxsplit=1)
        if message.startswith(_UNKNOWN) and unknown:
            flag = unknown[0].partition("=")[0]
            near = difflib.get_close_matches(flag, self._option_string_actions, cutoff=0.75)
            # Of letters in another order difflib knows no better than of another letter.
            near.sort(key=lambda option: sorted(option) != sorted(flag))
            message += f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"{message} (see {self.prog} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leaves after --help or --version, once their text is written."""
        flush_stdout()
        super().exit(status, message)

    def command(self, arguments: Sequence[str]) -> tuple[str, list[str]]:
        """The command's name and its arguments; prints help for none."""
        if not arguments or arguments[0] == "help":
            self.print_help()
            self.exit(0)
        name = arguments[0]
        if name.startswith("-"):
            self.parse_args(arguments[:1])
            self.error(f"{name} needs a command before it")
        if name not in self._commands:
            near = difflib.get_close_matches(name, self._commands, n=1)
            if near:
                self.error(f"no command {name!r}; did you mean {near[0]}?")
            if Path(name).is_file():
                self.error(f"no command {name!r}; did you mean gobrrr run {name}?")
            self.error(f"no command {name!r}; there are {', '.join(self._commands)}")
        return name, list(arguments[1:])


def _filled(text: str) -> str:
    """The text with each paragraph filled; one with indented lines (examples, a list) is kept."""
    paragraphs = text.rstrip("\n").split("\n\n")
    return "\n\n".join(
        each if "\n " in each else textwrap.fill(each, COLUMNS, break_on_hyphens=False)
        for each in paragraphs
    )


def function_target(text: str) -> re.Match[str] | None:
    """``bench.py:make_step`` with its ``path`` and ``name``; ``None`` of anything else."""
    return None if Path(text).exists() else _FUNCTION.match(text)


def without_arguments(target: str) -> None:
    """The process's arguments as ``file.py`` of ``file.py:function`` sees them: there are none."""
    sys.argv = [target.rpartition(":")[0] or target]


def flags_with_value(parser: argparse.ArgumentParser) -> frozenset[str]:
    """The options that are followed by one value."""
    actions = parser._actions
    return frozenset(
        flag for action in actions if action.nargs is None for flag in action.option_strings
    )


def options_among(
    parser: argparse.ArgumentParser, arguments: Sequence[str], text: str
) -> tuple[list[str], list[str]]:
    """The parser's options with their values, and the rest; one that ``text`` names is no other's.

    ``text``: the source of the program that the arguments were given to.
    """
    known = {flag for action in parser._actions for flag in action.option_strings}
    with_value = flags_with_value(parser)
    ours: list[str] = []
    rest: list[str] = []
    tokens = iter(arguments)
    for token in tokens:
        flag, equals, _ = token.partition("=")
        if not flag.startswith("--") or flag not in known or flag in text:
            rest.append(token)
            continue
        ours.append(token)
        if flag in with_value and not equals:
            ours += [value for value in [next(tokens, None)] if value is not None]
    return ours, rest


def given_options(parser: argparse.ArgumentParser, own: Sequence[str]) -> dict[str, str]:
    """The parser's options among its own arguments, with what was given to each; flags: nothing."""
    with_value = flags_with_value(parser)
    found: dict[str, str] = {}
    tokens = iter(own)
    for token in tokens:
        flag, equals, value = token.partition("=")
        if flag.startswith("--"):
            found[flag] = next(tokens, "") if flag in with_value and not equals else value
    return found


def require_torch(command: str) -> None:
    """Raises ``InputError`` where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(f"{command} needs torch: pip install 'gobrrr[torch]'")


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return value


def times(text: str) -> float:
    """A finite number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def add_host_overhead(group: argparse._ArgumentGroup) -> None:
    """``--host-overhead``, of a predicted step."""
    group.add_argument(
        "--host-overhead", type=times, metavar="X",
        help="the program's host time is X times the one assumed (measured programs: 0.9 to 3); "
        "without it, short steps have wide intervals",
    )  # fmt: skip


def natural(text: str) -> int:
    """An integer of at least 0, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def memory_size(text: str) -> int:
    """``80GB``, ``8 GiB`` or a number of bytes, for argparse."""
    found = _SIZE.fullmatch(text.strip())
    size = int(prefixed(float(found[1]), found[2] or "", binary=bool(found[3]))) if found else 0
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a memory size such as 80GB")
    return size


def table_names(text: str) -> tuple[str, ...]:
    """``"module,line"`` -> the tables to show, for argparse; ``all`` is all of them."""
    known = tuple(table.name for table in reports.TABLES)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ("all",):
        return known
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"no table {name!r}; there are {', '.join(known)} and all"
            )
    return names


def output_path(text: str) -> Path:
    """A path that can be written, checked before hours of work and not after, for argparse."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    folder = path.parent
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {folder} does not exist")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: permission denied")
    return path


def output_path_or_stdout(text: str) -> Path | None:
    """The same, and ``None`` of ``-``, which is standard output."""
    return None if text == "-" else output_path(text)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """What to show and where to write it: the options of every command that has a diagnosis."""
    group = parser.add_argument_group("report")
    for form in reports.FORMATS:
        group.add_argument(f"--{form.option}", type=output_path, metavar="PATH", help=form.help)
    tables = ", ".join(table.name for table in reports.TABLES)
    group.add_argument("--top", type=positive, metavar="N", help="rows per table (default 8)")
    group.add_argument(
        "--by",
        type=table_names,
        default=(),
        metavar="TABLE,...",
        help=f"also show tables: {tables} or all",
    )
    group.add_argument(
        "--verbose", action="store_true",
        help="also show all findings, what was ruled out, and how the figures were measured",
    )  # fmt: skip
