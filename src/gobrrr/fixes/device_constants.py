"""What predictions know of kinds of devices by measurement: a row for each kind, with its source.

What a host does (Python, dispatch) is a processor's work whatever device it drives, and is scaled
by the smallest dispatch instead (``compiled_calls.host_scale``): it is none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.fixes.facts import Facts

# How far a kind of device that was not measured may lie beyond the ends of those that were.
_UNMEASURED = 2.0
# Shares of a ceiling: more of these saves more. Of all others less does.
_OF_CEILINGS = ("attention.reached", "attention.reached_backward", "generated.reached",
                "optimizer.reached")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Constant:
    """Its values by what they make of a saving: low, expected, high; and where they are from.

    ``measured``: on a device of the kind that was asked for.
    """

    low: float
    expected: float
    high: float
    source: str
    measured: bool = True

    @property
    def values(self) -> tuple[float, float, float]:
        """Low, expected, high."""
        return self.low, self.expected, self.high


_ZEN4 = "torch 2.13, Zen 4"
CONSTANTS: Mapping[str, Mapping[str, Constant]] = {
    # Of the matrix rate of its dtype, what fused attention's products reach.
    "attention.reached": {
        "cpu": Constant(0.35, 0.45, 0.6, f"{_ZEN4}, 2 threads: 8 heads of 64, 128 to 1024 tokens"),
        "cuda": Constant(
            0.45, 0.66, 0.85,
            "one program on an H200, float32, torch 2.11 (benchmarks/gpu); its ends are guesses",
        ),
    },
    # The same of its backward pass, which computes the scores again block by block.
    "attention.reached_backward": {
        "cpu": Constant(0.18, 0.18, 0.18, f"{_ZEN4}, one thread, in training"),
        "cuda": Constant(
            0.25, 0.5, 0.63,
            "up to 0.63 of an A100's peak in 16 bits (FlashAttention-2, arXiv:2307.08691); the "
            "rest are guesses",
        ),
    },
    # What a call of the fused op costs a step beside its products, in seconds.
    "attention.call_s": {
        "cpu": Constant(20e-6, 20e-6, 20e-6, f"{_ZEN4}, one thread"),
        "cuda": Constant(
            20e-6, 5e-6, 1.5e-6,
            "from a host-bound call to the shortest kernel of a recorded H100 step",
        ),
    },
    # Of its roof, what a generated kernel reaches.
    "generated.reached": {
        "cpu": Constant(0.35, 0.6, 0.9, "copy, cos, relu, gelu and chains of 1 to 16 operations "
                        "on 4 M elements, a processor"),
    },
    # Of the rate of a copy, what a fused update of all parameters reaches.
    "optimizer.reached": {
        "cpu": Constant(0.7, 0.7, 1.0, "assumed of a processor"),
    },
    # What a step of a library's recurrent layer costs beside its products, in seconds; of a
    # processor as host work where a dispatch took ``DISPATCH_S``.
    "recurrent.step_s": {
        "cpu": Constant(5e-6, 5e-6, 5e-6, f"{_ZEN4}, oneDNN's LSTM, 6 to 16 rows, 44 to 64 cells"),
    },
    # The ops of a sparse gradient and its update, for each table, in seconds.
    "sparse.table_s": {
        "cpu": Constant(300e-6, 120e-6, 60e-6, "assumed of a processor: some ops, dispatched"),
    },
    # What top-k takes of a sort's time.
    "top_k.left": {
        "cpu": Constant(0.4, 0.15, 0.02, f"{_ZEN4}, 10 of 1000 to 100000 float32"),
    },
    # What torch.softmax takes of its exp's time alone: both read and write each value once.
    "softmax.of_exp": {
        "cpu": Constant(1.5, 1.0, 0.65, f"{_ZEN4}, float32, rows of 64 to 4000"),
    },
}  # fmt: skip


def constant(name: str, facts: Facts) -> Constant:
    """A constant for the device of the step.

    Where no device of its kind was measured it is a processor's, with ends that say so.
    """
    rows = CONSTANTS[name]
    found = rows.get(facts.device_kind or "cpu")
    if found is not None:
        return found
    known = rows["cpu"]
    if name in _OF_CEILINGS:
        low, high = known.low / _UNMEASURED, min(known.high * _UNMEASURED, 1.0)
    else:
        low, high = known.low * _UNMEASURED, known.high / _UNMEASURED
    return Constant(low, known.expected, high, known.source, measured=False)


def unmeasured(*constants: Constant) -> str:
    """That some of them are another kind of device's, to follow a sentence; else empty."""
    sources = dict.fromkeys(each.source for each in constants if not each.measured)
    if not sources:
        return ""
    return (
        "; what that takes was measured on no device of this kind "
        f"(elsewhere: {', '.join(sources)})"
    )
