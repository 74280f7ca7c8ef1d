"""Events decoded by category: of each only the fields that its category needs.

The category of an event says what it is for, so the parser can pick the class while it reads and
skip the rest: a third less time than one class for all. It has to know every category of a text
beforehand; a text with another one, or with an event without one, is read by ``decode_events``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Literal, Union, cast

import msgspec

from gobrrr.recordings.events import NOTHING, Args, OpArgs, Scalar
from gobrrr.recordings.names import KNOWN_CATEGORIES, Route, route_of


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of runtime calls."""

    correlation: Scalar = -1


class Tagged(msgspec.Struct, gc=False):
    """An event of one category: ``category`` and ``route`` are its class's."""

    category: ClassVar[str] = ""
    route: ClassVar[Route] = Route.DROP


# All phases of the format: one text object for each, instead of one for each event.
_Phase = Literal[
    "", "B", "E", "X", "i", "I", "C", "b", "n", "e", "S", "T", "p", "F", "s", "t", "f", "P",
    "N", "O", "D", "M", "V", "v", "R", "c", "(", ")",
]  # fmt: skip
_SPAN = (("ph", _Phase, ""), ("name", str, ""), ("pid", Scalar, None), ("tid", Scalar, None))
_ARROW = (("ph", _Phase, ""), ("pid", Scalar, None), ("tid", Scalar, None), ("id", Scalar, None))
_ARGUMENTS: dict[Route, type[msgspec.Struct]] = {
    Route.OP: OpArgs, Route.ANNOTATION: OpArgs, Route.RUNTIME: CallArgs,
    Route.KERNEL: Args, Route.COPY: Args, Route.MEMSET: Args,
}  # fmt: skip


def _class_of(category: str, exact: bool, launch_flows: bool) -> type[Tagged]:
    route = route_of(category)
    fields: tuple[tuple[str, Any, Any], ...] = ()
    time: tuple[Any, Any] = (msgspec.Raw, NOTHING) if exact else (Scalar, None)
    if route is Route.BACKWARD_FLOW or (route is Route.LAUNCH_FLOW and launch_flows):
        fields = (*_ARROW, ("ts", *time), ("dur", *time))
    elif route not in (Route.LAUNCH_FLOW, Route.FOREIGN, Route.DROP):
        fields = (*_SPAN, ("ts", *time), ("dur", *time))
        if route in _ARGUMENTS:
            fields = (*fields, ("args", Union[_ARGUMENTS[route], None], None))  # noqa: UP007
    made = msgspec.defstruct(
        f"Tagged_{route.name}", fields, bases=(Tagged,), tag_field="cat", tag=category, gc=False,
        namespace={"category": category, "route": route},
    )  # fmt: skip
    return cast("type[Tagged]", made)


@cache
def tagged_decoder(exact: bool, launch_flows: bool) -> msgspec.json.Decoder[list[Tagged]]:
    """A decoder of a JSON array of events of known categories.

    Without ``launch_flows`` the arrows from calls to device work are empty objects.
    It raises ``msgspec.ValidationError`` for a text with other categories.
    """
    classes = tuple(_class_of(name, exact, launch_flows) for name in KNOWN_CATEGORIES)
    return msgspec.json.Decoder(list[Union[classes]])  # type: ignore[valid-type]  # noqa: UP007
