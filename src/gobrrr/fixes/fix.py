"""A fix: when it applies, what it will save, how to apply it, what it may change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from gobrrr.diagnosis.facts import LEAST_SAVING, Facts
from gobrrr.fixes.edits import Edit
from gobrrr.fixes.spread import interval_of
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload

# Kernels of unknown work that are more than this share of the step decide what a fix saves of it.
_MOST_UNKNOWN = 0.5
# Leaves whose rates are looked for on a GPU (``True``) and on a processor.
_STARTS_ON = {
    True: ("memory.device", "overhead.launch"),
    False: ("memory.device", "memory.page_faults"),
}
# What a fix may change besides time.
NUMERICS, MEMORY, FIRST_STEP, RANDOMNESS = "numerics", "memory", "first step", "randomness"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a fix will save, in seconds per step (negative: it will cost), and why.

    ``because`` is the arithmetic as one sentence; ``sources`` are lines of the user's program.
    ``by_hand``: why gobrrr cannot make the change in this program; empty: it can. ``own_ends``:
    low and high rest on what was measured on this kind of device, or in this very step, so that
    how far other devices' trials lay off widens them by nothing.
    """

    low_s: float
    expected_s: float
    high_s: float
    because: str
    sources: tuple[str, ...] = ()
    by_hand: str = ""
    own_ends: bool = False


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Why a fix is not tried."""

    reason: str


Considered: TypeAlias = "Prospect | RuledOut"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fix leaves of a step's work, and so how short the step can honestly become.

    Attributes:
        fuses: neighbouring ops become one kernel, in which each value moves once.
        bytes_left: share of today's bytes that ops still move (16 bits for 32: 0.5).
        matrix_dtype: what float32 matrix products are computed in; empty: in float32.
        drops: whether it could leave work out; not where the very same ops run as before, with
            another allocator or other processes beside them. Then a step that is shorter than its
            roofs says that a roof is too high.
        bounded: whether the step's work as it is bounds the changed step at all. Not where the fix
            takes work away and says so, nor where the ceilings are other ones afterwards.
    """

    fuses: bool = False
    bytes_left: float = 1.0
    matrix_dtype: str = ""
    drops: bool = True
    bounded: bool = True


SAME_WORK, SAME_OPS, UNBOUNDED = Effect(), Effect(drops=False), Effect(bounded=False)
# What only one fix at a time can decide (``Fix.claims``).
CODE, KEPT_ACTIVATIONS, PRECISION, WEIGHTS, THREADS, ALLOCATOR, OPTIMIZER = (
    "code", "kept activations", "precision", "weights", "threads", "allocator", "optimizer",
)  # fmt: skip


