"""A launcher of several processes, run to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

# After an interrupt that the launcher may not have seen; then it is asked to end.
LAUNCHER_ENDS_IN_S = 5.0


def run_launcher(command: Sequence[str]) -> int:
    """Runs a launcher to its end and returns its exit code, 128 + n if signal n ended it.

    A request to end (SIGTERM) is the launcher's, which ends the ranks: a scheduler or ``timeout``
    asks this process alone, and the ranks would go on without anybody who waits for them.
    """
    # Not above: this starts other programs, and reads none of torch.
    import subprocess

    asked = told = False
    job: subprocess.Popen[bytes] | None = None

    def tell() -> None:
        # Once: a second one may end a launcher that is about to end by itself.
        nonlocal told
        if job is not None and not told:
            told = True
            job.terminate()

    def pass_on(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        tell()

    before = signal.getsignal(signal.SIGTERM)
    # Python lets no other thread set what a signal does, nor set again what is not Python's.
    heard = threading.current_thread() is threading.main_thread() and before is not None
    if heard:
        signal.signal(signal.SIGTERM, pass_on)
    try:
        job = subprocess.Popen(command)
        if asked:
            tell()
        code = job.wait()
    except KeyboardInterrupt:
        # A terminal interrupts the launcher too, which ends its ranks before itself.
        if job is not None:
            try:
                job.wait(LAUNCHER_ENDS_IN_S)
            except subprocess.TimeoutExpired:
                job.terminate()
                job.wait()
        raise
    finally:
        if heard:
            signal.signal(signal.SIGTERM, before)
    return code if code >= 0 else 128 - code
