"""What a notebook shows of a diagnosis."""

from __future__ import annotations

import re

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.notebook import HEIGHT, WIDTH, roofline_of


def test_verdict_split_and_roofline(training: Diagnosis) -> None:
    html = training._repr_html_()
    assert "Compute-bound, and not by much." in html
    assert re.findall(r'<span class="(\w+)" style="width:([\d.]+)%', html) == [
        ("compute", "46.0"), ("memory", "25.0"), ("overhead", "27.5"), ("unmodelled", "1.5"),
    ]  # fmt: skip
    # 7 ops: one has no formula, one no arithmetic.
    assert html.count("gb-mark ") == 5


def test_nothing_to_run_or_to_load(training: Diagnosis) -> None:
    training.ops[0].name = training.verdict = "<script>alert(1)</script>"
    training.source["name"] = '"><img src=x>'
    html = training._repr_html_()
    assert not re.search(r"<(script|img|link|iframe)|url\(|https?:", html)


def test_marks_lie_where_their_numbers_say(training: Diagnosis) -> None:
    for op in training.ops:
        op.flops_per_s = op.intensity = None
    first, second = training.ops[:2]
    first.intensity, first.flops_per_s, first.time_s = 1.0, 1e9, 0.02
    second.intensity, second.flops_per_s, second.time_s = 100.0, 1e11, 0.005
    chart = roofline_of(training)
    assert chart is not None
    a, b = chart.marks
    assert (a.x < b.x, a.y > b.y) == (True, True)
    # Area is time: a quarter of the time, half the radius.
    assert b.radius == a.radius / 2
    for mark in chart.marks:
        assert 0 < mark.x < WIDTH
        assert 0 < mark.y < HEIGHT


def test_without_anything_known(minimal: Diagnosis) -> None:
    assert roofline_of(minimal) is None
    assert "<svg" not in minimal._repr_html_()
