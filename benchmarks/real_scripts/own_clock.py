"""The clock that every script of this benchmark carries, and its independent count of FLOPs.

Not gobrrr's: spans between ``begin`` and ``end`` go to the JSON file that ``OWN_CLOCK`` names when
the program ends, as ``{"spans": [[name, begin_ns, end_ns], ...], "flops": [...]}``. With
``OWN_COUNT=1`` torch's ``FlopCounterMode`` counts what each span computes (matrix products and
convolutions; many times slower, so clock and count never come from one run).
"""

import atexit
import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEP = "step"


class OwnClock:
    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int]] = []
        self.flops: list[int] = []
        self._counter: Any = None
        self._open: tuple[str, int, int] | None = None
        if os.environ.get("OWN_COUNT"):
            from torch.utils.flop_counter import FlopCounterMode

            self._counter = FlopCounterMode(display=False)
            self._counter.__enter__()
        atexit.register(self.write)

    def begin(self, name: str = STEP) -> None:
        """A part of the program begins; one that is open ends."""
        self.end()
        self._open = (name, self._counted(), time.perf_counter_ns())

    def end(self) -> None:
        """The open part ends, if there is one."""
        now = time.perf_counter_ns()
        if self._open is not None:
            name, counted, begin = self._open
            self.spans.append((name, begin, now))
            self.flops.append(self._counted() - counted)
            self._open = None

    def rename(self, name: str) -> None:
        """What is open turns out to be something else."""
        if self._open is not None:
            self._open = (name, *self._open[1:])

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the program."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def _counted(self) -> int:
        return 0 if self._counter is None else int(self._counter.get_total_flops())

    def write(self) -> None:
        """Write the file now (for programs that leave without Python's farewell)."""
        self.end()
        rank = os.environ.get("RANK", "0")
        if os.environ.get("OWN_CLOCK") and rank == "0":
            found = {"spans": self.spans, "flops": self.flops if self._counter else None}
            Path(os.environ["OWN_CLOCK"]).write_text(json.dumps(found))


clock = OwnClock()
