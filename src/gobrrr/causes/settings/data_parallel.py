"""Gradients that ranks average more often than they need, and parameters that are looked for."""

from __future__ import annotations

import re
from collections import Counter

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import goes_back, noted
from gobrrr.causes.source_text import lines_with
from gobrrr.causes.updates import passes_of
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import count, percent, si, time_text

_FINDS = re.compile(r"find_unused_parameters\s*=\s*True")
# Bytes: up to here an all-reduce takes as long as one of nothing, about (gloo and NCCL).
_SMALL_BUCKET = 1 << 20
_INNER = "torch.nn.parallel.distributed"


def _no_sync(facts: Facts) -> Found | None:
    program = facts.program
    if program is None or not program.data_parallel or not program.windows:
        return None
    # Of each module: a generator and a discriminator have a backward pass each.
    calls: Counter[int] = Counter()
    for call in program.calls:
        if call.module == "DistributedDataParallel" and call.gradients and call.synced:
            calls[call.index] += call.count
    ((index, most),) = calls.most_common(1) or [(0, 0)]
    backwards = max(map(len, passes_of(facts)), default=0)
    times = min(round(most / program.windows), backwards)
    exposed_s = facts.leaf_s("memory.network", "memory.network_wait")
    if times < 2 or exposed_s <= 0:
        return None
    wraps = program.data_parallel
    moved = next((w for w in wraps if w.index == index), wraps[0]).parameter_bytes
    fewer = (times - 1) / times
    # For a rank that is slow the others wait at the last average as well.
    expected_s, saved_s = facts.leaf_s("memory.network") * fewer, exposed_s * fewer
    return saves(
        f"each of {count(times)} backward passes before an update averages all gradients "
        f"({si(moved, 'B')}) over the ranks, where the last alone need do it: "
        f"{time_text(exposed_s)} of the step is communication that nothing hides "
        f"({percent(exposed_s / facts.step_s)}), and {times - 1} of {times} parts of it are saved",
        _lines_of_backward(facts), 0.5 * expected_s, 0.9 * expected_s, saved_s,
    )  # fmt: skip


def _lines_of_backward(facts: Facts) -> tuple[str, ...]:
    program = facts.program
    noted_lines = [] if program is None else [note.line for note in program.notes]
    idle_lines = [idle.source for idle in facts.idle if idle.source]
    found = [line for line in (*noted_lines, *idle_lines) if goes_back(line)]
    return tuple(dict.fromkeys(found))[:3]


def _unused(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    # Where some are without a gradient, it has to look for them.
    wraps = [one for one in program.data_parallel if one.find_unused and one.unused_bytes == 0]
    if not wraps:
        return None
    looks = noted(facts, lambda note: note.inner == _INNER)
    walks_s = 0.0 if looks is None else looks.share * program.plain_s / max(1, program.windows)
    wrap = wraps[0]
    # Which parameters were used is averaged like one more bucket, of a few bytes: where buckets
    # are small, and all wait for the link alone, it takes as long as one.
    small = wrap.parameter_bytes / wrap.buckets <= _SMALL_BUCKET
    network_s = facts.leaf_s("memory.network", "memory.network_wait") if small else 0.0
    one_more_s = network_s / (wrap.buckets + 1)
    high_s = min(walks_s + one_more_s, facts.step_s)
    if high_s <= 0:
        return None
    expected_s = 0.7 * walks_s
    if wrap.syncs_buffers:
        # The same file waits for buffers that are sent around, which is no time of Python's.
        expected_s = min(expected_s, facts.leaf_s("overhead.python"))
    return saves(
        f"DistributedDataParallel walks the graph of {wrap.module} in each step for parameters "
        f"without a gradient, and there are none ({time_text(walks_s)}); the ranks then tell each "
        f"other which were used, beside {count(wrap.buckets)} buckets of gradients "
        f"({time_text(one_more_s)} at most)",
        lines_with(_FINDS, (note.line for note in program.notes)),
        0.0, expected_s + 0.5 * one_more_s, high_s,
    )  # fmt: skip


NO_SYNC = Cause(
    name="no_sync",
    title="gradients are averaged over ranks after every micro-batch (no_sync under accumulation)",
    words=("no_sync", "gradient accumulation", "all-reduce", "DistributedDataParallel slow",
           "set_requires_gradient_sync"),
    find=_no_sync,
    remedy="with model.no_sync(): around the forward and backward passes of all micro-batches but "
    "the last (accelerator.accumulate; set_requires_gradient_sync(False) of fully_shard)",
)  # fmt: skip
FIND_UNUSED_PARAMETERS = Cause(
    name="find_unused_parameters",
    title="each step looks for unused parameters that do not exist (find_unused_parameters)",
    words=("find_unused_parameters", "extra traversal of the autograd graph", "static_graph"),
    find=_unused,
    remedy="DistributedDataParallel(model) without find_unused_parameters=True",
)
