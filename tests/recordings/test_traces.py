"""A format of traces is one file and one line in ``READERS``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gobrrr.cli import main
from gobrrr.recordings import trace, traces
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError
from trace_writing import WrittenTrace


class Ticks:
    """Lines of a name, a start and an end in microseconds, after a first line ``TICKS``."""

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"TICKS\n")

    def read(self, path: Path) -> Timeline:
        written = WrittenTrace()
        text = path.read_bytes()
        text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
        for line in text.decode().splitlines()[1:]:
            name, start, end = line.split()
            written.kernel(name, int(start), int(end) - int(start))
        return trace.read(written.write(path.parent))


@pytest.fixture
def with_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "READERS", (Ticks(), *traces.READERS))


TEXT = b"TICKS\ngemm_kernel 0 40\ngemm_kernel 100 130\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_format_from_outside_is_diagnosed(
    packed: bool, with_ticks: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recorded.ticks"
    path.write_bytes(gzip.compress(TEXT) if packed else TEXT)
    saved = tmp_path / "diagnosis.json"
    assert main(["trace", str(path), "--json", str(saved)]) == 0
    assert "gemm_kernel" in capsys.readouterr().out
    found = json.loads(saved.read_bytes())
    # 40 + 30 of 130 us: the rest is idle.
    assert found["device_time"]["busy_s"] == pytest.approx(70e-6)
    assert found["device_time"]["window_s"] == pytest.approx(130e-6)


def test_other_files_are_read_as_before(with_ticks: None, tmp_path: Path) -> None:
    written = WrittenTrace()
    written.kernel("a", 0, 5)
    assert len(traces.read_trace(written.write(tmp_path)).kernels) == 1


@pytest.mark.parametrize("content", [b"", b"TICK", b"\x1f\x8b\x08\x00cut"])
def test_what_no_format_knows_is_refused_with_a_reason(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "what.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"what\.json"):
        traces.read_trace(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        traces.read_trace(tmp_path / "nowhere.json")
