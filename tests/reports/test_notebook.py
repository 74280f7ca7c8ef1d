"""What a notebook shows of a diagnosis."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.html import report_html


class Frames(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def shown(diagnosis: Diagnosis) -> dict[str, str | None]:
    parser = Frames()
    parser.feed(diagnosis._repr_html_())
    ((tag, attributes),) = parser.found
    assert tag == "iframe"
    return attributes


def test_it_is_the_page_itself(training: Diagnosis) -> None:
    assert shown(training)["srcdoc"] == report_html(training)


def test_it_cannot_reach_the_notebook_and_loads_nothing(training: Diagnosis) -> None:
    training.source["name"] = '"><img src=x>'
    frame = shown(training)
    # Not allow-same-origin: together they would let the page lift its own sandbox.
    assert frame["sandbox"] == "allow-scripts"
    assert "src" not in frame
    page = frame["srcdoc"] or ""
    assert "default-src 'none'" in page
    assert not re.search(r"<(img|iframe)", page)
