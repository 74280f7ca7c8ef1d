"""How many ranks of a job one machine can start at all, so that a slip of the keyboard starts none.

More ranks than processors or devices are no slip: jobs are tried out so on a small machine.
"""

from __future__ import annotations

from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import si

# Private memory of a process that has imported PyTorch and done nothing: 142 MB with 2.13 for CPUs,
# more with CUDA. Less than any version takes, since this refuses what cannot be.
RANK_BYTES = 100e6
# Importing PyTorch takes a processor about 1.5 s: at this many ranks for each of them it takes all
# of them over a minute, in which the first ones already wait for the last.
MOST_PER_PROCESSOR = 64


def refuse_too_many_ranks(ranks: int, *, processors: int, memory_bytes: float | None) -> None:
    """Whether a machine could start so many.

    Args:
        ranks: asked for.
        processors: that they may use.
        memory_bytes: that they share; ``None``: unknown.

    Raises:
        InputError: it could not; says how many it can, and what limits it.
    """
    most = MOST_PER_PROCESSOR * processors
    limit = f"{MOST_PER_PROCESSOR} for each of its {processors} processors"
    if processors == 1:
        limit = "with its one processor"
    if memory_bytes is not None and memory_bytes < most * RANK_BYTES:
        most = max(int(memory_bytes / RANK_BYTES), 1)
        limit = f"{si(RANK_BYTES, 'B')} for each in its {si(memory_bytes, 'B')} of memory"
    if ranks > most:
        raise InputError(
            f"{ranks:,} processes are more than this machine can start: at most {most:,} "
            f"({limit}); give a smaller --nproc-per-node"
        )
