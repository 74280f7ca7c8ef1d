"""Values that an inner loop reads back one by one: ``.item()``, ``.cpu()``, ``if`` on a tensor."""

from __future__ import annotations

import re
from collections import defaultdict

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import noted, text_of
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.fixes.patterns.dataflow import cost_s
from gobrrr.timeline.names import FROM
from gobrrr.timeline.quantities import count, percent, time_text

# A step that reads its losses, or a few figures, reads no more at one line.
_FEWEST = 16
_READS = re.compile(r"\.(item|cpu|tolist|numpy)\s*\(|\.to\(\s*[\"']cpu|\b(float|int|bool)\s*\(")
_CONDITION = re.compile(r"^\s*(if|elif|while)\b|\bif\b.+\belse\b")
_COPIES = ("aten::_to_copy", "aten::copy_")
_TO_HOST = re.compile(r"\.(cpu|tolist|numpy)\s*\(")


def _reads(facts: Facts) -> dict[str, float]:
    """How often a step reads back at each line of the user's, where it is often."""
    values: dict[str, float] = defaultdict(float)
    others: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    for op in facts.ops:
        if not op.source or FROM in op.source or op.phase in ("optimizer", "backward"):
            # What an optimizer or a package reads is in no loop of the user's.
            continue
        if op.name == READ_OF_ONE_VALUE:
            values[op.source] += op.count
        elif not facts.on_gpu or op.name in _COPIES:
            # Reading a whole tensor leaves no op of its own on a processor. Each op that leads to
            # it tells how often that can be at the most: layers of a network run once each.
            others[op.source][op.name, op.module] += op.count
    found = {line: n for line, n in values.items() if n >= _FEWEST and _says(line)}
    for line, numbers in others.items():
        n = min(numbers.values())
        if n >= _FEWEST and _TO_HOST.search(text_of(line)):
            found[line] = max(n, found.get(line, 0.0))
    return found


def _says(line: str) -> bool:
    text = text_of(line)
    return bool(_READS.search(text) or _CONDITION.search(text))


def _find(facts: Facts) -> Found | None:
    reads = _reads(facts)
    if not reads:
        return None
    computing = {line for line in reads if _computes(facts, line)}
    spent: dict[str, float] = {line: _spent_s(facts, line, line in computing) for line in reads}
    lines = sorted(reads, key=lambda line: -spent[line])
    taken_s = sum(spent.values())
    looks = noted(facts, lambda note: note.line in reads and note.line not in computing)
    if looks is not None:
        taken_s = max(taken_s, looks.share * facts.step_s / max(facts.steps_share, 1e-9))
    # Else the host waits for kernels that have to run.
    most_s = facts.leaf_s("overhead", "memory.copies") if facts.on_gpu else facts.step_s
    taken_s = min(taken_s, most_s)
    often = sum(reads.values())
    saved_s = taken_s * (1 - len(reads) / often)
    waits = "waits for the device, and " if facts.on_gpu else ""
    return saves(
        f"{count(round(often))} values are read back one by one in a step (item(), cpu(), if "
        "on a tensor, in a loop)",
        tuple(lines[:3]), 0.5 * saved_s, 0.85 * saved_s, saved_s,
        f"each {waits}takes {time_text(taken_s / often)}, {time_text(taken_s)} of the step "
        f"({percent(taken_s / facts.step_s)})",
    )  # fmt: skip


def _computes(facts: Facts, line: str) -> bool:
    """Whether a line runs more than the reads and what leads to them: modules, long kernels."""
    ops = [op for op in facts.ops if op.source == line]
    reads = _reads_of(ops)
    inside = {op.module for op in reads} or {min(op.module for op in ops)}
    known = set(map(id, reads))
    others = [op for op in ops if id(op) not in known]
    return any(op.module not in inside for op in others) or any(
        op.kernel_s > op.fixed_s + op.host_s for op in others
    )


def _reads_of(ops: list[OpFact]) -> list[OpFact]:
    """The reads of a line, but not the casts of a module that it calls."""
    values = [op for op in ops if op.name == READ_OF_ONE_VALUE]
    outermost = min(op.module for op in ops)
    return values + [op for op in ops if op.name in _COPIES and op.module == outermost]


def _spent_s(facts: Facts, line: str, computing: bool) -> float:
    ops: list[OpFact] = [op for op in facts.ops if op.source == line]
    if computing:
        # Its overhead is that of the computation as well.
        return sum(map(cost_s, _reads_of(ops)))
    idle_s = sum(idle.time_s for idle in facts.idle if idle.source == line)
    # The way to an op is overhead of its line as well, and counts once.
    return max(sum(map(cost_s, ops)), idle_s)


SYNC_IN_LOOP = Cause(
    name="sync_in_loop",
    title="values are read back one by one in an inner loop (.item(), .cpu(), if on a tensor)",
    words=(".item() in loop", ".cpu() in loop", "read back", "host device synchronization",
           "tolist"),
    find=_find,
    remedy="compute with whole tensors (sums, bincount, argmax(-1), torch.where in place of if) "
    "and read the result once, outside the loop; draw with Python's random what only decides an if",
)  # fmt: skip
