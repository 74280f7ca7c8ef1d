"""Evaluation and inference that record gradients nobody goes back through: ``torch.no_grad``."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import count, percent

# Recording what a backward pass would need: from nothing to about a third of such a forward pass
# (fresh memory for each activation, nodes of autograd).
_LOW, _EXPECTED, _HIGH = 0.0, 0.15, 0.35
# Of the wall time. It is told for its memory too, whatever it saves.
_LEAST = 0.005


def _find(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    unused = [call for call in program.calls if call.gradients and call.went_back is False]
    if facts.trains:
        # A module that is never trained may be another's loss, or frozen.
        trained = {(call.module, call.index) for call in program.calls if call.training}
        found = [c for c in unused if not c.training and (c.module, c.index) in trained]
    else:
        found = [] if any(call.went_back for call in program.calls) else unused
    if not found:
        return None
    share = min(1.0, sum(call.share for call in found))
    if share < _LEAST:
        return None
    return saves_of_wall(
        f"{count(sum(call.count for call in found))} calls of {found[0].module}"
        f"{' in eval mode' if facts.trains else ''} record gradients, and no step goes back "
        f"through them: {percent(share)} of the wall time",
        tuple(dict.fromkeys(call.source for call in found if call.source)),
        _LOW * share, _EXPECTED * share, _HIGH * share, share,
    )  # fmt: skip


EVALUATION_GRADIENTS = Cause(
    name="evaluation_with_gradients",
    title="evaluation or inference records gradients that nobody uses (torch.no_grad)",
    words=("torch.no_grad", "inference_mode", "validation out of memory", "eval() no_grad"),
    find=_find,
    verified_by="inference_mode",
    remedy="with torch.no_grad(): or torch.inference_mode() around it: "
    "model.eval() alone does not do it",
    warns=True,
)
