"""What the kernels that a compiler generates take beside the ops that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.fusion.groups import PRODUCTS_AS_LOOPS, Group, seconds_to_move
from gobrrr.fixes.channels_last import POOLS
from gobrrr.fixes.device_constants import constant
from gobrrr.work.formulas.random_numbers import DRAWS

# Products that become generated loops take about what the library takes: low, expected, high.
_AS_LOOPS = (2.0, 1.2, 0.8)
# A loop over one op, which no other is fused with, does what PyTorch's own kernel does, and in the
# same fresh memory: times of now, low and expected.
_ALONE = (1.3, 1.0)
# Generated code on a processor draws with a generator of its own, one number after the other:
# times of what PyTorch's takes, low, expected and high saving. Measured on 16k to 4M elements, one
# thread of an EPYC (Zen 4), torch 2.13: 8.0 to 9.0 ns per number for uniform ones, 47 for normal
# ones, where PyTorch's own took 11 to 14 (Bernoulli) and 2.7 to 4.9 (uniform, normal). What is left
# to PyTorch's own kernels takes what it does.
_DRAWN = {
    **dict.fromkeys(("bernoulli", "bernoulli_", "native_dropout"), (1.0, 0.75, 0.6)),
    **dict.fromkeys(("rand", "rand_like", "uniform_"), (3.5, 2.5, 1.0)),
    **dict.fromkeys(("randn", "randn_like", "normal_"), (20.0, 10.0, 1.0)),
}
_DRAWN_OTHERWISE = (1.5, 1.0, 0.8)
# A group that moves more than this of what its ops move is no fusion.
_NOTHING_SPARED = 0.98


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of fusable ops as they are, and as one per group.

    Attributes:
        now_s: seconds per step now.
        after_s: generated: slow, expected, fast.
        bytes_now: bytes that they move now.
        bytes_after: bytes that they move fused.
    """

    now_s: float
    after_s: tuple[float, float, float]
    bytes_now: float
    bytes_after: float


def generated_kernels(facts: Facts, groups: Sequence[Group]) -> Kernels:
    """The kernels of groups of the compiled part's ops (``find_groups``)."""
    each = [_after(facts, group) for group in groups]
    slow_s, expected_s, fast_s = (sum(times[i] for times in each) for i in range(3))
    return Kernels(
        now_s=sum(op.kernel_s for group in groups for op in group.ops),
        after_s=(slow_s, expected_s, fast_s),
        bytes_now=sum(group.bytes_before for group in groups),
        bytes_after=sum(group.bytes_after for group in groups),
    )


def _after(facts: Facts, group: Group) -> tuple[float, float, float]:
    """Seconds of one group's kernel: slow, expected, fast."""
    now_s = sum(op.kernel_s for op in group.ops)
    memory_s = seconds_to_move(facts, group.bytes_after)
    if memory_s is None:
        return now_s, now_s, now_s
    arithmetic_s = sum(_arithmetic_s(facts, op) for op in group.ops)
    faults_s = sum(op.page_faults_s for op in group.ops)
    if group.fresh_before:
        faults_s *= group.fresh_after / group.fresh_before
    loops_s = sum(op.kernel_s for op in group.ops if op.name in PRODUCTS_AS_LOOPS)
    kept = [sum(times) for times in zip(*(_kept_s(facts, op) for op in group.ops), strict=True)]
    reached = constant("generated.reached", facts).values
    slow_s, expected_s, fast_s = (
        max(memory_s / reached[i], arithmetic_s / reached[i], kept[i])
        + faults_s + _AS_LOOPS[i] * loops_s
        for i in range(3)
    )  # fmt: skip
    alone = len(group.ops) == 1 and group.bytes_after > _NOTHING_SPARED * group.bytes_before
    # PyTorch's own kernel for pools of NCHW tensors is a slow one.
    draws = any(_draws(facts, op) for op in group.ops)
    if alone and not loops_s and not draws and group.ops[0].name not in POOLS:
        return max(slow_s, _ALONE[0] * now_s), _ALONE[1] * now_s, min(fast_s, now_s)
    return slow_s, expected_s, fast_s


def _kept_s(facts: Facts, op: OpFact) -> tuple[float, float, float]:
    """Seconds that an op takes fused too, whatever it moves: slow, expected, fast.

    Random numbers on a processor, and transcendental functions: generated code calls the vectorised
    ones that PyTorch's kernels call (SLEEF behind ``at::vec``), in whatever type the op computes:
    what they take now beside the bytes stays.
    """
    computing_s = max(op.kernel_s - op.page_faults_s, 0.0)
    if _draws(facts, op):
        slow, expected, fast = _DRAWN.get(op.name.partition("::")[2], _DRAWN_OTHERWISE)
        return slow * computing_s, expected * computing_s, fast * computing_s
    if not op.special:
        return 0.0, 0.0, 0.0
    moving_s = seconds_to_move(facts, op.bytes_moved or 0.0) or 0.0
    return computing_s, max(computing_s - moving_s, 0.0), 0.0


def _draws(facts: Facts, op: OpFact) -> bool:
    """Whether it draws random numbers on a processor, whose time is the generator's."""
    return not facts.on_gpu and op.name.partition("::")[2] in DRAWS


def _arithmetic_s(facts: Facts, op: OpFact) -> float:
    """An op bound by arithmetic takes its roof, fused or not."""
    rate = facts.rate("vector.float32")
    exponentials = facts.rate("vector.float32.exp")
    seconds = (op.vector_flops or 0.0) / rate if rate else 0.0
    if exponentials:
        seconds = max(seconds, op.special / exponentials)
    return seconds
