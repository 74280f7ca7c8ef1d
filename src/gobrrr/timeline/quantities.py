"""Numbers as people read them, in every report and sentence.

One unit per table, SI prefixes of 1000, a space before the unit and the per cent sign, a dash for
what is unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

UNKNOWN = "-"

_PREFIXES: tuple[tuple[float, str], ...] = (
    (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""),
)  # fmt: skip
_TIME_UNITS: tuple[tuple[float, str], ...] = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class TimeScale:
    """One unit and one number of decimals for all times of a report, so that columns compare.

    ``unit_s`` is the unit in seconds.
    """

    unit: str
    unit_s: float
    decimals: int

    @classmethod
    def of(cls, largest_s: float) -> TimeScale:
        """The scale on which ``largest_s`` seconds has three to five digits.

        41.23 ms -> 41.2 ms; 4.123 ms -> 4.12 ms; 4.123 s -> 4.123 s (parts of it are ms).
        """
        for unit_s, unit in _TIME_UNITS:
            # 0.99995 of a unit would print as 1000.0 of the next.
            if largest_s >= 0.99995 * unit_s:
                value = largest_s / unit_s
                decimals = 2 if value < 9.995 else 1
                return cls(unit, unit_s, decimals + 1 if unit == "s" else decimals)
        return cls("ns", 1e-9, 1) if largest_s > 0 else cls("ms", 1e-3, 1)

    def number(self, seconds: float | None) -> str:
        """``"41.2"``; ``"<0.1"`` for what is not zero but would print as zero."""
        if seconds is None or not math.isfinite(seconds):
            return UNKNOWN
        value = seconds / self.unit_s
        least = 10.0**-self.decimals
        if 0 < value < least / 2:
            return f"<{least:.{self.decimals}f}"
        return f"{value:.{self.decimals}f}"

    def text(self, seconds: float | None) -> str:
        """``"41.2 ms"``."""
        number = self.number(seconds)
        return number if number == UNKNOWN else f"{number} {self.unit}"


def time_text(seconds: float | None) -> str:
    """A time alone: three significant digits in its own unit, ``"41.2 ms"``, ``"-4.00 µs"``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if not seconds:
        return "0 s"
    fitting = (entry for entry in _TIME_UNITS if abs(seconds) >= 0.9995 * entry[0])
    unit_s, unit = next(fitting, _TIME_UNITS[-1])
    return f"{significant(seconds / unit_s)} {unit}"


def whole_seconds(seconds: float) -> str:
    """A limit, or a time of which seconds are told apart and no less: ``"30 s"``."""
    return f"{seconds:,.0f} s"


def si(value: float | None, unit: str = "") -> str:
    """Three significant digits with an SI prefix: ``si(206e9, "FLOP/s") == "206 GFLOP/s"``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return f"0 {unit}".rstrip()
    fitting = (entry for entry in _PREFIXES if abs(value) >= 0.9995 * entry[0])
    factor, prefix = next(fitting, _PREFIXES[-1])
    return f"{significant(value / factor)} {prefix}{unit}".rstrip()


def binary_size(size_bytes: float | None) -> str:
    """The size of a cache or a buffer, which is a power of two: ``"32 KiB"``, ``"1.25 MiB"``."""
    if size_bytes is None or not math.isfinite(size_bytes):
        return UNKNOWN
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.0f} B"


def prefixed(number: float, prefix: str, *, binary: bool = False) -> float:
    """A number with a prefix, as people write it: ``(1.5, "G")`` is 1.5e9; ``binary``: Gi."""
    return number * (1024.0 if binary else 1000.0) ** (" KMGT".index(prefix) if prefix else 0)


def quantity(value: float | None, unit: str) -> str:
    """A value in ``unit`` as people read it: seconds by ``time_text``, the rest by ``si``."""
    return time_text(value) if unit == "s" else si(value, unit)


def significant(value: float | None) -> str:
    """Three significant digits, no exponent: ``0.318``, ``3.18``, ``31.8``, ``318``, ``3184``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, max(digits, 0))
    digits = 2 - math.floor(math.log10(abs(rounded or value)))
    return f"{rounded:.{min(max(digits, 0), 6)}f}"


def percent(fraction: float | None, decimals: int = 0) -> str:
    """``"46 %"``; ``"<1 %"`` for what is not zero but would print as zero."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    least = 10.0**-decimals
    if 0 < 100 * fraction < least / 2:
        return f"<{least:.{decimals}f} %"
    return f"{100 * fraction:.{decimals}f} %"


_TIMES_FROM = 10.0


def percent_change(before: float, after: float, decimals: int = 0) -> str:
    """``"+12 %"``, ``"-23 %"``, ``"+<1 %"`` from ``before``, which is not 0; ``""`` for none.

    From ten times as much on it is ``"145x"``: nobody reads a percentage of five digits.
    """
    if after / before >= _TIMES_FROM:
        return f"{after / before:,.0f}x"
    change = after / before - 1.0
    sign = "-" if change < 0 else "+"
    return f"{sign}{percent(abs(change), decimals)}" if change else ""


def share(part: float | None, whole: float, decimals: int = 0) -> str:
    """``part`` as percent of ``whole``; a dash if there is no whole."""
    return percent(part / whole if part is not None and whole else None, decimals)


class _Range(Protocol):
    """A median and the interval it lies in."""

    @property
    def median(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def multiple(value: float | None, decimals: int = 2) -> str:
    """How many times as much, as fast or as long: ``"1.25x"``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:.{decimals}f}x"


def multiple_range(value: _Range, decimals: int = 2) -> str:
    """``"1.25x (1.20 to 1.31)"``; without the interval where it has no width."""
    text = multiple(value.median, decimals)
    if value.low == value.high:
        return text
    return f"{text} ({value.low:.{decimals}f} to {value.high:.{decimals}f})"


def count(value: float | None) -> str:
    """``"611"``, ``"12,345"``; ``"2.5"`` for a mean over steps that differ."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"
