"""``torch.inference_mode``: no autograd graph, no version counters, no view tracking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.edits import BeforeLoop
from gobrrr.fixes.fix import Considered, Fix, RuledOut, prospect_or_not, too_little
from gobrrr.fixes.programs import with_setting
from gobrrr.fixes.scripts import around_outermost_calls
from gobrrr.fixes.spread import LESS_WORK
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload

# With torch 2.13 on a Zen 4 core. torch.add of one element takes 1.17 us under no_grad, 0.95 us
# under inference_mode. A node of autograd, made and freed with what it saves, in chains run with
# and without gradients: 1.6 us (mul), 2.3 to 3.1 us (mm), 2.8 us (linear and ReLU); torch.add of
# one element by itself 0.6 us.
COUNTERS_S = 0.22e-6
NODE_S = (1.0e-6, 2.5e-6, 3.5e-6)


def _consider(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("the step trains: it needs gradients")
    if facts.compiled:
        return RuledOut("compiled code does not track views")
    nothing = too_little(facts, "overhead.python", "overhead.dispatch")
    if nothing is not None:
        return nothing
    ops = sum(op.count for op in facts.ops)
    scale = host_scale(facts)
    counters_s = scale * COUNTERS_S * ops
    # Where nodes were not counted there may be one for each op, or none.
    counted = 0 if facts.in_no_grad else facts.autograd_nodes
    nodes = (0.0, 0.5 * ops, ops) if counted is None else (counted,) * 3
    low_s, expected_s, high_s = (scale * each_s * n for each_s, n in zip(NODE_S, nodes))
    # Recording is overhead: it cannot take more than there is.
    most_s = 0.8 * facts.leaf_s("overhead.python", "overhead.dispatch")
    expected_s = min(counters_s + expected_s, most_s)
    return prospect_or_not(
        facts, min(low_s, expected_s), expected_s, min(3.0 * counters_s + high_s, 1.1 * most_s),
        f"{ops:.0f} ops, each dispatched about {time_text(scale * COUNTERS_S)} faster than under "
        f"no_grad; {'up to ' if counted is None else ''}{nodes[2]:.0f} autograd nodes that no "
        f"backward pass uses, each about {time_text(scale * NODE_S[1])}",
    )  # fmt: skip


def _inference_mode() -> Any:
    import torch

    if not torch.is_inference_mode_enabled():
        changed("inference_mode")
    return torch.inference_mode()


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    yield with_setting(work, _inference_mode)


@contextmanager
def _in_script() -> Iterator[None]:
    def call(module: Any, original: Any, args: Any, kwargs: Any) -> Any:
        with _inference_mode():
            return original(module, *args, **kwargs)

    with around_outermost_calls(call):
        yield


INFERENCE_MODE = Fix(
    name="inference_mode",
    judged_with=LESS_WORK,
    title="torch.inference_mode",
    leaves=("overhead.dispatch", "overhead.python"),
    may_change=(),
    consider=_consider,
    snippet="with torch.inference_mode():\n    output = model(*inputs)",
    apply=_apply,
    in_script=_in_script,
    changes_made=changes_of("inference_mode"),
    in_source=(
        BeforeLoop(("{model}.forward = torch.inference_mode()({model}.forward)",), untrained=True),
    ),
)
