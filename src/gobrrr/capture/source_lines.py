"""Which line of the user's program is running."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

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
        home = Path(torch.__file__).resolve().parent
        paths.add(str(home))
        if home.parent.name in _INSTALLED:
            paths.add(str(home.parent))
    return tuple(str(Path(path)) + os.sep for path in paths)


@functools.lru_cache(maxsize=4096)
def is_gobrrr_file(path: str) -> bool:
    """Whether the file is part of this tool (never shown to the user)."""
    return path.startswith(_GOBRRR)


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
    except ValueError:
        return path
    return path if relative.startswith("..") else relative


def format_line(path: str, line: int, function: str) -> str:
    """``train.py:88 in get_batch``."""
    return f"{short_path(path)}:{line} in {function}"


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
