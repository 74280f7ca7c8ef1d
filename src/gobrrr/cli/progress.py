"""One line on stderr for each phase: nothing that would tear the output of the user's script."""

from __future__ import annotations

from typing import TextIO


class Progress:
    """Prints a line when the phase changes. Callable as ``progress(phase, done, wanted)``."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._phase = ""

    def __call__(self, phase: str, done: int = 0, wanted: int = 0) -> None:
        """``done`` of ``wanted`` steps of ``phase`` are over."""
        if phase == self._phase:
            return
        self._phase = phase
        steps = f", {wanted} step{'s' if wanted != 1 else ''}" if wanted else ""
        self.say(f"{phase}{steps}")

    def say(self, sentence: str) -> None:
        """One line, if anything is shown at all."""
        if self._stream is not None:
            print(f"gobrrr: {sentence}", file=self._stream, flush=True)
