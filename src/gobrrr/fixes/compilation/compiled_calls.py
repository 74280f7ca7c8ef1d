"""What calling compiled code costs the host of this step (constants:
``prediction.step.compiled_host``).

They rank what is worth a trial; what a compiled program costs on this machine the trial measures.
They scale like the time of the smallest dispatch, which is measured right after the step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.compilation.compiled_part import trained_tensors
from gobrrr.prediction.step.compiled_host import (
    DISPATCH_S,
    GENERATED_CALL_S,
    GENERATED_GROUP_S,
    GUARDS,
    LIBRARY_CALL_S,
    entering,
)
from gobrrr.timeline.quantities import time_text


@dataclass(frozen=True, slots=True)
class Left:
    """What a way to compile leaves of the default's costs.

    Attributes:
        guards: whether Dynamo's frame is entered, and its guards checked.
        python: whether generated Python makes the calls of kernels and libraries.
    """

    guards: bool = True
    python: bool = True


ALL_LEFT = Left()


@dataclass(frozen=True, slots=True)
class CallCost:
    """Seconds per step of the host beside the kernels, once compiled.

    Attributes:
        enter_s: entering compiled code and its guards.
        autograd_s: recording and running the one autograd node; 0 without gradients.
        gradients_s: handing each gradient to its parameter.
        libraries_s: calls of libraries.
        generated_s: calls of generated kernels.
    """

    enter_s: float
    autograd_s: float
    gradients_s: float
    libraries_s: float
    generated_s: float

    @property
    def sentence(self) -> str:
        """Its parts, the largest first, without what takes nothing."""
        parts = {
            "entry and guards": self.enter_s, "autograd": self.autograd_s,
            "gradients": self.gradients_s, "library calls": self.libraries_s,
            "generated kernels": self.generated_s,
        }  # fmt: skip
        ordered = sorted(parts, key=lambda name: -parts[name])
        return ", ".join(f"{n} {time_text(parts[n])}" for n in ordered if parts[n] > 0)

    @property
    def total_s(self) -> float:
        """All of it."""
        return (
            self.enter_s + self.autograd_s + self.gradients_s + self.libraries_s + self.generated_s
        )  # fmt: skip


def call_cost(
    facts: Facts,
    libraries: Sequence[OpFact],
    generated: int,
    groups: int,
    left: Left = ALL_LEFT,
    broken: int = 1,
) -> CallCost:
    """Cost of the compiled part's calls.

    Args:
        facts: the step as it is.
        libraries: ops that stay calls of libraries.
        generated: calls of generated functions.
        groups: groups of fused ops, of which a function may hold several.
        left: what the mode leaves of them.
        broken: graphs that the forward pass is broken into, each entered and recorded by itself.
    """
    scale = host_scale(facts)
    parameters = sum(optimizer.tensors for optimizer in facts.optimizers)
    if facts.parameters is not None:
        parameters = max(parameters, facts.parameters)
    parameters = parameters or trained_tensors(facts)
    records = facts.trains or records_gradients(facts)
    calls = sum(op.count for op in libraries)
    own_s = sum(op.fixed_s for op in libraries)
    entered = entering(
        parameters=parameters, trains=facts.trains, records=records, graphs=broken
    )  # fmt: skip
    return CallCost(
        enter_s=(scale * entered.frame_s + GUARDS * _looked_at_s(facts)) * left.guards,
        autograd_s=scale * (entered.record_s + entered.engine_s),
        gradients_s=scale * entered.gradients_s,
        libraries_s=own_s + scale * LIBRARY_CALL_S * calls * left.python,
        generated_s=scale * (GENERATED_CALL_S * generated * left.python
                             + GENERATED_GROUP_S * groups),
    )  # fmt: skip


def _looked_at_s(facts: Facts) -> float:
    """Python and dispatch of the forward pass inside modules, each module once.

    Guards look at a module and its weights once, however often the traced Python called it. It was
    called as often as the rarest of the ops that it runs.
    """
    inside: dict[str, list[OpFact]] = defaultdict(list)
    for op in facts.ops:
        if op.phase == "forward" and op.module:
            inside[op.module].append(op)
    total_s = 0.0
    for ops in inside.values():
        calls = min(Counter((op.name, op.shapes) for op in ops).values()) if facts.in_order else 1
        total_s += sum(op.host_s + op.fixed_s for op in ops) / calls
    return total_s


def records_gradients(facts: Facts) -> bool:
    """Whether a step without a backward pass makes nodes of autograd all the same."""
    if facts.trains or facts.in_no_grad:
        return False
    return bool(facts.autograd_nodes)


def host_scale(facts: Facts) -> float:
    """How much slower this machine's host work is than where the constants were measured."""
    if facts.dispatch_s is not None:
        return facts.dispatch_s / DISPATCH_S
    dispatches = facts.rate("host.dispatches")
    return 1.0 if not dispatches else 1.0 / (dispatches * DISPATCH_S)
