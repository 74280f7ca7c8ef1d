"""What goes wrong while a program runs with stand-ins: the program's errors, and the capture's."""

from __future__ import annotations

import contextlib
import logging
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

from gobrrr.capture.source_lines import format_line, is_gobrrr_file, is_user_file
from gobrrr.timeline.errors import GobrrrError, InputError, UserCodeError

# What PyTorch says of a tensor without memory whose data are asked for (torch 2.6 to 2.13):
# ``.numpy()``, ``np.asarray``, ``untyped_storage().data_ptr()``, ``torch.utils.dlpack``.
_WANTS_DATA = (
    ".numpy() is not supported for tensor subclasses",
    "Cannot access data pointer of",
)
# Parts of PyTorch that run because stand-ins do: their frames are about them, not the program.
_MACHINERY = tuple(
    str(Path("torch", part))
    for part in ("_subclasses", "_meta_registrations.py", "_prims_common", "_refs", "_decomp",
                 "_dynamo", "_compile.py", "_ops.py", "utils/_stats.py")
)  # fmt: skip


class WantedDataError(InputError):
    """The program reads the data of a tensor that has none."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """PyTorch says nothing of what stand-ins meet: an error of the program is raised anyway."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            # PyTorch's own modules ask for the pointer to compare it, which stand-ins allow.
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
            yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def user_errors(doing: str) -> Iterator[None]:
    """What the program raises is the user's; what it asks of a stand-in in vain is said in a line.

    Raises:
        WantedDataError: the program reads data, with the line that does.
        UserCodeError: it raised anything else; the cause's traceback is without the capture's
            own frames.
    """
    try:
        yield
    except GobrrrError:
        raise
    except Exception as error:
        if wants_data(error):
            line = _line_of(error)
            raise WantedDataError(
                f"{doing} reads the data of a tensor{f' in {line}' if line else ''}: a prediction "
                "computes none; keep that part out of the step"
            ) from error
        what = f"{doing} raised {type(error).__name__}: {error}"
        raise UserCodeError(what) from error.with_traceback(_of_program(error.__traceback__))


def wants_data(error: BaseException) -> bool:
    """Whether a program failed because a stand-in has no data."""
    return any(sentence in str(error) for sentence in _WANTS_DATA)


def _line_of(error: BaseException) -> str | None:
    """The innermost line of the user's own code in an error's traceback."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = format_line(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found


def _of_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without gobrrr's frames, and without what ran because of the stand-ins.

    It stays whole where gobrrr itself raised: that is a defect, and is to be found.
    """
    frames: list[types.TracebackType] = []
    in_machinery = False
    whole = trace
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        # What the machinery calls is its own, until it comes back to the program.
        in_machinery = not is_user_file(path) and (
            in_machinery or any(part in path for part in _MACHINERY)
        )
        if not in_machinery and not is_gobrrr_file(path):
            frames.append(trace)
        if trace.tb_next is None and is_gobrrr_file(path):
            return whole
        trace = trace.tb_next
    kept = None
    for frame in reversed(frames):
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
