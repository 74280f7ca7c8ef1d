"""What predictions know of kinds of devices by measurement: a row for each kind, with its source.

What a host does (Python, dispatch) is a processor's work whatever device it drives, and is scaled
by the smallest dispatch instead (``compiled_calls.host_scale``): it is none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.diagnosis.facts import Facts

# Types whose row may be named apart from their device's own: "cuda 16 bits".
_16_BITS = ("float16", "bfloat16")
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
_H200 = "torch 2.11, H200"
_COUNTERS = "gpu_first-mends_nvidia-h200_2026-11-27.json"
CONSTANTS: Mapping[str, Mapping[str, Constant]] = {
    # Of the matrix rate of its dtype, what fused attention's products reach.
    "attention.reached": {
        "cpu": Constant(0.35, 0.45, 0.6, f"{_ZEN4}, 2 threads: 8 heads of 64, 128 to 1024 tokens"),
        "cuda": Constant(
            0.66, 0.75, 0.85,
            f"{_H200}, float32: a program with its calls, and its kernel alone in another (the "
            f"parts fixes of 2026-11-26 and counters of {_COUNTERS}); expected: between them",
        ),
        "cuda 16 bits": Constant(
            0.35, 0.7, 0.75,
            f"FlashAttention-2 on an H100 (arXiv:2407.08608) and an A100 (arXiv:2307.08691); "
            f"{_H200}, cuDNN's kernel in bfloat16, 0.74 ({_COUNTERS})",
        ),
    },
    # The same of its backward pass, which computes the scores again block by block.
    "attention.reached_backward": {
        "cpu": Constant(0.18, 0.18, 0.18, f"{_ZEN4}, one thread, in training"),
        "cuda": Constant(
            0.54, 0.7, 0.72,
            f"{_H200}, float32: the memory-efficient kernel alone, 0.72; with what runs beside it "
            f"0.70 ({_COUNTERS}); low: as much less as forward",
        ),
        "cuda 16 bits": Constant(
            0.25, 0.53, 0.63,
            f"FlashAttention-2 on an H100 (arXiv:2407.08608) and an A100 (arXiv:2307.08691); "
            f"{_H200}, cuDNN's kernels in bfloat16, 0.53 ({_COUNTERS})",
        ),
    },
    # What a call of the fused op costs a step beside its products, in seconds.
    "attention.call_s": {
        "cpu": Constant(20e-6, 20e-6, 20e-6, f"{_ZEN4}, one thread"),
        "cuda": Constant(
            22e-6, 2.1e-6, 1.4e-6,
            f"{_H200}: a linear layer of a host that is late; an empty kernel and the gap between "
            "queued ones; an empty node of a graph (gpu_first-mends and gpu_device, 2026-11-27)",
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
        "cuda": Constant(
            0.73, 0.81, 0.85,
            f"{_H200}: kernels of a foreach AdamW, built as the fused one is, on 100 to 200 MB "
            f"({_COUNTERS})",
        ),
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


def constant(name: str, facts: Facts, dtype: str | None = None) -> Constant:
    """A constant for the device of the step, and for what it computes in where that matters.

    Where no device of its kind was measured it is a processor's, with ends that say so.
    """
    rows = CONSTANTS[name]
    kind = facts.device_kind or "cpu"
    found = rows.get(f"{kind} 16 bits") if dtype in _16_BITS else None
    found = found or rows.get(kind)
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
