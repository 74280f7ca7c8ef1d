"""What a Python call says on stderr while it measures."""

from __future__ import annotations

import io

import pytest

from gobrrr.measure.progress import OnStream, Progress, shown
from gobrrr.timeline.errors import InputError


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_over_in_two_seconds_says_nothing() -> None:
    stream, clock = io.StringIO(), Clock()
    told = OnStream(stream, clock)
    told("warm-up", 0, 3)
    clock.now_s = 1.9
    told("timing", 1, 6)
    told.close()
    assert stream.getvalue() == ""


def test_lines_are_seconds_apart_and_say_how_far_it_is() -> None:
    stream, clock = io.StringIO(), Clock()
    told = OnStream(stream, clock)
    for second in range(13):
        clock.now_s = float(second)
        told("timing" if second < 6 else "profiling", second, 20)
    told.close()
    assert stream.getvalue().splitlines() == [
        "gobrrr: timing, 2 of 20 (2 s so far)",
        "gobrrr: profiling, 7 of 20 (7 s so far)",
        "gobrrr: profiling, 12 of 20 (12 s so far)",
    ]


def test_a_first_step_that_takes_long_is_announced_meanwhile() -> None:
    stream, clock = io.StringIO(), Clock()
    told = OnStream(stream, clock)
    told("warm-up", 0, 3)
    clock.now_s = 2.0
    told._say_first()  # what the timer calls
    told.close()
    assert stream.getvalue() == "gobrrr: warm-up, 0 of 3 (2 s so far)\n"


def test_a_terminal_gets_one_line_that_is_gone_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    told = OnStream(stream, clock)
    clock.now_s = 3.0
    told("profiling", 2, 7)
    told.close()
    assert "gobrrr: profiling" in stream.getvalue()
    assert "2/7" in stream.getvalue()
    told("profiling", 3, 7)
    assert "3/7" not in stream.getvalue()


def test_what_progress_may_be() -> None:
    seen = []
    with shown(lambda *told: seen.append(told)) as tell:
        tell("timing", 1, 2)
    assert seen == [("timing", 1, 2)]
    stream = io.StringIO()
    with shown(False, stream=stream) as tell:
        tell("timing", 1, 2)
    assert stream.getvalue() == ""
    wrong = shown("yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="progress must be True, False or a function"):
        wrong.__enter__()


def test_a_stream_that_is_closed_does_not_stop_a_measurement() -> None:
    stream, clock = io.StringIO(), Clock()
    told = OnStream(stream, clock)
    stream.close()
    clock.now_s = 3.0
    told("timing", 1, 2)
    told.close()


def test_fix_takes_what_diagnose_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gobrrr.pipeline import fix as journey

    def tells(bench: object, options: object, require: object, progress: Progress) -> None:
        progress("trying compile", 1, 2)

    monkeypatch.setattr(journey, "fix_on", tells)
    journey.fix(f"{__file__}:Clock", progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="progress must be True, False or a function"):
        journey.fix(f"{__file__}:Clock", progress="no")  # type: ignore[arg-type]
