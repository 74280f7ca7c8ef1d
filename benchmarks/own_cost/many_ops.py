"""A step of 200,000 ops: prints how much memory and time it takes to diagnose, as JSON.

``python benchmarks/own_cost/many_ops.py predict`` predicts it instead; a second argument is the
number of ops.
"""

import json
import resource
import sys
import time

import torch

import gobrrr

PREDICTS = "predict" in sys.argv[1:]
OPS = next((int(given) for given in sys.argv[1:] if given.isdigit()), 200_000)
x = torch.randn(8)


def step() -> torch.Tensor:
    y = x
    for _ in range(OPS // 2):
        y = (y * 0.5).add_(x)
    return y


step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin, begin_cpu = time.perf_counter(), time.process_time()
if PREDICTS:
    found = gobrrr.predict(step, "H100-SXM")
else:
    found = gobrrr.diagnose(step, batch_test=False)
print(
    json.dumps(
        {
            "what": "predict" if PREDICTS else "diagnose",
            "ops": sum(op.count for op in found.ops),
            "step_s": found.step_s,
            "extra_memory_bytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            * 1024,
            "elapsed_s": time.perf_counter() - begin,
            "processor_s": time.process_time() - begin_cpu,
        }
    )
)
