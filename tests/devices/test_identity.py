from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.devices import Cache, identify
from gobrrr.devices.cpu.identity import cache_instances, read_caches


def write_cache(folder: Path, index: int, **values: str) -> None:
    target = folder / f"index{index}"
    target.mkdir(parents=True)
    for name, text in values.items():
        (target / name).write_text(text + "\n")


def test_caches_as_linux_lists_them(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="48K", shared_cpu_list="0,16")
    write_cache(tmp_path, 1, level="1", type="Instruction", size="32K", shared_cpu_list="0,16")
    write_cache(tmp_path, 2, level="2", type="Unified", size="2048K", shared_cpu_list="0,16")
    write_cache(tmp_path, 3, level="3", type="Unified", size="105M", shared_cpu_list="0-7,16-23")
    assert read_caches(tmp_path) == (
        Cache(1, 48 * 1024, 2),
        Cache(2, 2 * 1024**2, 2),
        Cache(3, 105 * 1024**2, 16),
    )


def test_no_caches_listed(tmp_path: Path) -> None:
    assert read_caches(tmp_path / "absent") == ()
    write_cache(tmp_path, 0, level="2", type="Unified", size="", shared_cpu_list="0")
    assert read_caches(tmp_path) == ()


@pytest.mark.parametrize(("threads", "instances"), [(1, 1), (8, 1), (9, 2), (16, 2)])
def test_instances_without_a_list_of_cpus(threads: int, instances: int) -> None:
    assert cache_instances(Cache(3, 1, 8), threads, []) == instances


def test_this_processor() -> None:
    device = identify("cpu")
    assert device.kind == "cpu"
    assert device.name
    assert device.threads is not None
    assert device.cores is None or device.cores <= device.threads
    levels = [cache.level for cache in device.caches]
    assert levels == sorted(set(levels))


def test_asking_for_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LookupError, match="no GPU"):
        identify("gpu")
    assert identify().kind == "cpu"
