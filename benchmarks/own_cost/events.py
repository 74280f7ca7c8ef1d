"""What a profile of many events costs the process: prints seconds and bytes per 100,000, as JSON.

``python benchmarks/own_cost/events.py EVENTS``. The seconds are the processor's, by part: ending
the profiler, reading its events. The bytes are what the process holds at most beyond before.
"""

import json
import resource
import sys
import time

import torch

from gobrrr.live.profiles.profile import HostProfiler

EVENTS = int(sys.argv[1])


def main() -> None:
    x = torch.randn(8)

    def run(ops: int) -> None:
        for _ in range(ops):
            x.add_(x)

    # What a first profile loads is no part of it.
    first = HostProfiler()
    first.start()
    run(10)
    first.mark()
    first.stop()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    profiler = HostProfiler()
    profiler.start()
    run(EVENTS)
    profiler.mark()
    begin = time.process_time()
    profiler._end()
    ended = time.process_time()
    (step,) = profiler.stop()
    read = time.process_time()
    assert len(step) >= EVENTS
    per = 100_000 / len(step)
    held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        json.dumps(
            {
                "events": len(step),
                "end_s": (ended - begin) * per,
                "read_s": (read - ended) * per,
                "bytes": held * per,
            }
        )
    )


if __name__ == "__main__":
    main()
