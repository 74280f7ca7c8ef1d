"""``torch.inference_mode``: no autograd graph, no version counters, no view tracking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Considered, Fix, RuledOut, milliseconds, prospect_or_not, too_little
from gobrrr.fixes.programs import with_setting

# torch.add of one element with torch 2.13 on a Zen 4 core: 1.73 us with gradients recorded,
# 1.17 us under no_grad, 0.95 us under inference_mode.
GRADIENTS_S, COUNTERS_S = 0.56e-6, 0.22e-6


def _consider(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("the step trains: it needs gradients")
    if facts.compiled:
        return RuledOut("compiled code has no views to track")
    nothing = too_little(facts, "overhead.python", "overhead.dispatch")
    if nothing is not None:
        return nothing
    ops = sum(op.count for op in facts.ops)
    per_op_s = COUNTERS_S if facts.in_no_grad else GRADIENTS_S + COUNTERS_S
    saved_s = ops * per_op_s
    now = "no_grad" if facts.in_no_grad else "gradients recorded"
    return prospect_or_not(
        facts, 0.0, saved_s, 2 * saved_s,
        f"{ops:.0f} ops, each about {milliseconds(per_op_s)} less to dispatch than with {now}",
    )  # fmt: skip


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    import torch

    yield with_setting(work, torch.inference_mode)


@contextmanager
def _in_script() -> Iterator[None]:
    import torch

    from gobrrr.fixes.scripts import around_outermost_calls

    def call(module: Any, original: Any, args: Any, kwargs: Any) -> Any:
        with torch.inference_mode():
            return original(module, *args, **kwargs)

    with around_outermost_calls(call):
        yield


INFERENCE_MODE = Fix(
    name="inference_mode",
    title="torch.inference_mode",
    leaves=("overhead.dispatch", "overhead.python"),
    may_change=(),
    consider=_consider,
    snippet="with torch.inference_mode():\n    output = model(*inputs)",
    apply=_apply,
    in_script=_in_script,
)
