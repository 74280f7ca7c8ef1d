"""What captures of these tests are for: a GPU that computes in 16 bits, and a processor."""

from __future__ import annotations

from gobrrr.symbolic.op_graph import CaptureTarget
from gobrrr.symbolic.target.answers import DeviceAnswers
from gobrrr.symbolic.target.kernels import Abilities

_HALVES = frozenset({"float16", "bfloat16"})
GPU = CaptureTarget(
    DeviceAnswers("cuda", "A GPU", 80_000_000_000, 132, (9, 0), bfloat16=True),
    Abilities(_HALVES, _HALVES | {"float32"}),
)
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))
