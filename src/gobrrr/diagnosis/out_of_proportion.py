"""Kinds of ops whose time is out of proportion to what they do: a finding of its own for each.

Drawing random numbers, evaluating transcendental functions, sorting, fetching by index and loops
that compute one value at a time take a time that neither FLOPs nor bytes tell of. What ops of such
a kind take is in the attribution; without them the step is that much shorter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gobrrr.attribution.attributed import AttributedOp
from gobrrr.attribution.leaves import BELOW_LEAF, COLLECTIVE, ROOF_LEAF, KernelShares
from gobrrr.diagnosis.fix_schema import Finding, Prediction
from gobrrr.timeline.data import Phase
from gobrrr.timeline.names import op_name
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.timeline.quantities import multiple, percent, time_text
from gobrrr.work.formulas.random_numbers import DRAWS
from gobrrr.work.traffic import is_inplace
from gobrrr.work.traits import traits_of

# A kind is worth a line of its own from this share of the step.
LEAST_SHARE = 0.05
# So many times what its bytes take at the ceiling is out of proportion: element-wise loops reach
# half of the bandwidth and more.
LEAST_EXCESS = 3.0
# A loop so many times slower than its roof, in calls of at least this length (a shorter one's time
# is not told from its fixed cost), computes one value after the other.
SLOW_LOOP, LEAST_CALL_NS = 8.0, 20_000.0
MOST_SLOW_LOOPS = 3
_NAMED, _LINES = 4, 3
DROPOUT = "dropout"

KINDS = RANDOM, FUNCTIONS, SORTS, FETCHES, LOOPS = (
    "random_numbers", "transcendental_functions", "sorting", "gathering", "slow_loop",
)  # fmt: skip
# What makes a mask of what was drawn, or applies it: gone with it.
_COMPARES = frozenset(("lt", "le", "gt", "ge"))
_MASKING = _COMPARES | frozenset(
    ("mul", "mul_", "div", "div_", "where", "masked_fill", "masked_fill_", "_to_copy",
     "native_dropout_backward", "_masked_scale")
)  # fmt: skip
# ``dropout`` draws with the first on a processor, with the others on a GPU.
_DROPS = frozenset(("bernoulli_", "native_dropout", "_fused_dropout"))
_UNIFORM = frozenset(("rand", "rand_like", "uniform_"))
_POOLS_IMAGES = frozenset(("max_pool2d_with_indices", "max_pool2d", "avg_pool2d"))


@dataclass(frozen=True)
class Drawn:
    """What hangs on random numbers, by places of ops.

    ``masks``: ops that make or apply a mask of what was drawn and are there for nothing else, with
    the draws; ``dropping``: draws that decide what is dropped.
    """

    masks: Mapping[int, frozenset[int]]
    dropping: frozenset[int]


@dataclass(frozen=True)
class _Step:
    items: Sequence[AttributedOp]
    shares: KernelShares
    step_s: float
    on_cpu: bool
    drawn: Drawn

    def masks_of(self, draws: Sequence[int]) -> list[int]:
        """Ops with a kernel that would be gone without these draws."""
        known, dropping = frozenset(draws), self.drawn.dropping
        return [
            place
            for place, of in self.drawn.masks.items()
            # What drops data that was drawn too is there for dropping it.
            if (of & dropping or of) <= known and self.items[place].share >= 0
        ]

    def base(self, place: int) -> str:
        return _base(self.items[place].op.call)

    def owned_ns(self, place: int) -> float:
        return float(self.shares.owned_ns[self.items[place].share])

    def of_step(self, ns: float) -> str:
        return percent(ns * 1e-9 / self.step_s)


@dataclass(frozen=True)
class _Part:
    """Ops of one kind, and those that are there for them alone, by their places. Times in ns.

    ``own_ns`` is of the ops, ``beside_ns`` of those that go with them, ``host_ns`` of what leads to
    either; ``bytes_ns`` is what the ops' bytes take at the ceiling, ``roof_ns`` their roof.
    """

    own: tuple[int, ...]
    beside: tuple[int, ...]
    own_ns: float
    beside_ns: float
    host_ns: float
    bytes_ns: float
    roof_ns: float


def out_of_proportion(
    items: Sequence[AttributedOp], shares: KernelShares, step_s: float, *, on_cpu: bool
) -> list[Finding]:
    """Findings on kinds of ops, the most time first; empty where all is in proportion.

    Args:
        items: the step's ops, in order where that is known.
        shares: their kernels.
        step_s: seconds that the leaves sum to.
        on_cpu: the step ran on a processor, whose libraries differ in what they vectorise.
    """
    if step_s <= 0:
        return []
    step = _Step(items, shares, step_s, on_cpu, drawn_in(items))
    by_kind: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if item.share < 0 or int(shares.regime[item.share]) >= COLLECTIVE:
            continue
        kind = kind_of(item)
        # Loops have nothing in common: each is a finding; so is what is drawn for dropout.
        apart = step.base(place) if kind == LOOPS else ""
        by_kind[kind, DROPOUT if place in step.drawn.dropping else apart].append(place)
    found: list[tuple[float, Finding]] = []
    for (kind, _), places in by_kind.items():
        finding = _FINDERS[kind](step, _part(step, places, step.masks_of(places)))
        if finding is not None and finding.prediction is not None:
            found.append((finding.prediction.expected_s, finding))
    found.sort(key=lambda pair: -pair[0])
    loops = 0
    shown = []
    for _, finding in found:
        loops += finding.fix == LOOPS
        if finding.fix != LOOPS or loops <= MOST_SLOW_LOOPS:
            shown.append(finding)
    return shown


def kind_of(item: AttributedOp) -> str:
    """What an op's time goes to where neither FLOPs nor bytes decide; else a loop."""
    call, work = item.op.call, item.work
    if _base(call) in DRAWS:
        return RANDOM
    passes = traits_of(call.name).passes
    if passes in ("sort", "top_k"):
        return SORTS
    if passes == "gather":
        return FETCHES
    if work is not None and work.special > 0 and work.op_class == "elementwise":
        return FUNCTIONS
    return LOOPS


