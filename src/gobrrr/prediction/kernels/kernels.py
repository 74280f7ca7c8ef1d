"""What the kernels of one op take, as the families of the kernel model find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernels:
    """What an op's kernels take besides their fixed cost.

    Attributes:
        seconds: in all, without ``latency_s``.
        compute_s, memory_s: the sides of ``seconds``.
        count: how many kernels.
        how: how it is computed, as the start of a sentence.
        latency_s: what passes between kernels of the op that wait for each other, in seconds,
            however small their work is.
        waiting_s: of ``seconds``, what loads that wait for each other take beyond the longer side.
    """

    seconds: float
    compute_s: float
    memory_s: float
    count: int
    how: str
    latency_s: float = 0.0
    waiting_s: float = 0.0


def waves_text(number: int) -> str:
    """``1 wave``, ``2 waves``: how often the multiprocessors are filled with blocks."""
    return "1 wave" if number == 1 else f"{number} waves"
