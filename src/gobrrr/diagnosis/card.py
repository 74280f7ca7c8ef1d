"""The GPU's card while steps were timed: what of it explains their times, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.devices.card import CLOCKS_SET, IDLE, LEAST_HELD, CardSpan, Counter, heat_held
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.step_schema import CardRecord
from gobrrr.timeline.quantities import percent, si

# The driver renews the count of energy every tenth of a second at the least.
LEAST_ENERGY_NS = 500_000_000
# A clock no further below another is the same one, which steps by 15 MHz.
SAME_CLOCK = 0.97


def card_record(spans: Sequence[CardSpan]) -> CardRecord | None:
    """What the states around the timed blocks say together; ``None`` without any."""
    steps = sum(span.steps for span in spans)
    wall_ns = sum(span.wall_ns for span in spans)
    if not steps or wall_ns <= 0:
        return None
    last = spans[-1].after
    joules = _joules(spans) if wall_ns >= LEAST_ENERGY_NS else None
    temperatures = [t for span in spans if (t := span.after.temperature_c) is not None]
    reasons = [reason for span in spans for reason in span.after.reasons or ()]
    return CardRecord(
        steps=steps,
        joules_per_step=None if joules is None else joules / steps,
        mean_w=None if joules is None else joules / (wall_ns * 1e-9),
        power_limit_w=last.power_limit_w,
        power_held=_held(spans, lambda state: state.power_held_ns, wall_ns),
        heat_held=_held(spans, heat_held, wall_ns),
        sm_mhz=_clock(spans),
        sm_max_mhz=last.sm_max_mhz,
        temperature_c=max(temperatures, default=None),
        # As the block ends the device is waited for.
        reasons=[reason for reason in dict.fromkeys(reasons) if reason != IDLE],
    )


def _joules(spans: Sequence[CardSpan]) -> float | None:
    total_mj = 0
    for span in spans:
        spent_mj = span.grown(lambda state: state.energy_mj)
        # Of a card that is shared or divided it is not these steps' alone.
        if not spent_mj or span.after.mig or span.after.computing:
            return None
        total_mj += spent_mj
    return total_mj * 1e-3


def _held(spans: Sequence[CardSpan], counter: Counter, wall_ns: int) -> float | None:
    grown = [span.grown(counter) for span in spans]
    held_ns = sum(ns for ns in grown if ns is not None)
    return None if None in grown else min(1.0, held_ns / wall_ns)


def _clock(spans: Sequence[CardSpan]) -> float | None:
    """Mean of the driver's samples; where it keeps none, of the clocks as blocks ended."""
    sampled = [(span.after.sm_mean_mhz, span.wall_ns) for span in spans]
    at_ends = [(span.after.sm_mhz, span.wall_ns) for span in spans]
    for clocks in (sampled, at_ends):
        known = [(mhz, ns) for mhz, ns in clocks if mhz is not None]
        if known:
            return sum(mhz * ns for mhz, ns in known) / sum(ns for _, ns in known)
    return None


def with_card(diagnosis: Diagnosis, spans: Sequence[CardSpan]) -> list[str]:
    """Keeps what the states say in the diagnosis; what is to be said of it."""
    diagnosis.card = card_record(spans)
    return card_notices(diagnosis)


def card_notices(diagnosis: Diagnosis) -> list[str]:
    """What held the card's clock, and its ceiling of products at that clock."""
    card = diagnosis.card
    if card is None or card.sm_mhz is None or card.sm_max_mhz is None:
        return []
    clocks = f"{card.sm_mhz:.0f} of {card.sm_max_mhz:.0f} MHz"
    below = card.sm_mhz < SAME_CLOCK * card.sm_max_mhz
    held, why = max((card.power_held or 0.0, "power"), (card.heat_held or 0.0, "heat"))
    if held >= LEAST_HELD and below:
        limit = ""
        if why == "heat" and card.temperature_c is not None:
            limit = f" ({card.temperature_c:.0f} degrees Celsius)"
        elif why == "power" and card.power_limit_w is not None:
            limit = f" (its limit is {si(card.power_limit_w, 'W')})"
        said = (
            f"The card held its clock at {clocks} on average, for {why}{limit} in "
            f"{percent(held)} of the time in which steps were timed"
        )
        return [f"{said}{_ceiling_then(diagnosis, card.sm_mhz)}."]
    if below and CLOCKS_SET in card.reasons:
        return [
            f"The card ran at {clocks} because its application clocks allow no more (nvidia-smi "
            f"--reset-applications-clocks){_ceiling_then(diagnosis, card.sm_mhz)}."
        ]
    return []


def _ceiling_then(diagnosis: Diagnosis, sm_mhz: float) -> str:
    name = f"matrix.{diagnosis.mfu_dtype}"
    row = next((row for row in diagnosis.device.ceilings if row.name == name), None)
    # Of a ceiling whose clock is not known no other can be told.
    if row is None or not row.sm_hz or sm_mhz * 1e6 >= SAME_CLOCK * row.sm_hz:
        return ""
    rate = row.value * sm_mhz * 1e6 / row.sm_hz
    return (
        f": its ceiling of products in {diagnosis.mfu_dtype} at that clock is {si(rate, row.unit)} "
        f"(of {si(row.value, row.unit)} at {row.sm_hz * 1e-6:.0f} MHz)"
    )
