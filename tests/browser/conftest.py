"""A headless Chromium, and diagnoses whose pages it opens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser.page import Page

import gobrrr
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis, TimelineColumns
from gobrrr.recordings.traces import read_trace
from gobrrr.reports.html import render
from gobrrr.work import work_of

SOURCE = "NVIDIA H100 Tensor Core GPU data sheet, SXM5"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A driver; the tests are skipped where there is no selenium or no browser."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    if os.environ.get("CI") and os.environ.get("GOBRRR_BROWSER") != "1":
        # A shared runner may draw later than a test can wait: a person or a job of its own decides.
        pytest.skip("browser tests run in CI only with GOBRRR_BROWSER=1 (make test-browser)")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    service = shutil.which("chromedriver")
    if browser is None or service is None:
        pytest.skip("no chromium and chromium-driver here (make browser installs them)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for switch in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
                   "--hide-scrollbars", "--disable-background-networking"):  # fmt: skip
        options.add_argument(switch)
    if os.name == "posix" and os.geteuid() == 0:
        # Chromium's sandbox refuses to start as root, which containers run as.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield driver
    driver.quit()


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Callable[..., Page]:
    """Renders a diagnosis and opens it from disk."""

    def open_it(diagnosis: Diagnosis | bytes, width: int = 1280, dark: bool = False) -> Page:
        path = tmp_path / "report.html"
        path.write_bytes(diagnosis if isinstance(diagnosis, bytes) else render(diagnosis))
        return Page(chromium, path, width, dark)

    return open_it


def h100() -> Ceilings:
    rows = {
        "matrix.float16": (989e12, "FLOP/s"), "matrix.float32": (67e12, "FLOP/s"),
        "vector.float32": (67e12, "FLOP/s"), "memory.dram.read": (3.35e12, "B/s"),
        "kernel.fixed": (2e-6, "s"),
    }  # fmt: skip
    return Ceilings(
        "NVIDIA H100 80GB HBM3",
        {n: Ceiling(n, v, unit, "datasheet", SOURCE) for n, (v, unit) in rows.items()},
        (MemoryLevel("dram", None, ((0.0, 3.35e12),)),),
    )


@pytest.fixture(scope="session")
def recorded() -> Diagnosis:
    """BERT, inference, as recorded on an H100; its timeline holds some thousands of spans."""
    path = Path(__file__).parents[1] / "data" / "traces" / "h100_bert_small_inference.json.gz"
    timeline = read_trace(path)
    source = {"kind": "trace", "name": path.name}
    step = attributed_device(timeline, attribute_device(timeline, h100(), work_of), h100())
    return assemble(step, source=source, environment={"torch": "2.7"})


@pytest.fixture
def training(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


@pytest.fixture
def minimal(data: Path) -> Diagnosis:
    return gobrrr.load(data / "minimal.json")


@pytest.fixture
def large(training: Diagnosis) -> Diagnosis:
    """100 000 spans, 2 000 ops."""
    n = 25_000
    random = np.random.default_rng(1)
    start = np.cumsum(random.integers(100, 4000, n))
    names = [f"aten::op_{i}" for i in range(400)]
    lengths = random.integers(50, 1500, n)
    spans = {"start_ns": start.tolist(), "duration_ns": lengths.tolist()}
    training.timeline = TimelineColumns(
        names=names,
        host_start_ns=[*spans["start_ns"], *spans["start_ns"]],
        host_duration_ns=[*spans["duration_ns"], *(lengths // 2).tolist()],
        host_thread=[1] * (2 * n),
        host_kind=[0] * n + [1] * n,
        host_name=random.integers(0, 400, 2 * n).tolist(),
        kernel_start_ns=spans["start_ns"],
        kernel_duration_ns=spans["duration_ns"],
        kernel_stream=[7] * n,
        kernel_name=random.integers(0, 400, n).tolist(),
        kernel_regime=random.choice(["compute", "memory"], n).tolist(),
        idle_start_ns=(start + lengths).tolist(),
        idle_duration_ns=np.maximum(0, np.append(np.diff(start), 1000) - lengths).tolist(),
        idle_cause=random.choice(["launch", "python", "dispatch"], n).tolist(),
    )
    first = training.ops[0]
    training.ops = [
        type(first)(
            **{f: getattr(first, f) for f in first.__struct_fields__} | {"shapes": f"[{i}]"}
        )
        for i in range(2000)
    ]
    return training


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser on a busy machine may draw late; a page that is wrong is wrong three times."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=2))
