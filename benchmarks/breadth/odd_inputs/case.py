"""An odd or bad input: what is asked, and which kind of answer it must get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gobrrr.diagnosis.schema import Diagnosis

GIGABYTE = 1_000_000_000
Answer = Diagnosis | list[Diagnosis]
Ask = Callable[[], Answer]


class Kind(str, Enum):
    """What may come out.

    NUMBER: a diagnosis, on which the sweep's checks hold.
    BAD_INPUT: one sentence of gobrrr's own, exit code 2.
    USER_ERROR: the program's own exception, named as such, exit code 3.
    ENDED: the program's own ``SystemExit`` or ``KeyboardInterrupt``, let through.
    """

    NUMBER = "number"
    BAD_INPUT = "bad input"
    USER_ERROR = "user error"
    ENDED = "ended"


class BrokenPromiseError(Exception):
    """The answer came, but something that is promised with it does not hold."""


@dataclass(frozen=True)
class OddInput:
    """One question.

    Attributes:
        name: begins with the command, ``predict`` or ``diagnose``.
        ask: asks it, and raises ``BrokenPromiseError``.
        expected: the kinds of answer that are right.
        limit_s: seconds of processor time.
        memory_bytes: how much it may take; ``None``: no promise.
    """

    name: str
    ask: Ask
    expected: tuple[Kind, ...]
    limit_s: float
    memory_bytes: int | None


@dataclass
class OddInputs:
    """A file's questions in the order in which they stand there; ``add`` is the decorator."""

    cases: dict[str, OddInput] = field(default_factory=dict)

    def add(
        self, *expected: Kind, limit_s: float = 60.0, memory_bytes: int | None = None
    ) -> Callable[[Ask], Ask]:
        """Registers the decorated question under its function's name."""

        def register(ask: Ask) -> Ask:
            name = ask.__name__
            if name in self.cases:
                raise ValueError(f"two odd inputs are called {name}")
            self.cases[name] = OddInput(name, ask, expected, limit_s, memory_bytes)
            return ask

        return register


def predict(workload: Any, device: Any = "H100-SXM", **options: Any) -> Answer:
    """The question to ``gobrrr.predict``."""
    import gobrrr

    answer: Answer = gobrrr.predict(workload, device, **options)
    return answer


def diagnose(workload: Any, **options: Any) -> Answer:
    """The question to ``gobrrr.diagnose``."""
    import gobrrr

    return gobrrr.diagnose(workload, **options)


def promise(holds: bool, what: str) -> None:
    """Raises ``BrokenPromiseError`` unless it holds."""
    if not holds:
        raise BrokenPromiseError(what)
