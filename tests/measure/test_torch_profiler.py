"""PyTorch's profiler as gobrrr opens it: quiet, and no object for each event."""

from __future__ import annotations

import gc
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.measure.torch_profiler import GC_NAME, profiler_of_torch  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from gobrrr.timeline.data import HostKind  # noqa: E402

pytestmark = pytest.mark.torch
CPU = (torch.profiler.ProfilerActivity.CPU,)


def test_no_event_becomes_an_object_as_the_profiler_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    plain = torch.autograd.profiler.profile
    original = plain._parse_kineto_results

    def seen(self: Any, result: Any, **options: Any) -> Any:
        made.append(result)
        return original(self, result, **options)

    monkeypatch.setattr(plain, "_parse_kineto_results", seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            profile = profiler_of_torch(activities=CPU)
            profile.start()
            torch.ones(3) + 1
            profile.stop()
            assert "aten::add" in {e.name() for e in profile.profiler.kineto_results.events()}
    assert made == []
    # Nor is it lost: who asks gets them, made then.
    assert "aten::add" in {event.name for event in profile.events()}
    assert len(made) == 1


def test_what_is_exported_alone_holds_the_same(tmp_path: Path) -> None:
    def exported(name: str, **options: Any) -> list[tuple[str, object]]:
        with profiler_of_torch(activities=CPU, record_shapes=True, **options) as profile:
            torch.ones(3, 4) @ torch.ones(4, 5)
        path = tmp_path / name
        profile.export_chrome_trace(str(path))
        rows = json.loads(path.read_text())["traceEvents"]
        return [
            (row["name"], row["args"].get("Input Dims"))
            for row in rows
            if row.get("cat") == "cpu_op"
        ]

    whole = exported("whole.json")
    assert ("aten::mm", [[3, 4], [4, 5]]) in whole
    assert exported("alone.json", only_exported=True) == whole


def test_collections_have_rows_until_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(gc.callbacks)

    def collections() -> list[tuple[str, int]]:
        profile = profiler_of_torch(activities=CPU, only_exported=True)
        gc.collect()
        profile.prepare_trace()
        gc.collect()
        profile.start_trace()
        torch.ones(3)
        gc.collect()
        profile.stop()
        gc.collect()
        assert gc.callbacks == before
        profile.export_chrome_trace(str(tmp_path / "trace.json"))
        timeline = read_trace(tmp_path / "trace.json")
        rows = timeline.host.kind == HostKind.GARBAGE_COLLECTION
        return [(timeline.names[name], rows.sum()) for name in timeline.host.name[rows]]

    gc.disable()
    try:
        assert collections() == [(GC_NAME, 1)]
        # A PyTorch without the means: none, and nothing fails.
        monkeypatch.delattr(torch._C._profiler, "_RecordFunctionFast")
        assert collections() == []
    finally:
        gc.enable()


def test_the_warning_of_cycles_alone_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Warns:
        """As PyTorch 2.11 does in its first cycle, and of something else."""

        def __init__(self, **options: Any) -> None: ...

        def start(self) -> None:
            warnings.warn("To keep events across cycles,\nset acc_events=True.", stacklevel=2)
            warnings.warn("something else", stacklevel=2)

    monkeypatch.setattr(torch.profiler, "profile", Warns)
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    with pytest.warns(UserWarning) as told:
        profiler_of_torch().start()
    assert [str(warning.message) for warning in told] == ["something else"]
    # The filter is gone: the program is told of its own.
    with pytest.warns(UserWarning, match="acc_events"):
        Warns().start()