def drawn_in(items: Sequence[AttributedOp]) -> Drawn:
    """Which ops are there for random numbers alone, and which of these decide what is dropped.

    Storages carry the flow; where none were recorded (traces) only the draws themselves are known.
    """
    holds: dict[int, frozenset[int]] = {}
    masks: dict[int, frozenset[int]] = {}
    dropping: set[int] = set()
    for place, item in enumerate(items):
        call, base = item.op.call, _base(item.op.call)
        given = {spec.storage for spec in call.tensors if spec.storage is not None}
        made = _made(call)
        draws = frozenset(draw for storage in given for draw in holds.get(storage, ()))
        if base in DRAWS:
            dropping |= {place} if base in _DROPS else set()
            holds |= dict.fromkeys(made, frozenset((place,)))
        elif draws and base in _MASKING:
            masks[place] = draws
            if base in _COMPARES:
                dropping |= {draw for draw in draws if _base(items[draw].op.call) in _UNIFORM}
            # Of a mask alone another mask is made; with data in it, drawn or not, data.
            if given <= holds.keys() and (draws <= dropping or not draws & dropping):
                holds |= dict.fromkeys(made, draws)
            else:
                holds = {
                    storage: of for storage, of in holds.items() if storage not in made - given
                }
        elif made & holds.keys():
            # Memory that is used again holds something else.
            holds = {storage: of for storage, of in holds.items() if storage not in made}
    return Drawn(masks, frozenset(dropping))


def _base(call: OpCall) -> str:
    return call.name.rpartition("::")[2]


def _made(call: OpCall) -> set[int]:
    tensors: Iterable[TensorSpec] = call.outputs or (call.tensors[:1] if is_inplace(call) else ())
    return {spec.storage for spec in tensors if spec.storage is not None}


