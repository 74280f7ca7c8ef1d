"""What ``gobrrr fix`` is asked for, in the forms that a command line and a caller give it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gobrrr.fixes import catalogue as known
from gobrrr.fixes.fix import THREADS, Fix
from gobrrr.timeline.errors import InputError

ALLOW_PRECISION = "precision"
ALLOWED = (ALLOW_PRECISION,)
_TIME = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|min|h)?\Z")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Attributes:
        only: names of the fixes to try; empty: all.
        exclude: names not to try.
        budget_s: seconds for everything after the first diagnosis. A trial that has begun then is
            ended, if it can be, after ``LEAST_LIMIT_S``.
        allow: kinds of change that the best set may hold and otherwise does not: ``precision``.
        threads_given: the number of threads is the user's: no fix changes it unless ``only`` names
            one.
    """

    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    budget_s: float = 300.0
    allow: tuple[str, ...] = ()
    threads_given: bool = False

    def allows(self, fix: Fix) -> bool:
        """Whether the best set may hold this fix; what is asked for by name is allowed."""
        return not fix.precision or ALLOW_PRECISION in self.allow or fix.name in self.only

    def refusal(self, fix: Fix) -> str:
        """Why what the user gave leaves this fix no place; empty if it does."""
        settled = self.threads_given and THREADS in fix.claims and fix.name not in self.only
        return "the number of threads is given (--threads)" if settled else ""


def select(fixes: Sequence[Fix], options: Options) -> tuple[Fix, ...]:
    """The fixes that the user wants, by their own name or their family's.

    A family comes with what its settings are variants of: that is where their curve begins.
    Raises InputError for a name that does not exist.
    """
    names = {fix.name for fix in fixes} | {fix.family for fix in fixes if fix.family}
    for name in (*options.only, *options.exclude):
        if name not in names:
            raise InputError(f"no fix {name!r}; there are {', '.join(sorted(names))}")
    only = set(options.only)
    for fix in fixes:
        if fix.family and fix.family in options.only:
            only |= {fix.name, fix.variant_of}
    return tuple(
        fix
        for fix in fixes
        if (not only or fix.name in only) and not {fix.name, fix.family} & set(options.exclude)
    )


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
    if not select(known.FIXES, Options(only=only, exclude=exclude)):
        raise InputError("no fix is left to try: every one that was asked for is excluded")


def refuse_bad_allowance(allow: tuple[str, ...]) -> None:
    """Raises InputError for what cannot be allowed."""
    for name in allow:
        if name not in ALLOWED:
            raise InputError(f"{name!r} is not something to allow; there is {', '.join(ALLOWED)}")


def fix_titles() -> dict[str, str]:
    """What can be asked for, with a line on each: fixes, and families of one change's settings."""
    titles: dict[str, str] = {}
    for fix in known.FIXES:
        if fix.family:
            members = [other.name for other in known.FIXES if other.family == fix.family]
            titles.setdefault(fix.family, f"{members[0]} to {members[-1]}, and their curve")
        titles[fix.name] = fix.title
    return titles
