"""Run a user's script or module as Python would: real ``__main__``, arguments, exit code."""

from __future__ import annotations

import ast
import atexit
import builtins
import contextlib
import importlib.machinery
import importlib.util
import inspect
import io
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gobrrr.observe.source_lines import beginning_in_program
from gobrrr.timeline.errors import InputError

USER_CODE_RAISED = 3
# How a script ended that came to its end.
FINISHED = "its script has finished"
_MOST_SAID = 160


class StopScript(SystemExit):
    """Raised inside the script to end it where the user asked for that (``--stop``)."""


@dataclass(frozen=True, slots=True)
class ScriptExit:
    """How a script ended: its exit code, and the exception that ended it (code 3).

    ``signal``: the name of the one that ends it, ``""`` without one.
    """

    code: int
    raised: bool = False
    interrupted: bool = False
    error: BaseException | None = None
    signal: str = ""

    @property
    def how(self) -> str:
        """The same as a clause."""
        if self.interrupted:
            return "its script was interrupted"
        if self.signal:
            return f"its script was ended by {self.signal}"
        if self.error is not None:
            return f"its script ended with {_first_line(self.error)}"
        return f"its script ended with exit code {self.code}" if self.code else FINISHED


@dataclass(frozen=True, slots=True)
class Script:
    """A script or module, compiled and ready: bad input has been refused by now.

    ``search_path``: the folder that it is the first to import from, if Python gives it one.
    ``namespace``: a notebook's own, in which its cell runs; what it raises is its shell's to show.
    """

    code: types.CodeType
    file: str
    name: str
    search_path: str | None = None
    spec: importlib.machinery.ModuleSpec | None = None
    namespace: dict[str, Any] | None = None


def script_of(target: str | Script, *, is_module: bool) -> tuple[Script, str]:
    """A program, loaded unless it is so already, and what reports call it. Raises InputError."""
    if isinstance(target, Script):
        return target, target.name
    return load_module(target) if is_module else load_script(target), Path(target).name


