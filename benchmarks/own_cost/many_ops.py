"""A step of 100,000 ops: prints how much memory and time its diagnosis takes, as JSON."""

import json
import resource
import time

import torch

import gobrrr

x = torch.randn(8)


def step() -> torch.Tensor:
    y = x
    for _ in range(50_000):
        y = (y * 0.5).add_(x)
    return y


step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
found = gobrrr.diagnose(step, batch_test=False)
print(
    json.dumps(
        {
            "ops": sum(op.count for op in found.ops),
            "step_s": found.step_s,
            "extra_memory_bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            * 1024,
            "diagnosis_s": time.perf_counter() - begin,
        }
    )
)
