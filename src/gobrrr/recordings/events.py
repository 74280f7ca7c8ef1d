"""One profiler event, decoded: the JSON text of some events -> typed objects, and exact times.

Only the fields that a timeline needs are kept; the parser skips the rest. Anything is accepted in
a field (numbers as strings, identifiers as floats): traces in the wild have all of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Scalar: TypeAlias = "int | float | str | None"

NOTHING = msgspec.Raw(b"")

# A microsecond count below this has a double that is closer than half a nanosecond to it.
DOUBLE_HOLDS_NS_BELOW_US = 2.0**43
# Times beyond this do not fit 64 bits as nanoseconds (with room for a sum of two).
LIMIT_NS = 2**62


class OpArgs(msgspec.Struct, gc=False):
    """Arguments of operators and ranges; shapes and stacks stay raw, so that equal ones are parsed
    once.

    Whole numbers default to -1, which says "absent" in the columns that they go to.
    """

    external: Scalar = msgspec.field(default=-1, name="External id")
    external_old: Scalar = msgspec.field(default=-1, name="external id")
    sequence: Scalar = msgspec.field(default=-1, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    stack: msgspec.Raw = msgspec.field(default=NOTHING, name="Call stack")
    collective: Scalar = msgspec.field(default=None, name="Collective name")
    elements_in: Scalar = msgspec.field(default=None, name="In msg nelems")
    elements_out: Scalar = msgspec.field(default=None, name="Out msg nelems")
    group_size: Scalar = msgspec.field(default=None, name="Group size")
    group: Scalar = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Scalar = msgspec.field(default=None, name="Process Group Ranks")
    group_described: Scalar = msgspec.field(default=None, name="Process Group Description")
    # Of a collective within its process group, the same on all ranks (kineto writes it as "Seq").
    call_number: Scalar = msgspec.field(default=-1, name="Seq")
    dtype: Scalar = None


class Args(OpArgs, gc=False):
    """The arguments that matter of any event."""

    correlation: Scalar = -1
    stream: Scalar = None
    device: Scalar = None
    bytes: Scalar = -1


_ARGUMENT_FIELDS = tuple((f.encode_name, f.name) for f in msgspec.structs.fields(Args))


class Event(msgspec.Struct, gc=False):
    """One trace event."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: Scalar = None
    dur: Scalar = None
    id: Scalar = None
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """An event whose times stay text: for clocks that a double cannot hold to the nanosecond."""

    ts: msgspec.Raw = NOTHING  # type: ignore[assignment]
    dur: msgspec.Raw = NOTHING  # type: ignore[assignment]


_DECODER = msgspec.json.Decoder(list[Event])
_EXACT_DECODER = msgspec.json.Decoder(list[ExactEvent])


class MalformedError(ValueError):
    """Text that is no JSON. ``position`` is a byte in the text; ``truncated``: it ends too soon."""

    def __init__(self, reason: str, position: int, truncated: bool) -> None:
        super().__init__(reason)
        self.reason, self.position, self.truncated = reason, position, truncated


def decode_events(text: bytes, exact: bool = False) -> list[Any]:
    """Events of ``text``, a JSON array.

    ``exact`` keeps times as text. Text that is not UTF-8, holds control characters in strings or
    says ``NaN`` is still read; what is no JSON at all raises ``MalformedError``.
    """
    try:
        return (_EXACT_DECODER if exact else _DECODER).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [as_event(item, exact) for item in decode_leniently(text) if isinstance(item, dict)]


