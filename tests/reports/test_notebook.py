"""What a notebook shows of a diagnosis."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.html import report_html


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(diagnosis: Diagnosis) -> Elements:
    parser = Elements()
    parser.feed(diagnosis._repr_html_())
    return parser


def frame_of(elements: Elements) -> dict[str, str | None]:
    (frame,) = (attributes for tag, attributes in elements.found if tag == "iframe")
    return frame


def test_the_page_itself_is_beneath(training: Diagnosis) -> None:
    elements = shown(training)
    assert frame_of(elements)["srcdoc"] == report_html(training)
    assert [tag for tag, _ in elements.found if tag == "details"] == ["details"]


def test_it_cannot_reach_the_notebook_and_loads_nothing(training: Diagnosis) -> None:
    training.source["name"] = '"><img src=x>'
    elements = shown(training)
    assert not {"img", "script", "link"} & {tag for tag, _ in elements.found}
    frame = frame_of(elements)
    # Not allow-same-origin: together they would let the page lift its own sandbox.
    assert frame["sandbox"] == "allow-scripts"
    assert "src" not in frame
    page = frame["srcdoc"] or ""
    assert "default-src 'none'" in page
    assert not re.search(r"<(img|iframe)", page)


def test_the_short_view_has_verdict_split_and_three_findings(training: Diagnosis) -> None:
    training.findings *= 2
    elements = shown(training)
    assert len(training.findings) > 3
    assert len([tag for tag, _ in elements.found if tag == "li"]) == 3
    most = max(training.findings, key=lambda f: f.prediction.expected_s if f.prediction else 0.0)
    assert most.title and most.title in elements.text
    assert training.verdict.partition(".")[0] in elements.text
    widths = [a["style"] for tag, a in elements.found if tag == "span" and "style" in a]
    assert len(widths) == 4
    titles = [a for tag, a in elements.found if tag == "abbr"]
    assert titles and all(a["title"] for a in titles)


def test_its_styles_are_its_own(minimal: Diagnosis) -> None:
    style = minimal._repr_html_().partition("<style>")[2].partition("</style>")[0]
    rules = [rule.partition("{")[0] for rule in style.split("}") if "{" in rule]
    assert all(
        selector.strip().startswith(".gobrrr-inline")
        for rule in rules
        for selector in rule.split(",")
    )
