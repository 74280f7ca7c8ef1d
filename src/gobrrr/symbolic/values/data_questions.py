"""What a program asks of values: one element, or a result whose shape depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gobrrr.symbolic.graph_storages import HOST
from gobrrr.symbolic.stand_ins import StandIns, real_call, remember, value_of
from gobrrr.symbolic.values.assumed_values import assumption_of
from gobrrr.symbolic.values.followed_values import assumption_under, values_in_place
from gobrrr.symbolic.values.grouped_products import ends_of
from gobrrr.symbolic.values.unknown_sizes import sized
from gobrrr.timeline.errors import CaptureError, InputError
from gobrrr.timeline.ops import Arg

if TYPE_CHECKING:
    from gobrrr.symbolic.graph_recorder import GraphRecorder

# The value that a program gets where it asks for one that depends on data.
UNKNOWN_FLOAT = 1.0


def value_asked(recorder: GraphRecorder, tensor: Any, source: str, frame: Any) -> Any:
    """The value of one element, for ``.item()`` and ``if tensor:``."""
    import torch

    known = value_of(tensor)
    if known is None:
        known = getattr(tensor, "constant", None)
    if known is not None:
        recorder.decided_by(assumption_of(known))
        return real_call(torch.Tensor.item, (known,), {})
    if tensor.dtype is torch.bool:
        answer = recorder.conditions.answer(frame, source)
        told = str(answer).lower()
        recorder.guessed[f"a condition on data is assumed to be {told} ({source})"] += 1
        return answer
    if tensor.dtype.is_floating_point:
        if not recorder.in_optimizer:
            recorder.guessed[f"a value read from the device is assumed to be 1.0 ({source})"] += 1
            if recorder.conditions.count(frame, source):
                # A loop has had the turns of the size hint: it goes on while there is an error.
                return 0.0
        return UNKNOWN_FLOAT
    if recorder.size_hint is not None:
        return recorder.size_hint
    raise InputError(
        f"the program reads an integer from a tensor whose values are unknown ({source}): give an "
        "example value with --size-hint N (size_hint=N in Python)"
    )


def result_asked(
    recorder: GraphRecorder,
    func: Any,
    args: Any,
    kwargs: Any,
    known: bool,
    error: Exception,
    frame: Any,
    source: str,
) -> Any:
    """The result of an operator whose shape or answer depends on data.

    Raises InputError where a size hint would help, CaptureError where none would.
    """
    if known:
        real_args, real_kwargs = values_in_place(args), values_in_place(kwargs)
        rests_on = assumption_under(real_args, real_kwargs)
        real = real_call(func, real_args, real_kwargs)
        recorder.decided_by(rests_on, rows=True)
        return _as_stand_ins(recorder.stand_ins, real, rests_on)
    if func._schema.name in ("aten::equal", "aten::allclose"):
        same = args[0] is args[1] or recorder.conditions.answer(frame, source)
        told = f"{func._schema.name.partition('::')[2]} of tensors with unknown values"
        recorder.guessed[f"{told} is assumed to be {str(same).lower()} ({source})"] += 1
        return same

    def known_stand_in(real: Any, *, on_host: bool = False) -> Any:
        made = _as_stand_ins(recorder.stand_ins, real)
        if on_host:
            recorder.storages.put(made, HOST)
        return made

    result = sized(func, args, kwargs, recorder.size_hint, value_of, known_stand_in)
    if result is not None:
        return result
    if recorder.size_hint is None:
        raise InputError(
            f"the shape of the result of {func} depends on the data ({source}): give an example "
            "size with --size-hint N (size_hint=N in Python)"
        ) from error
    raise CaptureError(
        f"cannot predict this step: the result of {func} depends on the data in a way that "
        f"no size hint can settle ({source}); keep that part out of the step"
    ) from error


# Where grouped products have the ends of their groups, which say what is read.
OFFSETS = {"aten::_grouped_mm": 2, "aten::_scaled_grouped_mm": 4}


def offsets_asked(recorder: GraphRecorder, offsets: Any, source: str) -> Arg:
    """The ends of the groups of a grouped product, as numbers where they are known or assumed."""
    if offsets is None:
        return None
    value = value_of(offsets)
    if value is None:
        recorder.guessed[
            "the groups of a grouped product are assumed to have equal numbers of rows, as in "
            f"balanced routing ({source})"
        ] += 1
        return recorder.describe(offsets)
    recorder.decided_by(assumption_of(value), rows=True)
    return tuple(ends_of(offsets) or ())


def _as_stand_ins(stand_ins: StandIns, real: Any, rests_on: str | None = None) -> Any:
    import torch

    if isinstance(real, torch.Tensor):
        made = stand_ins.fake_mode.from_tensor(real, static_shapes=True)
        remember(made, real, rests_on)
        return made
    if isinstance(real, (list, tuple)):
        return type(real)(_as_stand_ins(stand_ins, item, rests_on) for item in real)
    return real
