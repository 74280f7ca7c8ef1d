"""Turns of a loop by the places of events: loops as people write them, counted by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gobrrr.live import loop_turns
from gobrrr.live.loop_turns import Place, place_of, turns_of


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    found: list[Place] = []
    monkeypatch.setattr(loop_turns, "is_user_file", lambda file: file == __file__)
    monkeypatch.setattr(sys.modules[__name__], "event", lambda: found.append(place_of(frame())))
    return found


def frame():  # type: ignore[no-untyped-def]
    return sys._getframe(2)


def event() -> None: ...


def delayed_policy() -> None:
    for turn in range(6):
        event()
        if turn % 2 == 0:
            for _ in range(2):
                event()
                event()


def critics_in_a_loop_of_their_own() -> None:
    for _ in range(4):
        for _ in range(5):
            event()
        event()


def a_generator_every_fifth_turn() -> None:
    for turn in range(20):
        event()
        if turn % 5 == 4:
            event()


def two_after_each_other() -> None:
    for _ in range(6):
        event()
        event()


def _agent(turn: int) -> None:
    event()
    if turn % 2 == 0:
        event()
        event()


def a_method_in_a_while_loop() -> None:
    turn = 0
    while turn < 8:
        _agent(turn)
        turn += 1


def no_loop_at_all() -> None:
    event()
    event()


@pytest.mark.parametrize(
    ("loop", "events", "turns"),
    [
        (delayed_policy, 6, 2),
        (critics_in_a_loop_of_their_own, 6, 1),
        (a_generator_every_fifth_turn, 6, 5),
        (two_after_each_other, 2, 1),
        (a_method_in_a_while_loop, 4, 2),
    ],
)
def test_turns_of_the_outermost_loop_are_counted(
    places: list[Place], loop: Callable[[], None], events: int, turns: int
) -> None:
    loop()
    # Wherever in a cycle one begins to look.
    for first in range(events):
        found = turns_of(places[first : first + events])
        assert found is not None and found.number == turns
        assert found.line.endswith(f"in {loop.__name__}")


def test_without_a_loop_nothing_is_said(places: list[Place]) -> None:
    no_loop_at_all()
    assert turns_of(places) is None