@dataclass(frozen=True)
class Fix:
    """One change that a user can make.

    Attributes:
        name: what ``--only`` and reports call it.
        title: one line.
        leaves: the leaves of the accounting that it takes time from.
        may_change: of ``numerics``, ``memory``, ``first step``, ``randomness``.
        consider: what it will save, or why it is ruled out.
        snippet: the change as a user would write it.
        apply: entering yields the changed workload (which may share everything with the one given:
            the caller gives a private deep copy); leaving undoes every global setting. ``None``:
            advice, or a change of the process's environment alone.
        in_script: installed in a fresh process before an unmodified script runs.
        environment: variables that must be set when the process starts.
        in_source: the change that ``in_script`` makes, written into a script; empty: it has no
            place that can be told for sure.
        objects: how many objects of a script it changes, each of them made by a call of its own;
            ``None``: the diagnosis does not count them.
        changes_made: a count, in this process, of what the fix has changed so far; a trial in which
            it does not grow had no effect. ``None``: nothing tells.
        effect: what it leaves of the work; ``SAME_WORK``: the same ops on the same bytes.
        claims: what it decides of which a program has one (``CODE``, ``PRECISION``, ...): of two
            fixes that claim the same one alone can be applied.
        only_if_asked: why it is not tried unless it is asked for by name; empty: it is.
        variant_of: a fix that is tried first: where that one fails, so will this one.
        family: under which several settings of one change are asked for together, and their
            trials set beside each other; they are tried whatever their time.
        setting: which of its family's settings it is.
        changes_step: the step afterwards is another one (a larger batch), which no other fix
            compares with.
        changes_optimizer: it needs the optimizer: without one there is nothing that it changes.
        judged_with: the class of fixes whose trials say how far predictions like its own lie from
            what is measured (``spread``); empty: none do, and its interval is the widest.
        precision: what it computes in instead of the program's own type; empty: it keeps that.
            Such a change is tried and shown apart, and is in the best set only if it is allowed.
    """

    name: str
    title: str
    leaves: tuple[str, ...]
    may_change: tuple[str, ...]
    consider: Callable[[Facts], Considered]
    snippet: str = ""
    apply: Callable[[Workload], AbstractContextManager[Workload]] | None = None
    in_script: Callable[[], AbstractContextManager[None]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    in_source: tuple[Edit, ...] = ()
    objects: Callable[[Facts], int] | None = None
    changes_made: Callable[[], float] | None = None
    effect: Effect = SAME_WORK
    claims: tuple[str, ...] = ()
    only_if_asked: str = ""
    variant_of: str = ""
    family: str = ""
    setting: float | None = None
    changes_step: bool = False
    changes_optimizer: bool = False
    precision: str = ""
    judged_with: str = ""

    @property
    def can_be_applied(self) -> bool:
        """Whether gobrrr can make the change itself; otherwise it is advice."""
        return self.apply is not None or self.in_script is not None or bool(self.environment)

    def considered(self, facts: Facts, asked: Collection[str] = ()) -> Considered:
        """``consider``, with the interval that trials support.

        Ruled out where it is off and neither its name nor its family was asked for.
        """
        wanted = self.name in asked or (bool(self.family) and self.family in asked)
        if self.only_if_asked and not wanted:
            name = self.family or self.name
            return RuledOut(f"{self.only_if_asked}: off unless asked for (--only {name})")
        found = self.consider(facts)
        unknown_s, unknown = self._not_counted(facts)
        if isinstance(found, RuledOut):
            return RuledOut(f"{found.reason}{unknown}")
        low_s, high_s = interval_of(
            self.judged_with, facts, found.low_s, found.expected_s, found.high_s,
            facts.leaf_s(*self.leaves), own_ends=found.own_ends,
        )  # fmt: skip
        high_s = max(high_s, min(high_s + unknown_s, facts.step_s))
        if unknown_s > _MOST_UNKNOWN * facts.step_s:
            low_s = min(low_s, high_s - facts.step_s)
        return replace(found, low_s=low_s, high_s=high_s, because=f"{found.because}{unknown}")

    def _not_counted(self, facts: Facts) -> tuple[float, str]:
        """Seconds of kernels of unknown work that it may save too, and what its sum leaves out."""
        unknown_s, missing = 0.0, []
        if any(leaf.startswith(("compute.", "memory.device")) for leaf in self.leaves):
            unknown_s = facts.leaf_s("unmodelled", "compute.unmodelled", "memory.unmodelled")
            if unknown_s >= LEAST_SAVING * facts.step_s:
                missing.append(f"{time_text(unknown_s)} of kernels whose work is unknown")
        missing += [
            words
            for start, known, words in (
                ("memory.device", facts.dram_bytes_per_s, "traffic at an unknown bandwidth"),
                ("memory.page_faults", facts.rate("page_fault"), "page faults of unknown cost"),
                ("overhead.launch", facts.rate("launch.latency"), "a launch, of unknown latency"),
            )
            if known is None
            and start in _STARTS_ON[facts.on_gpu]
            and facts.leaf_s(start) > 0
            and any(leaf.startswith(start) for leaf in self.leaves)
        ]
        return unknown_s, f"; not counted: {', '.join(missing)}" if missing else ""

    def excludes(self, other: Fix) -> bool:
        """Whether the two decide the same thing."""
        return not set(self.claims).isdisjoint(other.claims)


def prospect_or_not(
    facts: Facts,
    low_s: float,
    expected_s: float,
    high_s: float,
    because: str,
    sources: tuple[str, ...] = (),
    by_hand: str = "",
    own_ends: bool = False,
) -> Considered:
    """A prospect, or ``RuledOut`` when even the high estimate is under ``LEAST_SAVING``."""
    if high_s < LEAST_SAVING * facts.step_s:
        return RuledOut(
            f"could save at most {time_text(max(high_s, 0.0))} of "
            f"{time_text(facts.step_s)} per step ({because})"
        )
    low_s, expected_s = min(low_s, expected_s), max(min(expected_s, high_s), low_s)
    high_s = max(high_s, expected_s)
    return Prospect(low_s, expected_s, high_s, because, sources, by_hand, own_ends)


def too_little(facts: Facts, *leaves: str) -> RuledOut | None:
    """``RuledOut`` when these leaves together hold less than ``LEAST_SAVING`` of the step."""
    held_s = facts.leaf_s(*leaves)
    if held_s >= LEAST_SAVING * facts.step_s:
        return None
    *first, last = dict.fromkeys(_in_words(leaf) for leaf in leaves)
    what = f"{', '.join(first)} and {last}" if first else last
    if held_s <= 0:
        return RuledOut(f"none of the step is {what}")
    return RuledOut(f"only {percent(held_s / facts.step_s, 1)} of the step is {what}")


def _in_words(leaf: str) -> str:
    """A leaf, or the leaves that begin so: ``"data loading"`` of ``overhead.data_loading``."""
    for start, words in _LEAF_WORDS.items():
        if leaf.startswith(start):
            return words
    return leaf.rpartition(".")[2].replace("_", " ")


_LEAF_WORDS = {
    "compute.matrix": "matrix products",
    "memory.device": "memory traffic",
    "memory.copies": "copies between host and device",
    "overhead.python": "Python",
    "overhead.launch": "kernel launches",
    "overhead.kernel_gap": "gaps between queued kernels",
}