def _part(step: _Step, own: Sequence[int], beside: Sequence[int] = ()) -> _Part:
    shares = step.shares
    rows = np.array([step.items[place].share for place in own], np.int64)
    bytes_share = np.array([_bytes_share(step.items[place]) for place in own], np.float64)
    # A kernel that owns a part of its time has the same part of its roof.
    owned = np.divide(
        shares.owned_ns[rows], shares.duration_ns[rows], out=np.zeros(len(rows)),
        where=shares.duration_ns[rows] > 0,
    )  # fmt: skip
    roof_ns = np.nan_to_num(shares.full_roof_ns[rows]) * owned
    return _Part(
        own=tuple(own),
        beside=tuple(beside),
        own_ns=float(shares.owned_ns[rows].sum()),
        beside_ns=sum(step.owned_ns(place) for place in beside),
        host_ns=sum(step.items[place].host_ns for place in (*own, *beside)),
        bytes_ns=float((roof_ns * bytes_share).sum()),
        roof_ns=float(roof_ns.sum()),
    )


def _bytes_share(item: AttributedOp) -> float:
    """The share of its roof that the op's bytes take at their ceiling."""
    roof = item.roof
    return 0.0 if roof is None or roof.time_s <= 0 else roof.memory_s / roof.time_s


def _random(step: _Step, part: _Part) -> Finding | None:
    """What it takes to draw, and to make and apply masks of what was drawn."""
    all_ns = part.own_ns + part.beside_ns
    what, without, rest = "Random numbers take", "With numbers drawn beforehand, or none,", ""
    if step.drawn.dropping.issuperset(part.own):
        what = "Dropout's random numbers take"
        without = "Without dropout and its masks"
        rest = " A lower dropout rate draws as many numbers."
    how = "; a CPU draws them one after the other, whatever the dtype" if step.on_cpu else ""
    return _finding(
        step, part, RANDOM, f"{what} {step.of_step(part.own_ns)} of the step",
        (part.own_ns, all_ns, all_ns + part.host_ns),
        lambda left: f"{_names(step, part)} {_takes(step, part)}{how}. {without} the step would "
        f"take {left} the time.{rest}",
    )  # fmt: skip


def _functions(step: _Step, part: _Part) -> Finding | None:
    return _replaced(
        step, part, FUNCTIONS, "Transcendental functions",
        "A function of plain arithmetic in their place (ReLU is one), or fewer elements",
    )  # fmt: skip


def _sorts(step: _Step, part: _Part) -> Finding | None:
    return _replaced(
        step, part, SORTS, "Sorting and selecting",
        "Sorting fewer values (topk if only a few are needed, a threshold if no order is)",
    )  # fmt: skip


def _fetches(step: _Step, part: _Part) -> Finding | None:
    return _replaced(
        step, part, FETCHES, "Gathering by index",
        "Gathering longer rows, or a layout in which a slice suffices,",
    )  # fmt: skip


def _replaced(step: _Step, part: _Part, fix: str, what: str, instead: str) -> Finding | None:
    """What is saved where the same bytes move at the memory's rate, or at half of it."""
    if part.bytes_ns <= 0 or part.own_ns < LEAST_EXCESS * part.bytes_ns:
        return None
    excess = multiple(part.own_ns / part.bytes_ns, 0)
    verb = "takes" if what.endswith(("ing", "index")) else "take"
    return _finding(
        step, part, fix, f"{what} {verb} {step.of_step(part.own_ns)} of the step",
        (0.0, part.own_ns - 2 * part.bytes_ns, part.own_ns - part.bytes_ns),
        lambda left: f"{_names(step, part)} {_takes(step, part)}: {excess} what their bytes take "
        f"at the ceiling. {instead} could reduce the step to {left} its time.",
    )  # fmt: skip


def _loops(step: _Step, part: _Part) -> Finding | None:
    """One op whose calls are long and far below their roof."""
    slow = _part(step, [place for place in part.own if _is_slow_loop(step, place)])
    if not slow.own:
        return None
    call = step.items[slow.own[0]].op.call
    hint = "another kernel or layout"
    if step.on_cpu and _base(call) in _POOLS_IMAGES and _channels_first(call):
        hint = "the vectorised kernel that PyTorch has for channels-last"
    return _finding(
        step, slow, LOOPS, f"{op_name(call.name)} takes {step.of_step(slow.own_ns)} of the step",
        (0.0, slow.own_ns - 2 * slow.roof_ns, slow.own_ns - slow.roof_ns),
        lambda left: f"{_names(step, slow)} {_takes(step, slow)}, of which their work needs "
        f"{time_text(slow.roof_ns * 1e-9)} at the ceilings: {hint} could reduce the step to "
        f"{left} its time.",
    )  # fmt: skip


