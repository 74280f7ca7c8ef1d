"""Which line of the user's program is running."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from gobrrr.timeline.names import FROM

# The function of gobrrr that calls a workload's or a callable's step.
_STEP_RUNNER = "measure_step"
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_GOBRRR = str(Path(__file__).resolve().parents[1]) + os.sep


@functools.cache
def _library_prefixes() -> tuple[str, ...]:
    # Among the scripts is the one that starts gobrrr.
    homes = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    paths = {sysconfig.get_paths()[key] for key in homes}
    # torch may lie elsewhere: beside a .pth file, in PYTHONPATH, in the system's own packages. What
    # is installed beside it is not the user's either.
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        for home in _both_names(torch.__file__):
            paths.add(str(home))
            if home.parent.name in _INSTALLED:
                paths.add(str(home.parent))
    return tuple(str(Path(path)) + os.sep for path in paths)


def _both_names(file: str) -> set[Path]:
    """A module's folder as imported, which is what frames name, and with links followed."""
    return {Path(file).parent, Path(file).resolve().parent}


@functools.lru_cache(maxsize=4096)
def is_gobrrr_file(path: str) -> bool:
    """Whether the file is part of this tool (never shown to the user)."""
    return path.startswith(_GOBRRR)


def beginning_in_program(error: BaseException) -> BaseException:
    """The error, with a traceback that leaves out what called the program from this tool."""
    shown = error.__traceback__
    while shown is not None and is_gobrrr_file(shown.tb_frame.f_code.co_filename):
        shown = shown.tb_next
    return error.with_traceback(shown)


@functools.lru_cache(maxsize=4096)
def is_user_file(path: str) -> bool:
    """Whether the file is the user's: not Python's, an installed package, generated or ours."""
    if path.startswith("<"):
        return path.startswith(("<ipython", "<stdin"))
    if "torchinductor_" in path:
        return False
    return not is_gobrrr_file(path) and not path.startswith(_library_prefixes())


@functools.lru_cache(maxsize=4096)
def short_path(path: str) -> str:
    """The path as a user would write it: relative to the working directory if below it."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        # Another drive; a working directory that was removed.
        return path
    return path if relative.startswith("..") else relative


def format_line(path: str, line: int, function: str) -> str:
    """``train.py:88 in get_batch``; of a notebook's cell ``In[2]:6 in step``."""
    return _line_text(notebook_cell(path) or path, line, function)


@functools.lru_cache(maxsize=4096)
def _line_text(path: str, line: int, function: str) -> str:
    return f"{short_path(path)}:{line} in {function}"


def notebook_cell(path: str) -> str | None:
    """``In[2]``, as IPython's tracebacks call the file that it made of a cell; ``None`` of another.

    The file's own name is a hash in a folder of the process. Asked anew each time: a cell that
    runs again keeps its file and has another number.
    """
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    compiler = getattr(get_shell() if get_shell is not None else None, "compile", None)
    # IPython.core.compilerop, from IPython 8 on: (label, name), or None for what is no cell.
    name_of = getattr(compiler, "format_code_name", None)
    named = None if name_of is None else name_of(path)
    return None if named is None else str(named[1])


@functools.cache
def _torch_homes() -> tuple[str, ...]:
    """Folders whose frames say how torch works, and nothing of who called it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.__file__:
        return ()
    return tuple(
        f"{home.parent / name}{os.sep}"
        for home in _both_names(torch.__file__)
        for name in (home.name, "functorch", "torchgen")
    )


@functools.cache
def _installed_homes() -> tuple[str, ...]:
    return tuple(path for path in _library_prefixes() if Path(path).name in _INSTALLED)


@functools.lru_cache(maxsize=4096)
def library_path(path: str) -> str | None:
    """A file of an installed package as ``package/file.py``; ``None`` for torch's and any other."""
    if "torchinductor_" in path or is_gobrrr_file(path) or path.startswith(_torch_homes()):
        return None
    home = next((home for home in _installed_homes() if path.startswith(home)), None)
    return None if home is None else path.removeprefix(home)


def blamed_line(frame: FrameType | None) -> str | None:
    """The innermost line outside torch, and the user's own line that led to it.

    ``transformers/models/bert/modeling_bert.py:412 in forward, from train.py:31 in main``; the
    user's alone (``user_line``) where no other package comes between it and torch, the package's
    alone where no line of the user's leads to it.
    """
    deepest = frame
    while deepest is not None and not is_user_file(deepest.f_code.co_filename):
        path = library_path(deepest.f_code.co_filename)
        if path is not None:
            own = user_line(deepest)
            here = f"{path}:{deepest.f_lineno} in {deepest.f_code.co_name}"
            # One text for all operators of a line.
            return sys.intern(here if own is None else f"{here}{FROM}{own}")
        deepest = deepest.f_back
    return user_line(frame)


def user_line(frame: FrameType | None) -> str | None:
    """The innermost line of the user's own code that ``frame`` runs under.

    ``None`` if no frame is the user's: the time is then the framework's own. What called gobrrr to
    run the step (a notebook, gobrrr's own command) does not count.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == _STEP_RUNNER and is_gobrrr_file(code.co_filename):
            return None
        if is_user_file(code.co_filename):
            return format_line(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None
