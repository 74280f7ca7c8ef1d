"""Messages through a store that fails now and then, for good, or does not answer."""

from __future__ import annotations

import contextlib
import datetime
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gobrrr.jobs import job as job_module
from gobrrr.jobs.boards import BoardLostError, StoreBoard
from gobrrr.jobs.job import Job

# Far above what a busy machine takes: who has not answered by then never will.
NEVER_S = 60.0


class FailingStore:
    """A store whose next calls raise ``errors``, one each; ``None``: that call never returns."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.messages: dict[str, bytes] = {}
        self.calls = 0
        self.over = threading.Event()

    def _fail(self) -> None:
        self.calls += 1
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
            self.over.wait()

    def set(self, key: str, value: bytes) -> None:
        self._fail()
        self.messages[key] = value

    def check(self, keys: list[str]) -> bool:
        self._fail()
        return all(key in self.messages for key in keys)

    def get(self, key: str) -> bytes:
        self._fail()
        return self.messages[key]


def _returned(call: Callable[[], Any]) -> Any:
    """What it returns; fails if it never does."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(call()), daemon=True)
    thread.start()
    thread.join(NEVER_S)
    assert told, "it did not return"
    return told[0]


class LosingStore(FailingStore):
    """A store that what is set does not reach the first time, as its connection is lost on the way.

    As torch's client, it returns from ``set`` nevertheless.
    """

    lost = False

    def set(self, key: str, value: bytes) -> None:
        if self.lost:
            super().set(key, value)
            return
        self.lost = True
        self.errors.append(RuntimeError("failed to recv, got 0 bytes"))


ERRORS = [RuntimeError("wait timeout after 300000ms"), ConnectionResetError("by peer")]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_now_and_then_cuts_no_rank_off(tmp_path: Path, error: Exception) -> None:
    store = FailingStore(error, error)
    job = Job({"RANK": "1", "WORLD_SIZE": "2"}, folder=tmp_path, find_store=lambda: store)
    job.publish(b"found")
    assert StoreBoard(store).read("result/1") == b"found"
    store.errors.append(error)
    assert job.read("result/1") == b"found"
    store.errors += [error, error]
    assert job.read("nothing") is None
    assert job.lost == ""


def test_a_message_that_is_lost_with_its_connection_is_sent_again() -> None:
    store = LosingStore()
    StoreBoard(store).post("key", b"message")
    assert StoreBoard(store).read("key") == b"message"


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_that_does_not_end_is_said_in_one_sentence(error: Exception) -> None:
    store = FailingStore(*[error] * 10)
    with pytest.raises(BoardLostError, match="the job's store is gone, probably because") as lost:
        StoreBoard(store).read("key")
    assert str(error) in str(lost.value)
    assert store.calls == 3


def test_a_store_that_does_not_answer_holds_no_rank_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "StoreBoard", lambda store: StoreBoard(store, 1.0))
    store = FailingStore(None)
    job = Job({"RANK": "1", "WORLD_SIZE": "2"}, folder=tmp_path, find_store=lambda: store)
    try:
        assert _returned(lambda: job.agree("timing", {"step_s": 0.1})) == {"step_s": 0.1}
        why = (
            "the job's store has not answered for 1 s, probably because the host of rank 0 is gone"
        )
        assert job.lost == job.alone == why
        assert _returned(job.results) == ({}, {0: why, 1: why})
        job.leave("its script has finished")
        # Nobody asks a store again that did not answer.
        assert store.calls == 1
    finally:
        store.over.set()


# Of torch


class Relay:
    """Connections to a port go through it until they are cut, or are held back."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._passes = threading.Event()
        self._passes.set()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.made = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                self.made += 1
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                self._passes.wait()
                target.sendall(data)
        for end in (source, target):
            end.close()

    def cut(self) -> None:
        """All connections that there are are lost; new ones can be made."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def hold(self) -> None:
        """Nothing comes through any more, as from a host that has vanished."""
        self._passes.clear()

    def close(self) -> None:
        self._passes.set()
        self._server.close()
        self.cut()


@pytest.fixture
def server() -> Iterator[Any]:
    pytest.importorskip("torch")
    from torch.distributed import TCPStore

    yield TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def relay(server: Any) -> Iterator[Relay]:
    found = Relay(server.port)
    yield found
    found.close()


def _client(port: int) -> Any:
    """As the store of a process group is."""
    from torch.distributed import PrefixStore, TCPStore

    return PrefixStore("default_pg", TCPStore("127.0.0.1", port, is_master=False))


@pytest.mark.torch
def test_a_connection_of_torch_that_is_lost_is_made_again(server: Any, relay: Relay) -> None:
    store = _client(relay.port)
    if not hasattr(store, "clone"):
        pytest.skip("a torch whose stores cannot be cloned")
    board = StoreBoard(store)
    board.post("before", b"1")
    for number in range(3):
        relay.cut()
        assert board.read("before") == b"1"
        board.post(f"after{number}", b"2")
        assert board.read(f"after{number}") == b"2"
    with pytest.raises(RuntimeError):
        # The program's own goes the way that it goes without gobrrr.
        store.check(["gobrrr/before"])


@pytest.mark.torch
def test_a_program_that_waits_at_its_store_does_not_hold_messages_up(server: Any) -> None:
    store = _client(server.port)
    if not hasattr(store, "clone"):
        pytest.skip("a torch whose stores cannot be cloned")
    board = StoreBoard(store)
    limit = datetime.timedelta(seconds=NEVER_S)

    def wait() -> None:
        with contextlib.suppress(RuntimeError):
            store.wait(["comes after the messages"], limit)

    program = threading.Thread(target=wait)
    program.start()
    # For it to be in that call.
    time.sleep(0.5)
    board.post("key", b"message")
    assert board.read("key") == b"message"
    assert program.is_alive()
    _client(server.port).set("comes after the messages", b"")
    program.join()


@pytest.mark.torch
def test_a_message_may_be_larger_than_torch_sends_at_once(server: Any) -> None:
    message = bytes(range(256)) * (20 << 12)
    board = StoreBoard(_client(server.port))
    for sent in (message, message[: 4 << 20], b""):
        board.post("key", sent)
        assert board.read("key") == sent


@pytest.mark.torch
def test_a_store_of_torch_whose_server_has_ended() -> None:
    pytest.importorskip("torch")
    from torch.distributed import TCPStore

    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    board = StoreBoard(TCPStore("localhost", server.port, is_master=False))
    board.post("key", b"message")
    assert board.read("key") == b"message"
    assert board.read("nothing") is None
    del server
    with pytest.raises(BoardLostError, match="the job's store is gone, probably because"):
        for _ in range(50):
            board.read("key")
            time.sleep(0.1)


VANISHES = """
import sys
from torch.distributed import TCPStore
from gobrrr.jobs.boards import BoardLostError, StoreBoard

board = StoreBoard(TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False), 2.0)
board.post("key", b"message")
print("vanish", flush=True)
sys.stdin.readline()
try:
    board.read("key")
except BoardLostError as error:
    print(error)
sys.exit(7)
"""


@pytest.mark.torch
def test_a_host_that_vanishes_leaves_a_process_its_exit_code(relay: Relay) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", VANISHES, str(relay.port)],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "vanish\n"
        relay.hold()
        said, _ = process.communicate("\n", timeout=NEVER_S)
    finally:
        process.kill()
    assert process.returncode == 7
    assert said == (
        "the job's store has not answered for 2 s, probably because the host of rank 0 is gone\n"
    )
