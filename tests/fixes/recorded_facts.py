"""Facts of steps that run here, recorded op by op; their times are round numbers."""

from dataclasses import replace

from fixes.facts import CEILINGS
from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.gathering.gather import fixed_storages
from gobrrr.fixes.gathering.kept_tensors import with_kept_tensors
from gobrrr.live.kinds.repeated_ops import with_varying
from gobrrr.live.measurements import RecordedStep
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.data import PHASE_NAMES

BY_NAME = {fix.name: fix for fix in FIXES}
EACH_S = 1e-3
_VIEWS = ("aten::view", "aten::t", "aten::transpose", "aten::slice", "aten::select",
          "aten::unbind", "aten::expand", "aten::unsqueeze", "aten::squeeze", "aten::permute",
          "aten::_unsafe_view", "aten::detach", "aten::alias", "aten::split")  # fmt: skip


def facts_of(step, module=None, **more):
    """The step's facts, each op but views of a millisecond and one of overhead."""
    step()
    recorded = []
    for window in range(2):
        with OpRecorder() as recorder:
            step()
        recorded.append(RecordedStep(recorder.ops, window))
    ops = tuple(
        OpFact(op.call, kernel_s=0.0 if op.call.name in _VIEWS else EACH_S, host_s=EACH_S,
               module=op.module, source=op.source, phase=PHASE_NAMES[op.phase], varies=op.varies,
               grows=op.grows)
        for op in with_varying(recorded[0], recorded[1:])
    )  # fmt: skip
    facts = Facts(
        step_s=2 * EACH_S * len(ops), leaves=dict.fromkeys(LEAVES, 0.0), ops=ops,
        ceilings=CEILINGS, fixed_storages=fixed_storages(module),
    )  # fmt: skip
    return replace(with_kept_tensors(facts, step), **more)


def names(facts, places):
    return [facts.ops[place].name.removeprefix("aten::") for place in sorted(places)]


def considered(name, facts):
    return BY_NAME[name].considered(facts)
