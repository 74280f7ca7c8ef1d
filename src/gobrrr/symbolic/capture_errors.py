"""What goes wrong while a program runs with stand-ins: the program's errors, and the capture's."""

from __future__ import annotations

import contextlib
import logging
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gobrrr.observe.source_lines import format_line, is_gobrrr_file, is_user_file
from gobrrr.timeline.errors import (
    CaptureError,
    DefectError,
    GobrrrError,
    InputError,
    UserCodeError,
)

# What PyTorch says of a tensor without memory whose data are asked for (torch 2.6 to 2.13):
# ``.numpy()``, ``np.asarray``, ``untyped_storage().data_ptr()``, ``torch.utils.dlpack``.
_WANTS_DATA = (
    ".numpy() is not supported for tensor subclasses",
    "Cannot access data pointer of",
    "its data is not allocated yet",
)
# Parts of PyTorch that run because stand-ins do: their frames are about them, not the program.
_MACHINERY = tuple(
    str(Path("torch", part))
    for part in ("_subclasses", "_meta_registrations.py", "_prims_common", "_refs", "_decomp",
                 "_dynamo", "_compile.py", "_ops.py", "utils/_stats.py",
                 "fx/experimental/symbolic_shapes.py")
)  # fmt: skip


# What it says where an operator has no kernel, or no rule, for a tensor without memory.
_OF_STAND_INS = (
    # Of sparse and quantised tensors too: 'SparseCsrMeta', 'QuantizedMeta'.
    "Meta' backend",
    "unsupported device typemeta",
    "from the 'CUDA' backend",
    "Cannot copy out of meta tensor",
    "on a meta tensor",
    "on meta tensors",
    "FakeTensor",
    "fake tensor",
    "Fake tensor",
    "no fake impl registered",
    "no fake impl or Meta kernel registered",
    "data-dependent",
    "tensors of type Meta",
)
# Of errors in PyTorch's rules for shapes these are what the operators raise as well.
_SHAPE_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)
# Functions of gobrrr that call what the program called, with its own arguments.
_PASSES_CALLS_ON = frozenset({"__torch_function__", "__torch_dispatch__", "move", "copied"})
_OPERATOR = "_gobrrr_operator"
# Of parts of PyTorch that make graphs, or tensors, of their own: what the capture says of each.
_NOT_FOLLOWED = (
    (
        str(Path("torch", "jit", "_trace.py")),
        None,
        "torch.jit.trace cannot be captured: it makes tensors of sizes, whose values a capture "
        "does not have; predict the module itself, which runs the same operators",
    ),
    (
        str(Path("torch", "nested")),
        None,
        "a nested tensor cannot be predicted: its lengths are data, which a capture does not have; "
        "give the step a padded batch, or one packed into a plain tensor",
    ),
    (
        str(Path("_functorch", "eager_transforms.py")),
        "linearize",
        "torch.func.linearize cannot be predicted: it evaluates a part of the function while it "
        "traces it, which needs data; torch.func.jvp, which computes the same, can",
    ),
)


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
            # A compiled step runs as it was written here; where it is not, a notice says so.
            warnings.filterwarnings("ignore", message="flex_attention called without torch.comp")
            yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def user_errors(doing: str, assumed: Callable[[], Iterable[str]] = tuple) -> Iterator[None]:
    """What the program raises is the user's; what the capture cannot do is said in a line.

    ``assumed`` gives what the program was told of data that nobody knows.

    Raises:
        WantedDataError: the program reads data, with the line that does.
        CaptureError: PyTorch's machinery of tensors without data does not go as far.
        DefectError: gobrrr's own code raised.
        UserCodeError: the program raised anything else; the cause's traceback is without the
            capture's own frames.
    """
    try:
        yield
    except UserCodeError as error:
        # Whoever called the program here could not know that it is being captured.
        ours = capture_failure(error.__cause__, doing) if error.__cause__ else None
        if ours is None:
            raise
        raise ours from error.__cause__
    except GobrrrError:
        raise
    except Exception as error:
        ours = capture_failure(error, doing)
        if ours is not None:
            raise ours from error
        # The program's tensors are called what they would be called on the device.
        message = str(error).replace("'FakeTensor' object", "'Tensor' object")
        what = f"{doing} raised {type(error).__name__}: {message}"
        told = sorted(assumed())
        if told:
            what += f" (the step was captured without data: {'; '.join(told[:3])})"
        raise UserCodeError(what) from error.with_traceback(_of_program(error.__traceback__))


