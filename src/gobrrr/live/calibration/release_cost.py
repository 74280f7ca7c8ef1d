"""What giving fresh memory back to the system costs."""

from __future__ import annotations

import time

from gobrrr.measure.process_counters import minor_faults

BYTES = 64 * 2**20


def measure_release_ns_per_fault(repeats: int = 3) -> float:
    """Time to free a large touched tensor, per page fault that touching it took (minimum).

    0 if touching it takes no faults: the allocator then keeps its memory, and freeing is free.
    """
    import torch

    costs = []
    for _ in range(repeats):
        before = minor_faults()
        tensor = torch.empty(BYTES, dtype=torch.uint8)
        tensor.fill_(1)
        faults = minor_faults() - before
        begin = time.perf_counter_ns()
        del tensor
        length = time.perf_counter_ns() - begin
        costs.append(length / faults if faults > 100 else 0.0)
    return min(costs)
