"""How large the HTML report is, how soon it paints, and how smoothly its timeline moves.

Two pages: a recorded inference step as it is, and 100 000 spans with 2 000 ops. First paint is
Chromium's own figure, from the start of the navigation, with the file on disk; frame times are
those of 40 animation frames with a key press (zoom, move) in each. Needs chromium, chromium-driver
and selenium (``make browser``).

    PYTHONPATH=. python benchmarks/html_page/run.py --out FILE
"""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command import Record, parser, skip

from gobrrr.diagnosis.schema import Diagnosis, TimelineColumns
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.reports.html import render

if TYPE_CHECKING:
    from selenium import webdriver

TRACE = Path(__file__).parents[2] / "tests/data/traces/h100_bert_small_inference.json.gz"
SPANS, OPS, LOADS = 100_000, 2_000, 5
QUICK_SPANS, QUICK_OPS, QUICK_LOADS = 5_000, 100, 1
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


def enlarged(diagnosis: Diagnosis, least_spans: int, ops: int) -> Diagnosis:
    """The step again and again until it has so many spans, and its ops as ``ops`` rows."""
    large = copy.deepcopy(diagnosis)
    one = diagnosis.timeline
    assert one is not None
    spans = len(one.host_start_ns) + len(one.kernel_start_ns) + len(one.idle_start_ns)
    times, length = -(-least_spans // spans), round(diagnosis.accounted_s * 1e9)
    columns: dict[str, Any] = {}
    for name in TimelineColumns.__struct_fields__:
        column = getattr(one, name)
        if name.endswith("start_ns"):
            columns[name] = [start + i * length for i in range(times) for start in column]
        else:
            columns[name] = column if name == "names" else column * times
    large.timeline = TimelineColumns(**columns)
    rows = [copy.copy(diagnosis.ops[i % len(diagnosis.ops)]) for i in range(ops)]
    for i, row in enumerate(rows):
        row.shapes, row.module = f"({i},{i})x({i},64)", f"model.layers.{i % 48}.block{i % 7}.{i}"
    large.ops = rows
    return large


def start_browser() -> webdriver.Chrome:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for switch in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(switch)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )


def measure(driver: webdriver.Chrome, page: bytes, loads: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_bytes(page)
        paints = []
        for _ in range(loads):
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
    options = parser(__doc__).parse_args()
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        skip("chromium and chromedriver are not installed (make browser)")
    if importlib.util.find_spec("selenium") is None:
        skip("selenium is not installed")
    spans, ops, loads = (
        (QUICK_SPANS, QUICK_OPS, QUICK_LOADS) if options.quick else (SPANS, OPS, LOADS)
    )
    record = Record("html_page", options, "selenium")
    recorded = diagnose_trace(TRACE)
    large = enlarged(recorded, spans, ops)
    pages = {}
    driver = start_browser()
    try:
        for name, diagnosis in (("recorded step", recorded), (f"{spans:,} spans", large)):
            begin = time.perf_counter()
            page = render(diagnosis)
            written_s = time.perf_counter() - begin
            pages[name] = {"render_s": written_s, **measure(driver, page, loads)}
            print(name, pages[name], flush=True)
        browser = driver.capabilities["browserVersion"]
    finally:
        driver.quit()
    # Other work at the same time (the load) makes paints later than they need be.
    record.write({"processors": os.cpu_count(), "chromium": browser, "pages": pages})


if __name__ == "__main__":
    main()