def capture_failure(error: BaseException, doing: str = "the step") -> GobrrrError | None:
    """An error as one that is not the program's; ``None`` if it is.

    Would the program raise it by itself? What PyTorch's shape rules refuse (a ``RuntimeError`` of
    ``torch._check``), the operator itself refuses too. What they do not know, an attribute or an
    assertion of theirs that fails, a kernel that is missing for tensors without data: all that
    exists in a capture only.
    """
    if isinstance(error, GobrrrError):
        return error
    line = _line_of(error)
    where = f" ({line})" if line else ""
    if wants_data(error):
        return WantedDataError(
            f"{doing} reads the data of a tensor{f' in {line}' if line else ''}, but "
            "a prediction has no data; keep that part out of the step"
        )
    operator = getattr(error, _OPERATOR, None)
    what = f"{operator}{where}" if operator else f"{doing}{where}"
    reason = f"{type(error).__name__}: {_first_line(error)}"
    if _asks_for_rank(error):
        return InputError(
            "the program starts torch.distributed, and there are no ranks here: predict it on "
            "a mesh of them (--mesh dp=8, say); plan takes a plain model, which it divides"
        )
    told = _not_followed(error) if _is_of_stand_ins(error) or _of_machinery(error) else None
    if told is not None:
        return InputError(f"{told}{where}")
    if _is_of_stand_ins(error):
        return CaptureError(
            f"cannot predict {what}: PyTorch cannot trace it without data ({reason}); keep "
            "that part out of the step"
        )
    frame = _innermost(error)
    if frame is None:
        return None
    path, function = frame.f_code.co_filename, frame.f_code.co_name
    if is_gobrrr_file(path) and function not in _PASSES_CALLS_ON:
        defect = DefectError(
            f"gobrrr failed on {what}: {reason}. This is a bug in gobrrr, not in the program; "
            "please report it with the traceback"
        )
        defect.__cause__ = error
        return defect
    if _of_machinery(error):
        return CaptureError(
            f"cannot predict {what}: PyTorch's rules for tensors without data do not "
            f"cover it ({reason}); keep that part out of the step"
        )
    return None


def note_operator(error: BaseException, operator: Any) -> None:
    """Keep with an error the operator during which it was raised, the innermost one."""
    if getattr(error, _OPERATOR, None) is None:
        with contextlib.suppress(AttributeError):
            setattr(error, _OPERATOR, str(operator))


def _is_of_stand_ins(error: BaseException) -> bool:
    """Whether an error exists only because tensors have no data."""
    import torch
    from torch._subclasses import fake_tensor

    if isinstance(error, AttributeError) and isinstance(error.obj, fake_tensor.FakeTensor):
        # No tensor has it, with data or without.
        return bool(hasattr(torch.Tensor, str(error.name)))
    kinds = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
        fake_tensor.UnsupportedOperatorException,
        fake_tensor.MetadataMismatchError,
    )
    if isinstance(error, kinds) or any(text in str(error) for text in _OF_STAND_INS):
        return True
    # Tried on the host instead, an operator of the device alone fails once more.
    before = error.__cause__ or error.__context__
    on_host = isinstance(error, NotImplementedError) and "from the 'CPU' backend" in str(error)
    return on_host and before is not None and _is_of_stand_ins(before)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    # What follows in PyTorch's message on a missing kernel is a list of all backends.
    return lines[0].partition(" This could be because")[0] if lines else "no message"


def _innermost(error: BaseException) -> types.FrameType | None:
    trace, frame = error.__traceback__, None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return frame


def _asks_for_rank(error: BaseException) -> bool:
    """Whether a program starts torch.distributed by a launcher's environment, which is not here.

    A group that it describes itself is made, as anywhere.
    """
    frame = _innermost(error)
    module = None if frame is None else frame.f_globals.get("__name__")
    return module == "torch.distributed.rendezvous" and "environment variable" in str(error)


def is_machinery_file(path: str) -> bool:
    """Whether a file is a part of PyTorch that runs because stand-ins do."""
    return any(part in path for part in _MACHINERY)


def wants_data(error: BaseException) -> bool:
    """Whether a program failed because a stand-in has no data."""
    return any(sentence in str(error) for sentence in _WANTS_DATA)


def data_were_wanted(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that values are read which do not exist."""
    from torch._subclasses import fake_tensor

    kinds = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
    )
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, kinds) or wants_data(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _of_machinery(error: BaseException) -> bool:
    """Whether PyTorch's rules for stand-ins raised what the program's operators would not."""
    frame = _innermost(error)
    if frame is None or isinstance(error, _SHAPE_ERRORS):
        return False
    return is_machinery_file(frame.f_code.co_filename)


def _not_followed(error: BaseException) -> str | None:
    """What is said of the part of PyTorch in which an error arose, if it is one of these."""
    trace = error.__traceback__
    while trace is not None:
        code, trace = trace.tb_frame.f_code, trace.tb_next
        for path, function, sentence in _NOT_FOLLOWED:
            if path in code.co_filename and function in (None, code.co_name):
                return sentence
    return None


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
        in_machinery = not is_user_file(path) and (in_machinery or is_machinery_file(path))
        if not in_machinery and not is_gobrrr_file(path):
            frames.append(trace)
        if trace.tb_next is None and is_gobrrr_file(path):
            return whole
        trace = trace.tb_next
    kept = None
    for frame in reversed(frames):
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
