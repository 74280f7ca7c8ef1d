"""The state of a GPU's card at a moment, and what two such moments say of the time between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Why a clock is below its maximum, as ``CardState.reasons`` has it.
IDLE, CLOCKS_SET, POWER_CAP = "idle", "clocks set", "power cap"
HELD_BY_HEAT = frozenset({"heat, by the driver", "heat, by the hardware"})
HELD_BY_HARDWARE = frozenset({"hardware slowdown", "power brake", "board limit"})
# A card that was held back by heat for less of the time is as fast as ever.
LEAST_HELD = 0.05
# Of the time: what another process computes for less makes no step longer.
LEAST_BUSY = 0.05
# Kernels are of the same length at a clock that is no further below another; it steps by 15 MHz.
SAME_LENGTHS = 0.98


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """Another process that has a context on the card.

    Attributes:
        pid: as the driver counts processes, which in a container is not as the container does.
        held_bytes: of the card's memory; ``None`` if the driver does not say.
        busy_share: of the time since the state before in which its kernels ran (0 to 1); ``None``
            if the driver does not say.
    """

    pid: int
    held_bytes: int | None = None
    busy_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """What the driver says of a card; ``None`` is what it does not say.

    Attributes:
        at_ns: when it was asked, on ``time.perf_counter_ns``.
        card: which one it is of, by whatever names it.
        sm_mhz, memory_mhz: clocks now, with their maxima.
        sm_mean_mhz: mean of the driver's own samples since the state before.
        power_w, power_limit_w: drawn now, and the limit that is enforced.
        temperature_c: of the chip, in degrees Celsius.
        reasons: why the clock is not at its maximum; empty where nothing holds it.
        power_held_ns, heat_held_ns: time in which the clock was held for either, since the driver
            was loaded.
        energy_mj: millijoules since the driver was loaded.
        others: other processes with a context on it.
        pcie_generation, pcie_width: of the link to the host now (an idle link is slower), with
            their maxima.
        mig: the card is divided (MIG): all but ``others`` is of the whole card.
    """

    at_ns: int
    card: str | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    sm_mean_mhz: float | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    reasons: tuple[str, ...] | None = None
    power_held_ns: int | None = None
    heat_held_ns: int | None = None
    energy_mj: int | None = None
    others: tuple[OtherProcess, ...] | None = None
    pcie_generation: int | None = None
    pcie_max_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    mig: bool | None = None

    @property
    def computing(self) -> tuple[OtherProcess, ...]:
        """The other processes that are known to have computed."""
        return tuple(
            other for other in self.others or () if (other.busy_share or 0.0) >= LEAST_BUSY
        )


Counter = Callable[[CardState], int | None]


def heat_held(state: CardState) -> int | None:
    """Ns in which its clock was held for heat."""
    return state.heat_held_ns


@dataclass(frozen=True, slots=True)
class CardSpan:
    """The card before and after a block of ``steps`` timed steps."""

    before: CardState
    after: CardState
    steps: int

    @property
    def wall_ns(self) -> int:
        """Between the two."""
        return self.after.at_ns - self.before.at_ns

    def grown(self, counter: Counter) -> int | None:
        """How much one of the counters grew; ``None`` where it is not known."""
        before, after = counter(self.before), counter(self.after)
        return None if before is None or after is None else max(after - before, 0)


def clock_stayed(spans: Sequence[CardSpan]) -> bool:
    """Whether the clock was the same in every block and between them, as far as it was sampled.

    Between the first two is the profile. False too where the driver does not say.
    """
    blocks = [span.after.sm_mean_mhz for span in spans]
    between = [span.before.sm_mean_mhz for span in spans[1:]]
    known = [mhz for mhz in (*blocks, *between) if mhz]
    if not between or len(known) < len(blocks) + len(between):
        return False
    return min(known) >= SAME_LENGTHS * max(known)


def disturbance(span: CardSpan) -> str:
    """Why a measurement meanwhile is not what the card can do, as a clause; empty if it is.

    The power cap is no such reason: a card meets it whenever its matrix units are full.
    """
    if span.after.computing:
        return f"another process (pid {span.after.computing[0].pid}) computed on the GPU"
    held_ns, reasons = span.grown(heat_held), frozenset(span.after.reasons or ())
    if reasons & HELD_BY_HEAT or (held_ns is not None and held_ns > LEAST_HELD * span.wall_ns):
        return "the GPU was so hot that its clock was held"
    if reasons & HELD_BY_HARDWARE:
        return "the GPU's hardware held its clock (power supply or board)"
    return ""
