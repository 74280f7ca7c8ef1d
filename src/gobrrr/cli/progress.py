"""What is going on, on stderr: whole lines, which cannot tear the output of a user's script."""

from __future__ import annotations

from typing import TextIO

from gobrrr.cli.streams import takes_text

_WIDTH = 79
_BAR = 24


class Progress:
    """Callable as ``progress(phase, done, wanted)``; ``None`` as stream shows nothing.

    A phase named ``group: what`` is one line for the whole group. For the ceilings, which are
    measured while no user code runs, that line is a bar if the stream is a terminal.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._bar = stream is not None and stream.isatty()
        self._group = ""
        self._open = False

    def __call__(self, phase: str, done: int = 0, wanted: int = 0) -> None:
        """``done`` of ``wanted`` of this phase is over."""
        group, _, what = phase.partition(":")
        if group == "ceilings" and self._bar:
            self._draw_bar(what.strip(), done, wanted)
        elif group != self._group:
            steps = f", {wanted} steps" if wanted > 1 and not what else ""
            self.say(_SENTENCES.get(group, group) + steps)
        self._group = group

    def _draw_bar(self, what: str, done: int, wanted: int) -> None:
        filled = round(_BAR * done / wanted) if wanted else 0
        bar = "#" * filled + "-" * (_BAR - filled)
        line = f"gobrrr: measuring ceilings [{bar}] {done}/{wanted} {what}"[:_WIDTH]
        self._write(f"\r{line:<{_WIDTH}}")
        self._open = True

    def say(self, sentence: str) -> None:
        """One line, if anything is shown at all."""
        self.end()
        self._write(f"gobrrr: {sentence}\n")

    def end(self) -> None:
        """Closes a line that a bar has left open."""
        if self._open:
            self._open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is not None and takes_text(self._stream):
            try:
                self._stream.write(text)
                self._stream.flush()
            except BrokenPipeError:
                raise
            except OSError:
                # Full: progress is nothing that a measurement should end for.
                self._stream = None


_SENTENCES = {
    "ceilings": "measuring this machine's ceilings (once; cached afterwards)",
    "warm-up": "warming up",
    "timing": "timing without the profiler",
    "done": "measured",
}
