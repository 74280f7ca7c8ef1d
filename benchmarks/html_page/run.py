"""How large the HTML report is, how soon it paints, and how smoothly its timeline moves.

Two pages: a recorded inference step as it is, and 100 000 spans with 2 000 ops. First paint is
Chromium's own figure, from the start of the navigation, with the file on disk; frame times are
those of 40 animation frames with a key press (zoom, move) in each. Needs chromium, chromium-driver
and selenium (``make browser``).

    python benchmarks/html_page/run.py --out benchmarks/results/html_page_<hardware>_<date>.json
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium import webdriver

from gobrrr.devices import identify
from gobrrr.diagnosis.schema import Diagnosis, TimelineColumns
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.reports.html import render

TRACE = Path(__file__).parents[2] / "tests/data/traces/h100_bert_small_inference.json.gz"
SPANS, OPS = 100_000, 2_000
LOADS = 5
FRAMES = """
const done = arguments[0], canvas = document.querySelector('canvas.lanes'), times = [];
let last = performance.now(), i = 0;
canvas.focus({preventScroll: true});
requestAnimationFrame(function step(now) {
  times.push(now - last); last = now;
  if (i++ > 42) return done(times.slice(2));
  const key = i < 16 ? '+' : i < 30 ? 'ArrowRight' : '-';
  canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
  requestAnimationFrame(step);
});
"""


def enlarged(diagnosis: Diagnosis) -> Diagnosis:
    """The step again and again until it has ``SPANS`` spans, and its ops as ``OPS`` rows."""
    large = copy.deepcopy(diagnosis)
    one = diagnosis.timeline
    assert one is not None
    spans = len(one.host_start_ns) + len(one.kernel_start_ns) + len(one.idle_start_ns)
    times, length = -(-SPANS // spans), round(diagnosis.accounted_s * 1e9)
    columns: dict[str, Any] = {}
    for name in TimelineColumns.__struct_fields__:
        column = getattr(one, name)
        if name.endswith("start_ns"):
            columns[name] = [start + i * length for i in range(times) for start in column]
        else:
            columns[name] = column if name == "names" else column * times
    large.timeline = TimelineColumns(**columns)
    rows = [copy.copy(diagnosis.ops[i % len(diagnosis.ops)]) for i in range(OPS)]
    for i, row in enumerate(rows):
        row.shapes, row.module = f"({i},{i})x({i},64)", f"model.layers.{i % 48}.block{i % 7}.{i}"
    large.ops = rows
    return large


def start_browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for switch in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(switch)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )


def measure(driver: webdriver.Chrome, page: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_bytes(page)
        paints = []
        for _ in range(LOADS):
            driver.get("about:blank")
            driver.get(path.as_uri())
            time.sleep(1)
            paints.append(
                driver.execute_script(
                    "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
            )
        driver.execute_script("document.getElementById('timeline').scrollIntoView()")
        time.sleep(2)
        frames = driver.execute_async_script(FRAMES)
    return {
        "bytes": len(page),
        "first_paint_s": {"median": statistics.median(paints) / 1e3, "largest": max(paints) / 1e3},
        "frame_s": {"median": statistics.median(frames) / 1e3, "largest": max(frames) / 1e3},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    recorded = diagnose_trace(TRACE)
    large = enlarged(recorded)
    pages = {}
    driver = start_browser()
    try:
        for name, diagnosis in (("recorded step", recorded), ("100 000 spans", large)):
            begin = time.perf_counter()
            page = render(diagnosis)
            written_s = time.perf_counter() - begin
            pages[name] = {"render_s": written_s, **measure(driver, page)}
            print(name, pages[name], flush=True)
        browser = driver.capabilities["browserVersion"]
    finally:
        driver.quit()
    result = {
        "topic": "the HTML report: size, first paint, frames of the timeline",
        "hardware": identify().name,
        "processors": os.cpu_count(),
        # Other work at the same time makes paints later than they need be.
        "load_average": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), "chromium": browser},
        "pages": pages,
    }
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
