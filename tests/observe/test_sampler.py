import gc
import signal
import sys
import threading
import time
import weakref
from collections import Counter

import pytest

from gobrrr.measure.thread_effort import ThreadEffort, effort_of
from gobrrr.observe.sampler import LineSampler, MainThreadAsker, _Question, has_slept
from gobrrr.timeline.names import UNASKED_LINE

from .process_threads import system_threads, system_threads_once_ended


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


def test_a_thread_that_is_not_the_main_one_has_lines_where_it_sleeps_alone() -> None:
    stages = [threading.Event() for _ in range(3)]

    def work() -> None:
        stages[0].wait()
        busy(0.2)
        stages[1].set()
        stages[2].wait()  # asleep here

    thread = threading.Thread(target=work)
    thread.start()
    sampler = LineSampler(thread.ident or 0)
    sampler.start()
    stages[0].set()
    stages[1].wait()
    awake_until = time.perf_counter_ns()
    time.sleep(0.2)
    slept_until = time.perf_counter_ns()
    stages[2].set()
    thread.join()
    # It has ended, and the sampler does not mind.
    time.sleep(0.01)
    samples = sampler.stop()
    awake = [each for each in samples if each.time_ns < awake_until and not each.asleep]
    assert awake
    assert {each.line for each in awake} == {UNASKED_LINE}
    asleep = [each for each in samples if awake_until < each.asleep_since_ns < slept_until]
    assert all("test_sampler.py" in (each.line or "") for each in asleep)
    if threading.get_native_id() and effort_of(threading.get_ident()) is not None:
        assert asleep


def test_many_short_samplers_leave_nothing_behind() -> None:
    threads = system_threads()
    for _ in range(20):
        sampler = LineSampler(threading.get_ident())
        sampler.start()
        busy(0.005)
        sampler.stop()
    busy(0.01)
    assert system_threads_once_ended(threads) <= threads


