"""What ``gobrrr fix`` is asked for, in the forms that a command line and a caller give it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from gobrrr.timeline.errors import InputError

_TIME = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|min|h)?\Z")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


def seconds_of(time: float | str) -> float:
    """Seconds of ``120s``, ``5m``, ``1.5h`` or a number.

    >>> seconds_of("1.5h"), seconds_of("90"), seconds_of(40)
    (5400.0, 90.0, 40.0)

    Raises InputError for anything else, and for what is not above zero.
    """
    value = math.nan
    if isinstance(time, str):
        match = _TIME.match(time)
        if match is not None:
            value = float(match["number"]) * _SECONDS[match["unit"]]
    elif isinstance(time, (int, float)) and not isinstance(time, bool):
        value = float(time)
    if not 0.0 < value < math.inf:
        raise InputError(f"{time!r} is not a time such as 120s or 5m")
    return value


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names of fixes: a string is one of them, or several with commas between.

    >>> names_of("compile"), names_of("tf32, compile"), names_of(["tf32", "compile"])
    (('compile',), ('tf32', 'compile'), ('tf32', 'compile'))

    Raises InputError for a string without a name.
    """
    if not isinstance(names, str):
        return tuple(names)
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not found:
        raise InputError(f"{names!r} names no fix")
    return found


def refuse_bad_choice(only: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    """Raises InputError for a name that no fix has, and for a choice that leaves none to try."""
    from gobrrr.fixes import FIXES
    from gobrrr.pipeline.search import Options, select

    if not select(FIXES, Options(only=only, exclude=exclude)):
        raise InputError("no fix is left to try: every one that was asked for is excluded")


def fix_titles() -> dict[str, str]:
    """What can be asked for, with a line on each: fixes, and families of one change's settings."""
    from gobrrr.fixes import FIXES

    titles: dict[str, str] = {}
    for fix in FIXES:
        if fix.family:
            members = [other.name for other in FIXES if other.family == fix.family]
            titles.setdefault(fix.family, f"{members[0]} to {members[-1]}, and their curve")
        titles[fix.name] = fix.title
    return titles
