"""Commands: parse, call, write, exit code. One file each, imported only when it is called."""

from __future__ import annotations

import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from importlib import import_module

from gobrrr import __version__
from gobrrr.cli.parsing import Parser
from gobrrr.cli.streams import (
    failed_to_print,
    flush_stdout,
    give_up,
    stand_in_for_closed,
    takes_text,
)
from gobrrr.timeline.errors import DefectError, GobrrrError, InputError, UserCodeError

# Name -> what it does, in the order of the help text. ``gobrrr.cli.<name>`` has DESCRIPTION,
# EXAMPLES, add_arguments(parser) and execute(parser, arguments) -> exit code.
COMMANDS: dict[str, str] = {
    "run": "diagnose a script, module or function: where each step's time goes",
    "fix": "predict, try and compare changes that could make it faster",
    "trace": "diagnose recorded PyTorch profiler traces",
    "fleet": "tables over the traces of many ranks: which rank delays the others",
    "predict": "predict a step, a trace or an op on a device that is not here",
    "plan": "predict which mesh of devices runs a step fastest",
    "report": "show a saved diagnosis again, in any format",
    "compare": "compare two diagnoses: what became faster or slower",
    "check": "check a diagnosis against a baseline or limits: a gate for CI",
    "explain": "what a word of a report means: a term, a part, a cause, a fix",
    "ceilings": "measure this machine's ceilings: peak rates, fixed costs; cached",
    "devices": "list the devices here and the data sheets that gobrrr has",
    "lab": "measure the article's claims on this machine",
    "doctor": "versions, devices, compilers: what works here, and what does not",
}
INTERRUPTED = 130
BROKEN_PIPE = 141

_EXAMPLES = """examples:
  gobrrr run train.py --epochs 3
  gobrrr run bench.py:make_step
  gobrrr trace trace.json.gz
  gobrrr report d.json --by module
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (0 done, 1 gate, 2 input, 3 the user's code).

    Without ``argv`` the command is this process's own. Ctrl-C then ends it as it ends Python: by
    KeyboardInterrupt, of which all has been said.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    stand_in_for_closed()
    try:
        code = _dispatch(arguments)
        flush_stdout()
        return code
    except SystemExit as leaving:
        if _said_by_argparse(leaving):  # after --help or --version
            return leaving.code if isinstance(leaving.code, int) else 0
        traceback.print_exception(leaving)
        _complain(f"your own code ended the process with sys.exit({leaving.code!r})")
        return UserCodeError.exit_code
    except (UserCodeError, DefectError) as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        _complain(str(error))
        return error.exit_code
    except GobrrrError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        if argv is not None:
            return INTERRUPTED
        # Python then dies by SIGINT. A shell shows status 130 either way, but a loop of its goes on
        # after a program that only returns that (https://www.cons.org/cracauer/sigint.html).
        sys.excepthook = lambda *_: None
        raise
    except BrokenPipeError:
        # Whoever read our output has left.
        give_up(1)
        return BROKEN_PIPE
    except OSError as error:
        if not failed_to_print(error):
            raise
        give_up(1)
        _complain(f"cannot write to standard output: {(error.strerror or str(error)).lower()}")
        return InputError.exit_code


def _dispatch(arguments: list[str]) -> int:
    parser = Parser(
        prog="gobrrr",
        description="Where a PyTorch step's time goes: compute, memory or overhead.",
        commands=COMMANDS,
        examples=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"gobrrr {__version__}")
    name, rest = parser.command(arguments)
    command = import_module(f"gobrrr.cli.{name}")
    own = Parser(prog=f"gobrrr {name}", description=command.DESCRIPTION, examples=command.EXAMPLES)
    command.add_arguments(own)
    code: int = command.execute(own, rest)
    return code


def _said_by_argparse(leaving: SystemExit) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(leaving.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") == "argparse"


def _complain(sentence: str) -> None:
    """One line; in a terminal as wide as that is."""
    if takes_text(sys.stderr):
        text = f"gobrrr: {' '.join(sentence.split())}"
        try:
            if sys.stderr.isatty():
                text = textwrap.fill(
                    text, max(40, shutil.get_terminal_size().columns), subsequent_indent="  ",
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
            print(text, file=sys.stderr, flush=True)
        except OSError:
            # Whoever cannot be told may still read the exit code.
            give_up(2)
