"""What NVIDIA's driver says of the card, by ``pynvml`` of nvidia-ml-py, sampled in a thread.

It is read here without gobrrr's own reader: the benchmark is to judge that one too.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

# Time of the sample by ``time.monotonic`` (s, in a part's file from the part's begin), MHz, MHz, W,
# degrees C, the bit mask ``nvmlClocksEventReason*``, and % of the driver's last period.
COLUMNS = ("t_s", "sm_mhz", "memory_mhz", "power_w", "temperature_c", "reasons", "busy_percent")
PERIOD_S = 0.1


class Card:
    """The first card that this process sees.

    Raises:
        Exception: ``pynvml`` is not installed, or there is no driver or card.
    """

    def __init__(self) -> None:
        import pynvml  # type: ignore[import-not-found, unused-ignore]

        self.nvml: Any = pynvml
        pynvml.nvmlInit()
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        self.handle: Any = (
            pynvml.nvmlDeviceGetHandleByIndex(int(seen or 0))
            if seen.isdigit() or not seen
            else pynvml.nvmlDeviceGetHandleByUUID(seen)
        )

    def ask(self, name: str, *arguments: Any) -> Any:
        """``nvmlDeviceGet<name>`` of the card as plain data; ``{"error": ...}`` where it fails."""
        return tried(
            lambda: plain(getattr(self.nvml, f"nvmlDeviceGet{name}")(self.handle, *arguments))
        )

    def sample(self) -> tuple[Any, ...]:
        """One row of ``COLUMNS``; ``None`` for what is not to be had."""

        def known(name: str, *arguments: Any) -> Any:
            found = self.ask(name, *arguments)
            return None if isinstance(found, dict) and "error" in found else found

        power, busy = known("PowerUsage"), known("UtilizationRates")
        reasons = known("CurrentClocksEventReasons")
        if reasons is None:
            reasons = known("CurrentClocksThrottleReasons")
        return (
            round(time.monotonic(), 3),
            known("ClockInfo", self.nvml.NVML_CLOCK_SM),
            known("ClockInfo", self.nvml.NVML_CLOCK_MEM),
            None if power is None else power / 1e3,
            known("Temperature", self.nvml.NVML_TEMPERATURE_GPU),
            reasons,
            None if busy is None else busy["gpu"],
        )


class Sampler:
    """Samples of the card every ``PERIOD_S``, from now until ``stop``."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._rows: list[tuple[Any, ...]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.is_set():
            self._rows.append(self._card.sample())
            self._ended.wait(PERIOD_S)

    def since(self, begin: float) -> dict[str, list[Any]]:
        """The samples from ``begin`` (``time.monotonic``) on, as columns."""
        rows = list(self._rows)
        rows = rows[bisect_left(rows, begin, key=lambda row: row[0]) :]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)}
        columns["t_s"] = [round(t - begin, 3) for t in columns["t_s"]]
        return columns

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self._thread.join()


def tried(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call gives, or ``{"error": ...}``: one failure does not lose the rest."""
    try:
        return call(*arguments)
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {line}"}


def piece_by_piece(
    pieces: Mapping[str, Callable[..., Any]], setting: Any, save: Callable[[Any], None]
) -> dict[str, Any]:
    """What each piece of a part gives, saved as it goes; what it had saved before it failed stays.

    A piece is called with the setting and with what saves its own rows.
    """
    found: dict[str, Any] = {}
    for name, measure in pieces.items():

        def keep(rows: Any, name: str = name) -> None:
            found[name] = rows
            save(found)

        result = tried(measure, setting, keep)
        if isinstance(result, dict) and "error" in result and name in found:
            result = {**found[name], **result}
        keep(result)
    return found


def plain(value: Any) -> Any:
    """Structures, lists and bytes of NVML as JSON can hold them."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "_fields_"):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if hasattr(value, "__dict__") and not isinstance(value, int | float | str):
        return {name: plain(each) for name, each in vars(value).items()}
    return value
