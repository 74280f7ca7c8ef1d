"""The number of intra-op threads on a CPU: all processors, or one for steps of small ops."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.edits import AfterImports, FirstArgument
from gobrrr.fixes.fix import (
    THREADS,
    UNBOUNDED,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.programs import Setting, with_setting
from gobrrr.fixes.scripts import attribute
from gobrrr.measure.load import usable_processors
from gobrrr.timeline.quantities import count, time_text
from gobrrr.timeline.workload import Workload

# Share of the ideal that more threads reach on matrix products and large elementwise ops:
# 2 threads against 1 on Zen 4, torch 2.13: 1.95x and 1.3x (memory) to 1.9x (cache).
_MATRIX, _MEMORY = 0.95, 0.5
# How many processors there are, as a script says it; macOS tells nobody which of them it may use.
PROCESSORS = (
    "len(os.sched_getaffinity(0))" if hasattr(os, "sched_getaffinity") else "(os.cpu_count() or 1)"
)


def _consider_all(facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("the step runs on a GPU")
    if facts.threads > facts.processors:
        shared_s, most_s = taking_turns_s(facts, facts.threads)
        return prospect_or_not(
            facts, 0.0, 0.5 * most_s, most_s,
            f"torch's {facts.threads} threads take turns on {facts.processors} processors in "
            f"{time_text(shared_s)} of kernels",
        )  # fmt: skip
    if facts.threads == facts.processors:
        return RuledOut(f"all {facts.processors} processors are in use already")
    more = facts.processors / facts.threads
    compute_s = facts.leaf_s("compute")
    memory_s = facts.leaf_s("memory.device", "memory.page_faults", "memory.unmodelled")
    saved_s = compute_s * _MATRIX * (1 - 1 / more) + memory_s * _MEMORY * (1 - 1 / more)
    ideal_s = (compute_s + memory_s) * (1 - 1 / more)
    return prospect_or_not(
        facts, 0.4 * saved_s, saved_s, ideal_s,
        f"torch uses {facts.threads} of {facts.processors} processors; "
        f"{time_text(compute_s)} of compute and {time_text(memory_s)} of memory time can be "
        "spread over all of them",
    )  # fmt: skip


def taking_turns_s(facts: Facts, threads: int) -> tuple[float, float]:
    """Seconds of kernels that threads in excess of the processors share, and the most they lose.

    An op ends with the last of its threads, which waits for the turns of the others.
    """
    shared_s = facts.leaf_s("compute", "memory.device", "memory.page_faults", "unmodelled")
    return shared_s, shared_s * (1 - facts.processors / threads)


def _consider_one(facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("the step runs on a GPU")
    if facts.threads == 1:
        return RuledOut("one thread is in use already")
    workers = max((loader.workers for loader in facts.loaders), default=0)
    if facts.threads + workers > facts.processors > 1 and workers:
        return _crowded(facts, workers)
    fork_s = facts.rate("parallel.fork_join")
    if fork_s is None:
        return RuledOut("the cost of starting threads is unknown on this machine")
    # torch spreads elementwise ops over threads from 32768 elements on (at::internal::GRAIN_SIZE),
    # library calls from far fewer.
    shared = [op for op in facts.ops if op.kernel_s > 0 and op.kernel_s > 2 * fork_s]
    small = [op for op in facts.ops if 0 < op.kernel_s <= 8 * fork_s]
    slower_s = sum(op.kernel_s for op in shared if op.kernel_s > 8 * fork_s) * 0.5
    saved_s = fork_s * sum(op.count for op in small) - slower_s
    return prospect_or_not(
        facts, -slower_s, saved_s, fork_s * sum(op.count for op in small),
        f"{count(sum(op.count for op in small))} ops are so small that starting threads "
        f"({time_text(fork_s)}) is not worth it; larger ones would take {time_text(slower_s)} "
        "longer",
    )  # fmt: skip


def _crowded(facts: Facts, workers: int) -> Considered:
    """Threads that share each op with others wait for the last, which waits for a processor."""
    shared_s = facts.leaf_s("compute", "memory.device", "memory.page_faults")
    # Of what the threads have in common, the part that loader workers hold a processor for. How
    # long they do is unknown: between nothing and always.
    held = min(workers / facts.processors, 1.0)
    return prospect_or_not(
        facts, -0.5 * shared_s, 0.5 * held * shared_s, held * shared_s,
        f"torch's {facts.threads} threads and {workers} loader workers share {facts.processors} "
        f"processors, and an op ends with its slowest thread: workers can delay "
        f"{time_text(shared_s)} of kernels per step",
    )  # fmt: skip


def _threads(name: str, wanted: Callable[[], int]) -> Setting:
    @contextmanager
    def setting() -> Iterator[None]:
        import torch

        before = torch.get_num_threads()
        changed(name, before != wanted())
        torch.set_num_threads(wanted())
        try:
            yield
        finally:
            torch.set_num_threads(before)

    return setting


def _in_script(name: str, wanted: Callable[[], int]) -> Setting:
    """The setting, whatever number the script itself sets."""
    setting = _threads(name, wanted)

    @contextmanager
    def held() -> Iterator[None]:
        import torch

        process, original = os.getpid(), torch.set_num_threads

        def set_num_threads(number: int) -> None:
            # Loader workers, which are forked from here, have one thread each.
            if os.getpid() != process:
                original(number)
                return
            changed(name, number != wanted())
            original(wanted())

        with setting(), attribute(torch, "set_num_threads", set_num_threads):
            yield

    return held


def _fix(name: str, title: str, consider: Callable[[Facts], Considered], wanted: Callable[[], int],
         *lines: str) -> Fix:  # fmt: skip
    setting = _threads(name, wanted)
    number = lines[-1].removeprefix("torch.set_num_threads(").removesuffix(")")

    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        yield with_setting(work, setting)

    return Fix(
        name=name, title=title,
        leaves=("compute.matrix.below", "compute.vector.below", "memory.device.below",
                "overhead.dispatch"),
        may_change=("numerics",), consider=consider, snippet=lines[-1], apply=apply,
        in_script=_in_script(name, wanted), effect=UNBOUNDED, claims=(THREADS,),
        changes_made=changes_of(name),
        in_source=(AfterImports(lines), FirstArgument(("set_num_threads",), number, "torch")),
    )  # fmt: skip


ALL_THREADS = _fix(
    "all_threads", "Use all processors for each op", _consider_all, usable_processors,
    "import os", f"torch.set_num_threads({PROCESSORS})",
)  # fmt: skip
ONE_THREAD = _fix(
    "one_thread", "Use one thread: ops are too small to parallelise", _consider_one, lambda: 1,
    "torch.set_num_threads(1)",
)  # fmt: skip
