"""A fork warns of the program's threads, and not of gobrrr's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(os, "register_at_fork") or not Path("/proc/self/task").is_dir(),
    reason="threads are counted on Linux",
)

FORKS = """
import os, threading, time, warnings
from gobrrr.measure.own_thread import OwnThread

if {own}:
    OwnThread(lambda: time.sleep(20)).start()
if {others}:
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
filters = list(warnings.filters)
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit(filters != warnings.filters)
    assert os.waitpid(child, 0)[1] == 0
assert filters == warnings.filters
os._exit(0)
"""


def warned(*options, own, others):
    source = FORKS.format(own=own, others=others)
    done = subprocess.run(
        [sys.executable, *options, "-c", source], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.count("is multi-threaded")


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("options", [(), ("-W", "always"), ("-W", "ignore"), ("-W", "error")])
def test_a_fork_warns_as_it_does_without_gobrrr_s_threads(others, options):
    expected = warned(*options, own=False, others=others)
    assert others or not expected
    assert warned(*options, own=True, others=others) == expected
