"""Weight and spectral norm in inference: the weight is computed once, not before each call."""

from __future__ import annotations

from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, lines_of
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.fix import MEMORY, UNBOUNDED, WEIGHTS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import cost_s, flow_of
from gobrrr.fixes.programs import model_by_hand, with_model_changed
from gobrrr.fixes.scripts import before_first_call
from gobrrr.timeline.quantities import time_text


def parametrized(module: Any) -> int:
    """Parts of a module whose weight is computed from other tensors before each call."""
    if module is None:
        return 0
    from torch.nn.utils import parametrize

    return sum(parametrize.is_parametrized(part) or bool(_hooks(part)) for part in module.modules())


def _hooks(part: Any) -> list[Any]:
    """The hooks of ``torch.nn.utils.weight_norm`` and ``spectral_norm``, as they once were."""
    from torch.nn.utils.spectral_norm import SpectralNorm
    from torch.nn.utils.weight_norm import WeightNorm

    return [
        hook for hook in part._forward_pre_hooks.values()
        if isinstance(hook, (SpectralNorm, WeightNorm))
    ]  # fmt: skip


def fix_weights(module: Any) -> None:
    """Keep each computed weight as it is now, and compute it no more. In evaluation only."""
    from torch.nn.utils import parametrize
    from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
    from torch.nn.utils.weight_norm import remove_weight_norm

    if module.training:
        return
    for part in module.modules():
        if parametrize.is_parametrized(part):
            _unparametrize(part)
        for hook in _hooks(part):
            remove = remove_spectral_norm if isinstance(hook, SpectralNorm) else remove_weight_norm
            remove(part, hook.name)
            changed("fixed_parametrizations")


def _unparametrize(part: Any) -> None:
    """As ``remove_parametrizations`` does, which changes a class that copies of a module share."""
    import torch
    from torch.nn.utils import parametrize

    with torch.no_grad():
        values = {name: getattr(part, name).clone() for name in part.parametrizations}
    part.__class__ = parametrize.type_before_parametrizations(part)
    del part._modules["parametrizations"]
    for name, value in values.items():
        part.register_parameter(name, torch.nn.Parameter(value))
        changed("fixed_parametrizations")


def _consider(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("trained weights have to be recomputed at each step")
    if facts.parameters is None:
        return RuledOut("gobrrr sees no module in this step: give (module, inputs)")
    if not facts.parametrized:
        return RuledOut("no module recomputes a parametrized weight at each call")
    flow = flow_of(facts)
    if flow is None:
        return RuledOut("the order of the step's ops is unknown")
    # Views among them cost Python and dispatch too.
    constant = [facts.ops[place] for place in sorted(flow.constant)]
    saved_s = sum(map(cost_s, constant))
    return prospect_or_not(
        facts, 0.7 * saved_s, 1.02 * saved_s, 1.2 * saved_s,
        f"{facts.parametrized} modules recompute their weight at each call, although nothing "
        f"trains: {time_text(saved_s)}",
        lines_of(constant), model_by_hand(facts),
    )  # fmt: skip


FIXED_PARAMETRIZATIONS = Fix(
    name="fixed_parametrizations",
    title="Parametrized weights computed once in inference",
    leaves=("memory.device.roof", "memory.device.below", "overhead.python", "overhead.dispatch"),
    may_change=(MEMORY,),
    consider=_consider,
    snippet=(
        "model.eval()\nfor part in model.modules():\n"
        "    if torch.nn.utils.parametrize.is_parametrized(part):\n"
        '        torch.nn.utils.parametrize.remove_parametrizations(part, "weight")'
    ),
    apply=partial(with_model_changed, fix_weights),
    in_script=partial(before_first_call, fix_weights),
    changes_made=changes_of("fixed_parametrizations"),
    effect=UNBOUNDED,
    claims=(WEIGHTS,),
)
