import sys
import threading
import time
from collections import Counter

from gobrrr.capture.sampler import LineSampler


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(50))


def test_samples_name_the_line_that_is_running() -> None:
    interval = sys.getswitchinterval()
    sampler = LineSampler(threading.get_ident())
    sampler.start()
    busy(0.3)
    samples = sampler.stop()
    assert sys.getswitchinterval() == interval
    lines = Counter(sample.line for sample in samples)
    assert lines
    line, _ = lines.most_common(1)[0]
    assert line is not None
    assert line.endswith("in busy")
    times = [sample.time_ns for sample in samples]
    assert times == sorted(times)


def test_a_thread_that_is_not_the_main_one_has_no_samples() -> None:
    sampler = LineSampler(-1)
    sampler.start()
    busy(0.01)
    assert sampler.stop() == []


def test_many_short_samplers_leave_nothing_behind() -> None:
    for _ in range(20):
        sampler = LineSampler(threading.get_ident())
        sampler.start()
        busy(0.005)
        sampler.stop()
    busy(0.01)
    assert not [t for t in threading.enumerate() if t.name == "gobrrr-lines"]
