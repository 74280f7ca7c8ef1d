"""A report that is open in a browser. Screenshots go to ``build/screenshots``, to be looked at."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


class Page:
    """An open report: what the browser saw, and the few things a test does with it."""

    def __init__(self, driver: Any, path: Path, width: int, dark: bool) -> None:
        self.driver, self.width = driver, width
        self.resize(width, 900)
        self.cdp(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        for kind in ("browser", "performance"):
            driver.get_log(kind)
        driver.get(path.as_uri())
        self.wait("[...document.querySelectorAll('#where-view')].every(e => 'ready' in e.dataset)")

    def cdp(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return ({expression})", *arguments)

    def run(self, statements: str, *arguments: Any) -> Any:
        return self.driver.execute_script(statements, *arguments)

    def wait(self, condition: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, 0.05).until(lambda _: self.js(condition), condition)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        elements = self.all(selector)
        assert elements, selector
        return elements[0]

    def until(self, holds: Callable[[], bool]) -> bool:
        """Whether something about the page holds, at once or once the page gets to it."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            WebDriverWait(self.driver, 60, 0.05).until(lambda _: holds())
        except TimeoutException:
            return False
        return True

    def says(self, selector: str, text: str) -> bool:
        """Whether the element shows the text, at once or once the page gets to it."""
        return self.until(lambda: text in self.one(selector).text)

    def click(self, selector: str, at: int = 0) -> None:
        """Clicks the element where it is not under the bar that stays on top."""
        element = self.all(selector)[at]
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def press(self, selector: str, *keys: str) -> None:
        element = self.one(selector)
        self.run("arguments[0].focus()", element)
        for key in keys:
            element.send_keys(key)

    def point(self, selector: str, x: float, y: float, *, click: bool = False) -> None:
        """Moves the mouse to a point of an element, from its top left corner."""
        # The event of this scroll comes with the next frame, and hides what pointing shows.
        left, top = self.driver.execute_async_script(
            "const e = document.querySelector(arguments[0]), done = arguments[1];"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "requestAnimationFrame(() => requestAnimationFrame(() => {"
            "  const b = e.getBoundingClientRect(); done([b.left, b.top]); }));",
            selector,
        )
        at = {"x": left + x, "y": top + y, "button": "left", "clickCount": 1}
        self.cdp("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"], y=at["y"])
        if click:
            self.cdp("Input.dispatchMouseEvent", type="mousePressed", **at)
            self.cdp("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def point_until(self, selector: str, x: float, y: float, condition: str) -> None:
        """Points, again if need be, until the page is in a state (a JavaScript expression).

        A scroll event that comes late undoes what pointing did; then the mouse has to move.
        """
        sides = itertools.cycle((0.0, 0.5))

        def pointed() -> bool:
            self.point(selector, x + next(sides), y)
            return bool(self.js(condition))

        assert self.until(pointed), condition

    def show_timeline(self) -> None:
        self.run("document.getElementById('timeline').scrollIntoView({behavior: 'instant'})")
        self.wait("'ready' in document.getElementById('timeline-view').dataset")
        self.wait("!!document.querySelector('canvas.lanes')?.dataset.view")

    def view(self) -> tuple[float, float]:
        """What the timeline shows, in its unit."""
        # A frame later: drawing waits for one.
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )
        low, high = self.js(
            "document.querySelector('#timeline-view canvas.lanes').dataset.view"
        ).split()
        return float(low), float(high)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked for since the page was opened, the page itself left out."""
        urls = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return [url for url in urls if not url.startswith(("file:", "data:"))]

    def resize(self, width: int, height: int) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def screenshot(self, name: str) -> None:
        """The whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        height = self.js("document.documentElement.scrollHeight")
        self.resize(self.width, min(height, 8000))
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
        self.resize(self.width, 900)