def _is_slow_loop(step: _Step, place: int) -> bool:
    item, shares = step.items[place], step.shares
    work, row = item.work, item.share
    if work is None or item.roof is None or work.op_class == "contraction" or item.roof.limit:
        return False
    if item.op.phase == Phase.OPTIMIZER:
        return False
    kernel_ns = float(shares.duration_ns[row] - shares.fixed_ns[row])
    roof_ns = float(shares.full_roof_ns[row])
    return kernel_ns > SLOW_LOOP * roof_ns and kernel_ns > LEAST_CALL_NS * max(item.count, 1.0)


def _channels_first(call: OpCall) -> bool:
    image = next(iter(call.tensors), None)
    return image is not None and len(image.shape) == 4 and image.is_contiguous


_FINDERS: dict[str, Callable[[_Step, _Part], Finding | None]] = {
    RANDOM: _random, FUNCTIONS: _functions, SORTS: _sorts, FETCHES: _fetches, LOOPS: _loops,
}  # fmt: skip


def _finding(
    step: _Step,
    part: _Part,
    fix: str,
    title: str,
    saved_ns: tuple[float, float, float],
    because: Callable[[str], str],
) -> Finding | None:
    low_s, expected_s, high_s = (max(ns, 0.0) * 1e-9 for ns in saved_ns)
    if expected_s < LEAST_SHARE * step.step_s:
        return None
    # Nothing saves the whole step.
    left_s = step.step_s - min(expected_s, 0.999 * step.step_s)
    return Finding(
        fix=fix,
        title=title,
        prediction=Prediction(
            low_s=low_s, expected_s=expected_s, high_s=high_s, speedup=step.step_s / left_s
        ),
        because=because(multiple(left_s / step.step_s)),
        sources=[line for line, _ in _lines(step, part)[:_LINES]],
        leaves=_leaves(step, part),
        advice=True,
    )


def _names(step: _Step, part: _Part) -> str:
    """``bernoulli_ ×12, rand``: the ops of a kind with their calls, in order of first use."""
    counts: dict[str, float] = {}
    for place in part.own:
        name = op_name(step.items[place].op.call.name)
        counts[name] = counts.get(name, 0.0) + step.items[place].count
    parts = [name if n < 1.5 else f"{name} ×{n:.0f}" for name, n in counts.items()]
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"{', '.join(parts[:_NAMED])}{more}"


def _takes(step: _Step, part: _Part) -> str:
    """``takes 4.1 ms, most of it at model.py:31 in forward``."""
    verb = "takes" if len({step.base(place) for place in part.own}) == 1 else "take"
    text = f"{verb} {time_text(part.own_ns * 1e-9)}"
    lines = _lines(step, part)
    if not lines:
        return text
    line, ns = lines[0]
    if len(lines) == 1:
        return f"{text} at {line}"
    how_much = "most" if ns > 0.5 * part.own_ns else percent(ns / part.own_ns)
    return f"{text}, {how_much} of it at {line}"


def _lines(step: _Step, part: _Part) -> list[tuple[str, float]]:
    """The lines of the program that the ops of a kind are at, with their ns, the most first."""
    spent: dict[str, float] = defaultdict(float)
    for place in part.own:
        if step.items[place].op.source:
            spent[step.items[place].op.source] += step.owned_ns(place)
    return sorted(spent.items(), key=lambda pair: -pair[1])


def _leaves(step: _Step, part: _Part) -> list[str]:
    """The leaves that hold the time of these ops, the most first."""
    held: dict[str, float] = defaultdict(float)
    for place in (*part.own, *part.beside):
        row = step.items[place].share
        regime = int(step.shares.regime[row])
        held[ROOF_LEAF[regime]] += float(step.shares.roof_ns[row])
        held[BELOW_LEAF[regime]] += float(step.shares.below_ns[row])
        held["memory.page_faults"] += float(step.shares.page_faults_ns[row])
    return [leaf for leaf in sorted(held, key=lambda name: -held[name]) if held[leaf] > 0]