def load_script(path: str) -> Script:
    """Read and compile a script. Raises InputError in one sentence if that is impossible."""
    file = Path(path)
    search_path: str | None = None
    if file.is_dir():
        main = file / "__main__.py"
        if not main.is_file():
            raise InputError(f"{path} is a directory without a __main__.py")
        file, search_path = main, str(Path(path).resolve())
    elif not file.exists():
        raise InputError(f"{path}: no such file")
    elif not _safe_path():
        search_path = str(file.resolve().parent)
    try:
        with io.open_code(str(file)) as source:
            # Whole, as Python names the file it runs: the script may leave its working directory.
            code = compile(source.read(), str(file.absolute()), "exec", dont_inherit=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise InputError(f"{where} is not valid Python: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"{path} is not a Python script: {error}") from None
    return Script(code, str(file), file.name, search_path)


def load_module(name: str) -> Script:
    """Find and compile a module as ``python -m`` does. Raises InputError."""
    here = "" if _safe_path() else str(Path.cwd())
    if here and here not in sys.path:
        sys.path.insert(0, here)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"-m {name}: {error}") from None
    if spec is None or spec.loader is None:
        raise InputError(f"-m {name}: no such module (looked in {here and f'{here} and '}sys.path)")
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(name) if get_code is not None else None
    if code is None:
        raise InputError(f"-m {name}: the module has no Python source to run")
    return Script(code, str(spec.origin or name), name, spec=spec)


def module_of(path: Path) -> tuple[Path, str]:
    """The folder from which a file is a module of a package, and the module's name there.

    Its packages are the folders with an ``__init__.py``, and as many as its relative imports need.
    """
    file = path.resolve()
    levels = 1
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        nodes = ast.walk(ast.parse(file.read_bytes()))
        levels = max(node.level for node in nodes if isinstance(node, ast.ImportFrom))
    names = [] if file.stem == "__main__" else [file.stem]
    folder = file.parent
    while folder != folder.parent and (levels > 0 or (folder / "__init__.py").is_file()):
        names.insert(0, folder.name)
        folder, levels = folder.parent, levels - 1
    return folder, ".".join(names)


def run_script(script: Script, argv: list[str]) -> ScriptExit:
    """Run to the end in this process. What it raises is printed whole, without gobrrr's frames.

    The ``__main__`` module stays in place afterwards: atexit handlers and pickles need it.
    """
    if script.namespace is not None:
        return _run_to_its_end(script.code, script.namespace, tell=lambda error: None)
    module = main_module(script, argv)
    process = os.getpid()
    # Below the program are gobrrr's own calls, the next one too: it may go as deep as without them.
    sys.setrecursionlimit(sys.getrecursionlimit() + len(inspect.stack(0)) + 1)
    ended = _run_to_its_end(script.code, module.__dict__, tell=_tell)
    if os.getpid() != process:
        # One that the script forked, at the script's end: what follows is its parent's to do.
        _end_process(1 if ended.raised else ended.code)
    return ended


def main_module(script: Script, argv: list[str]) -> types.ModuleType:
    """The script's ``__main__``, in its place, with its arguments and the path it imports from."""
    module = types.ModuleType("__main__")
    module.__file__ = str(Path(script.file).absolute())
    module.__spec__ = script.spec
    module.__dict__["__cached__"] = None
    # As Python gives them to a program: the module, where others have its dictionary.
    module.__dict__["__builtins__"] = builtins
    if "__annotations__" in vars(sys.modules["__main__"]):
        module.__dict__.update(__annotations__={})
    if script.spec is not None:
        module.__package__ = script.spec.parent
        module.__loader__ = script.spec.loader
    else:
        module.__package__ = None
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", script.file)
    sys.modules["__main__"] = module
    sys.argv = [script.file, *argv]
    if script.spec is None:
        # As Python does for a script: its folder comes first, in place of ours.
        ours = 0 if _safe_path() else 1
        sys.path[:ours] = [] if script.search_path is None else [script.search_path]
    return module


def _safe_path() -> bool:
    """Whether Python puts no folder before the others (``-P``, ``PYTHONSAFEPATH``, ``-I``)."""
    return bool(getattr(sys.flags, "safe_path", sys.flags.isolated))


def _end_process(code: int) -> NoReturn:
    """As Python ends it after its program, whatever called this."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def _run_to_its_end(
    code: types.CodeType, namespace: dict[str, Any], tell: Callable[[BaseException], None]
) -> ScriptExit:
    try:
        exec(code, namespace)
    except StopScript:
        return ScriptExit(0)
    except SystemExit as leaving:
        return ScriptExit(_exit_code(leaving.code))
    except KeyboardInterrupt as interrupt:
        tell(interrupt)
        return ScriptExit(130, interrupted=True)
    except BaseException as error:
        tell(error)
        return ScriptExit(USER_CODE_RAISED, raised=True, error=error)
    return ScriptExit(0)


def _first_line(error: BaseException) -> str:
    """The exception's class, and what it says first."""
    try:
        said = str(error).strip().partition("\n")[0].rstrip(".")
    except Exception:
        # The text is the user's code too.
        said = ""
    if len(said) > _MOST_SAID:
        said = f"{said[:_MOST_SAID].rstrip()}..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    if not _told_by_its_hook(error) and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)


def _told_by_its_hook(error: BaseException) -> bool:
    """Whether the program tells its errors itself: a logger's or a crash reporter's hook.

    What is shown of the error begins in the program.
    """
    shown = beginning_in_program(error).__traceback__
    hook = sys.excepthook
    if hook is sys.__excepthook__:
        return False
    try:
        hook(type(error), error, shown)
    except SystemExit:
        pass
    except BaseException as failed:
        # As Python does.
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exception(failed)
        print("\nOriginal exception was:", file=sys.stderr)
        return False
    return True