def test_what_an_asker_heard_is_not_kept_once_it_has_ended() -> None:
    class Heard:
        def __call__(self, frame: object, asked_ns: int) -> None:
            pass

    heard = Heard()
    kept = weakref.ref(heard)
    asker = MainThreadAsker(0.0005, heard)
    asker.start()
    busy(0.01)
    asker.stop()
    asker.join()
    del asker, heard
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("of_user", [False, True])
def test_what_a_handler_raises_during_an_answer_reaches_the_program(of_user: bool) -> None:
    """Ctrl-C, and a user's own alarm, while the main thread tells where it is."""

    class Alarm(Exception):
        pass

    def alarm(*_: object) -> None:
        raise Alarm("time is up")

    calls = 0
    number = signal.SIGUSR1 if of_user else signal.SIGINT

    def heard(frame: object, asked_ns: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            signal.raise_signal(number)

    before = signal.signal(number, alarm if of_user else signal.default_int_handler)
    asker = MainThreadAsker(0.0005, heard)
    asker.start()
    try:
        with pytest.raises(Alarm if of_user else KeyboardInterrupt):
            busy(30)
        # It goes on where the program does.
        deadline = time.monotonic() + 30
        while calls < 5 and time.monotonic() < deadline:
            busy(0.005)
        assert calls >= 5
    finally:
        asker.stop()
        asker.join()
        signal.signal(number, before)


def test_a_question_whose_answer_was_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler may raise before the answer has begun."""
    heard: list[int] = []
    lost: list[object] = []
    answer = _Question.__bool__

    def first_one_lost(question: _Question) -> bool:
        if not lost:
            lost.append(question)
            raise KeyboardInterrupt
        return answer(question)

    monkeypatch.setattr(_Question, "__bool__", first_one_lost)
    monkeypatch.setattr("gobrrr.observe.sampler.ASKED_AGAIN_NS", 20_000_000)
    asker = MainThreadAsker(0.0005, lambda frame, ns: heard.append(ns))
    try:
        with pytest.raises(KeyboardInterrupt):
            # The first answer may come before this returns.
            asker.start()
            busy(30)
        deadline = time.monotonic() + 30
        while len(heard) < 5 and time.monotonic() < deadline:
            busy(0.005)
        assert len(heard) >= 5
    finally:
        asker.stop()
        asker.join()


def test_two_that_ask_are_both_answered() -> None:
    heard: Counter[str] = Counter()
    askers = [
        MainThreadAsker(0.0005, lambda frame, ns, name=name: heard.update([name]))
        for name in ("first", "second")
    ]
    for asker in askers:
        asker.start()
    deadline = time.monotonic() + 30
    while min(heard["first"], heard["second"]) < 5 and time.monotonic() < deadline:
        busy(0.005)
    for asker in askers:
        asker.stop()
        asker.join()
    assert min(heard["first"], heard["second"]) >= 5


def test_a_thread_that_sleeps_is_told_from_one_that_runs() -> None:
    sampler = LineSampler(threading.get_ident())
    sampler.start()
    busy(0.2)
    time.sleep(0.4)
    samples = sampler.stop()
    asleep = Counter(sample.line for sample in samples if sample.asleep)
    line, _ = asleep.most_common(1)[0]
    assert line is not None
    assert line.endswith("in test_a_thread_that_sleeps_is_told_from_one_that_runs")
    awake = Counter(sample.line for sample in samples if not sample.asleep)
    assert awake.most_common(1)[0][0] != line
    times = [sample.time_ns for sample in samples]
    assert times == sorted(times)


def test_a_thread_that_waits_for_a_processor_does_not_sleep() -> None:
    # Of 10: nothing done. On a run queue for 6, or the one that asks was, with the lock perhaps.
    assert has_slept(10, 0, 0, 0)
    assert has_slept(10, 0, 4, 1)
    assert not has_slept(10, 0, 6, 0)
    assert not has_slept(10, 0, 0, 2)
    assert not has_slept(10, 2, 0, 0)


def test_counters_of_different_moments_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = LineSampler(threading.get_ident())
    if sampler._effort is None:
        pytest.skip("the system does not count what a thread waits for")
    # Looks at 0, 1, 2 and 3 ms, of which the second took 0.9 ms: the reader lost its processor.
    moments = iter([0, 0, 100_000, 1_000_000, 2_000_000, 2_000_000, 3_000_000, 3_000_000])
    monkeypatch.setattr(ThreadEffort, "read", lambda self: (0, 0))
    monkeypatch.setattr(ThreadEffort, "is_runnable", lambda self: False)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(moments))
    for _ in range(4):
        sampler._look_whether_it_sleeps()
    # The third look begins anew; the fourth has one before it.
    assert [(s.asleep_since_ns, s.time_ns) for s in sampler._samples] == [(2_000_000, 3_000_000)]


def test_counters_that_are_gone_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = LineSampler(threading.get_ident())
    if sampler._effort is None:
        pytest.skip("the system does not count what a thread waits for")
    watched, moments = sampler._effort, iter(range(0, 100_000_000, 1_000_000))
    gone: set[bool] = set()

    def read(effort: ThreadEffort) -> tuple[int, int] | None:
        return None if (effort is watched) in gone else (0, 0)

    monkeypatch.setattr(ThreadEffort, "read", read)
    monkeypatch.setattr(ThreadEffort, "is_runnable", lambda self: False)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(moments))
    monkeypatch.setattr("gobrrr.observe.sampler.LONGEST_LOOK_NS", 1_000_000)
    looked = [sampler._look_whether_it_sleeps() for _ in range(2)]
    gone.add(False)  # those of the thread that looks
    looked.append(sampler._look_whether_it_sleeps())
    gone.clear()
    looked += [sampler._look_whether_it_sleeps() for _ in range(2)]
    gone.add(True)
    looked += [sampler._look_whether_it_sleeps() for _ in range(2)]
    assert looked == [False, True, False, False, True, False, False]


def test_a_thread_still_on_a_run_queue_is_told_from_one_that_sleeps() -> None:
    effort = effort_of(threading.get_ident())
    if effort is None:
        pytest.skip("the system does not count what a thread waits for")
    assert effort.is_runnable()
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait(60)

    # It ends by itself, whatever becomes of the test.
    other = threading.Thread(target=wait, daemon=True)
    deadline = time.monotonic() + 60
    other.start()
    try:
        assert ready.wait(60)
        sleeper = effort_of(other.ident or 0)
        assert sleeper is not None
        while sleeper.is_runnable():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        used, queued = sleeper.read()
        assert used > 0
        assert queued >= 0
    finally:
        done.set()
        other.join(60)
    assert not other.is_alive()
    # The system's thread ends a little after Python's.
    while sleeper.read() is not None:
        assert time.monotonic() < deadline
