"""Files are written whole or not at all, and what is no file of its own is left what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically, write_output, written_atomically


def read_from(path: Path) -> tuple[threading.Thread, list[bytes]]:
    """A reader of a pipe, which opening it for writing waits for."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    return reader, found


def test_a_pipe_is_written_straight_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader, found = read_from(pipe)
    assert write_atomically(pipe, b"all of it") == pipe
    reader.join(10)
    assert found == [b"all of it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_without_a_name_is_written_through_its_descriptor() -> None:
    # What /dev/stdout leads to in a shell's pipe: a link to a name that is none.
    reading, writing = os.pipe()
    try:
        write_atomically(f"/dev/fd/{writing}", b"all of it")
        assert os.read(reading, 100) == b"all of it"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_symlink_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link, real = tmp_path / "link.json", tmp_path / "elsewhere" / "real.json"
    link.symlink_to(real)
    for data in (b"first", b"second"):  # of a file that is not there yet, and of one that is
        write_atomically(link, data)
        assert link.is_symlink() and real.read_bytes() == data


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755])
def test_a_file_keeps_who_may_read_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"older")
    path.chmod(mode)
    write_atomically(path, b"newer")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_what_is_printed_to_is_written_between_the_prints(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("older\n")
    source = """
import sys
from gobrrr.timeline.files import write_atomically
print("before")
write_atomically(sys.argv[1], b"DATA\\n")
print("after")
"""
    for name in ("/dev/stdout", str(target)):
        with target.open("a") as stream:
            subprocess.run([sys.executable, "-c", source, name], stdout=stream, check=True)
    assert target.read_text() == "older\n" + 2 * "before\nDATA\nafter\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_link_to_itself_is_an_error_of_the_system(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(InputError, match="symbolic link"):
        write_output(link, b"data")
    assert link.is_symlink()


def test_what_is_raised_half_way_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"older")
    with pytest.raises(RuntimeError), written_atomically(path) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.chmod", "pathlib.Path.replace"])
def test_a_disk_that_fails_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space")

    path = tmp_path / "kept.json"
    path.write_bytes(b"older")
    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"newer")
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it without setting it")
def test_a_new_file_has_the_mode_that_the_umask_leaves_which_nobody_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting it, even for a moment, would change files that other threads make meanwhile."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.delattr(os, "umask")
            write_atomically(tmp_path / "file", b"data")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
