"""Threads that an op is spread over: more than processors, or one because a launcher says so."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import lines_saying
from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.fix import Prospect
from gobrrr.fixes.threads import ALL_THREADS, taking_turns_s
from gobrrr.timeline.quantities import count, percent, time_text

# Of the step, what all processors save where it is nobody's default that one is used.
_MUCH = 0.4


def _ranks_here(facts: Facts) -> int:
    """Processes of a job that share the processors, by what a launcher says."""
    program = facts.program
    if program is None or program.flags.get("pinned"):
        # Its processors are its own.
        return 1
    number = program.environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(number)) if number.isdigit() else 1


def _too_many(facts: Facts) -> Found | None:
    ranks = _ranks_here(facts)
    threads = facts.threads * ranks
    if facts.on_gpu or threads <= facts.processors or facts.threads < 2:
        return None
    shared_s, high_s = taking_turns_s(facts, threads)
    each = f" in each of {count(ranks)} processes" if ranks > 1 else ""
    return saves(
        f"torch spreads ops over {count(facts.threads)} threads{each}, on {facts.processors} "
        f"processors",
        lines_saying(facts, "set_num_threads(")[:3], 0.0, 0.5 * high_s, high_s,
        f"they wait for each other's turn in {time_text(shared_s)} of kernels "
        f"({percent(shared_s / facts.step_s)} of the step)",
    )  # fmt: skip


def _one_by_launcher(facts: Facts) -> Found | None:
    said = {} if facts.program is None else facts.program.environment
    free = facts.processors // _ranks_here(facts)
    if said.get("OMP_NUM_THREADS") != "1" or facts.threads != 1 or free < 2:
        return None
    found = ALL_THREADS.considered(facts)
    if not isinstance(found, Prospect):
        return None
    launched = "TORCHELASTIC_RUN_ID" in said
    if not launched and found.expected_s < _MUCH * facts.step_s:
        # Who sets it for a program that has little to share means it.
        return None
    return saves(
        f"{'the launcher' if launched else 'the environment'} has set OMP_NUM_THREADS=1; each "
        f"process could use {free} of "
        f"{facts.processors} processors",
        (), 0.0, found.expected_s, found.high_s, found.because,
    )  # fmt: skip


MORE_THREADS = Cause(
    name="more_threads_than_cores",
    title="more threads than processors (oversubscription, torch.set_num_threads)",
    words=("oversubscription", "OMP_NUM_THREADS", "torch.set_num_threads", "CPU slow in container"),
    find=_too_many,
    remedy="torch.set_num_threads(len(os.sched_getaffinity(0))), divided by the processes",
    verified_by="all_threads",
    warns=True,
)
ONE_THREAD_BY_LAUNCHER = Cause(
    name="one_thread_by_launcher",
    title="one thread for each process is set from outside (OMP_NUM_THREADS=1)",
    words=("OMP_NUM_THREADS", "torchrun OMP_NUM_THREADS=1", "torch.get_num_threads 1"),
    find=_one_by_launcher,
    remedy="OMP_NUM_THREADS=N before the command, N the processors of a process",
    verified_by="all_threads",
)
