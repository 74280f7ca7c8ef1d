"""What is to be done in a thread at its end."""

from __future__ import annotations

import threading

from gobrrr.live.profiles.thread_end import at_end_of_thread


def test_it_is_done_by_the_thread_itself_unless_it_is_revoked() -> None:
    found: list[int] = []
    revoking = []

    def work(*, revoked: bool) -> None:
        revoke = at_end_of_thread(lambda: found.append(threading.get_native_id()))
        revoking.append(revoke)
        if revoked:
            revoke()
        numbers.append(threading.get_native_id())

    numbers: list[int] = []
    for revoked in (False, True):
        thread = threading.Thread(target=work, kwargs={"revoked": revoked})
        thread.start()
        thread.join()
    assert found == numbers[:1]
    revoking[0]()