def decode_leniently(text: bytes) -> Any:
    """Any JSON value, with the liberties that real traces take.

    Raises ``MalformedError``.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    characters = text.decode("utf-8", "replace")
    try:
        return json.loads(characters, strict=False)
    except json.JSONDecodeError as error:
        position = len(characters[: error.pos].encode())
        rest = characters[error.pos :].strip()
        # At the very end of the text, or in a string or number that never closes.
        truncated = not rest or error.msg.startswith("Unterminated")
        raise MalformedError(error.msg, position, truncated) from None
    except (RecursionError, ValueError) as error:
        # ValueError: an integer of thousands of digits, refused by Python.
        raise MalformedError(type(error).__name__, 0, False) from None


def _scalar(value: Any) -> Scalar:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    # Infinity is no JSON, and nothing that a copy of the trace could hold.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value)) if isinstance(value, (list, str)) else NOTHING


_RAW_FIELDS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Call stack")


def as_event(item: dict[str, Any], exact: bool = False) -> Event:
    """An event from a generic JSON object; a field of the wrong type counts as absent."""
    given = item.get("args")
    args: Args | None = None
    if isinstance(given, dict):
        args = Args()
        for key, name in _ARGUMENT_FIELDS:
            if key in given:
                value = given[key]
                setattr(args, name, _raw(value) if key in _RAW_FIELDS else _scalar(value))
    event = ExactEvent() if exact else Event()
    event.ph, event.cat, event.name = (_text(item.get(key)) for key in ("ph", "cat", "name"))
    event.pid, event.tid, event.id = (_scalar(item.get(key)) for key in ("pid", "tid", "id"))
    ts, dur = _scalar(item.get("ts")), _scalar(item.get("dur"))
    event.ts, event.dur = (_number_text(ts), _number_text(dur)) if exact else (ts, dur)
    event.args = args
    return event


def _number_text(value: Scalar) -> Any:
    return NOTHING if value is None else msgspec.Raw(str(value).encode())


def exact_ns(value: Scalar) -> int | None:
    """Nanoseconds of one count of microseconds, rounded half to even; ``None``: not a time."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        ns = value * 1000
    else:
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value.strip('" '))
            # Before the product: a huge exponent would make a huge integer.
            if not number.is_finite() or number.adjusted() > 18:
                return None
            ns = round(number * 1000)
        except InvalidOperation:
            return None
    return ns if abs(ns) < LIMIT_NS else None


class InexactTimesError(ValueError):
    """Fractions of a microsecond on a clock too large for a double: decode again, exactly."""


def nanoseconds(values: Sequence[Scalar], missing_ns: int | None = None) -> tuple[Int64, Bool]:
    """Exact nanoseconds of a column of microseconds, and which rows are times at all.

    ``missing_ns`` stands in for absent values; without it they are not times.

    Raises:
        InexactTimesError: rounding to a double has already lost nanoseconds.
    """
    try:
        column = np.array(values)
    except (OverflowError, ValueError):
        column = np.array(values, dtype=object)
    if len(column) == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    if column.dtype == np.int64:
        good = (column < LIMIT_NS // 1000) & (column > -LIMIT_NS // 1000)
        return np.where(good, column, 0) * 1000, good
    if column.dtype == np.float64:
        good = np.isfinite(column)
        clean = np.where(good, column, 0.0)
        if np.abs(clean).max() < DOUBLE_HOLDS_NS_BELOW_US:
            # Whole and fraction apart: their product by 1000 at once would round once more.
            whole = np.floor(clean)
            fraction = np.rint((clean - whole) * 1000)
            return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), good
    result = np.zeros(len(values), np.int64)
    good = np.ones(len(values), bool)
    for row, value in enumerate(values):
        if isinstance(value, float) and DOUBLE_HOLDS_NS_BELOW_US <= abs(value) < math.inf:
            raise InexactTimesError
        ns = missing_ns if value is None or value == "null" else exact_ns(value)
        good[row] = ns is not None
        result[row] = 0 if ns is None else ns
    return result, good


def time_texts(values: Sequence[msgspec.Raw]) -> list[Scalar]:
    """Times of ``ExactEvent`` as text; an absent one is ``None``."""
    return [bytes(value).decode("utf-8", "replace") or None for value in values]
