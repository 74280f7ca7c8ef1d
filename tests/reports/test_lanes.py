"""Ranks as lanes on the page: where bars and arrows lie, and what is said beside them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from tests.reports.drawn_ranks import job

from gobrrr.diagnosis.schema import Diagnosis, JobLanes, RankRow, Split
from gobrrr.reports.html import report_html
from gobrrr.reports.html.lanes import BarView, TickView, lanes_view

SVG = "{http://www.w3.org/2000/svg}"


def with_ranks(diagnosis: Diagnosis, lanes: JobLanes | None) -> Diagnosis:
    split = Split(compute_s=0.05, memory_s=0.03, overhead_s=0.02, unmodelled_s=0.0)
    diagnosis.ranks = [RankRow(rank=rank, step_s=0.1, leaves={}, split=split) for rank in range(2)]
    diagnosis.lanes = lanes
    return diagnosis


def drawing(page: str) -> ElementTree.Element:
    found = re.search(r"<svg[^>]*lanes-title.*?</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def test_waiting_and_transfer_are_apart_and_an_arrow_leads_to_who_comes_last() -> None:
    view = lanes_view(job())
    assert view is not None
    early, late = view.lanes
    assert [(bar.kind, bar.left, bar.width) for bar in early.calls] == [
        ("wait", 30.0, 40.0), ("transfer", 70.0, 20.0),
    ]  # fmt: skip
    assert [(bar.kind, bar.left, bar.width) for bar in late.calls] == [("transfer", 70.0, 20.0)]
    assert early.calls[0].title == "all_reduce: 60.0 ms, 40.0 ms of it waiting for rank 1"
    assert early.work[0] == BarView("forward", 0.0, 10.0, "fwd", "forward: 10.0 ms")
    assert early.work[2] == BarView("other", 91.0, 2.0, "", "other: 2.00 ms")
    (arrow,) = view.arrows
    assert (arrow.x1, arrow.x2) == (30.0, 70.0)
    # From the middle of the collectives of one lane to that of the other.
    half = view.calls_height / 2
    assert (arrow.y1, arrow.y2) == (early.calls_top + half, late.calls_top + half)
    assert view.phases == ("forward", "backward", "other")
    assert (view.full, view.left_out) == ("transfer", "")


def test_the_residual_of_the_clocks_is_stated() -> None:
    drawn = job()
    view = lanes_view(drawn)
    assert view is not None
    assert view.clocks == (
        "The ranks ran on one host and share its clock; the recorded ends of a collective differ "
        "by 25.0 µs between ranks (median)."
    )
    drawn.one_clock, drawn.clock_residual_s = False, None
    view = lanes_view(drawn)
    assert view is not None
    assert view.clocks == (
        "The ranks' clocks are aligned by the ends of collectives, which all ranks see."
    )


def test_the_axis_has_few_round_times() -> None:
    view = lanes_view(job())
    assert view is not None
    assert view.ticks[0] == TickView(0.0, "0", "start")
    assert [tick.label for tick in view.ticks] == [
        "0", "20.0 ms", "40.0 ms", "60.0 ms", "80.0 ms", "100 ms",
    ]  # fmt: skip
    for duration in (1, 7, 99, 1_234_567, 5 * 10**9, 999_999_999_999):
        drawn = job()
        drawn.duration_ns = duration
        view = lanes_view(drawn)
        assert view is not None
        assert 2 <= len(view.ticks) <= 6, duration


@pytest.mark.parametrize("ranks", [2, 20, 64])
def test_the_drawing_is_well_formed_named_and_small(training: Diagnosis, ranks: int) -> None:
    bare = len(report_html(with_ranks(training, None)))
    page = report_html(with_ranks(training, job(ranks, 800 // ranks)))
    root = drawing(page)
    ids = {element.get("id"): element for element in root.iter() if element.get("id")}
    for name in (root.get("aria-labelledby") or "").split():
        assert ids[name].text, name
    assert (
        f"{ranks} ranks in a step of 100 ms. The longest wait is that of rank 0, 40.0 ms for "
        in (ids["lanes-desc"].text or "")
    )
    bottom = float(root.get("height") or 0)
    assert bottom < 1100
    for bar in root.iter(f"{SVG}rect"):
        left, width = (float((bar.get(key) or "").rstrip("%")) for key in ("x", "width"))
        assert 0 <= left <= left + width <= 100.001
        assert float(bar.get("y") or 0) + float(bar.get("height") or 0) < bottom
    assert len(list(root.iter(f"{SVG}g"))) == ranks
    assert len(page) - bare < 350_000


def test_what_is_not_drawn_is_said(training: Diagnosis) -> None:
    drawn = job(3, 80)
    drawn.ranks = 128
    drawn.lanes[0].left_out = 1500
    drawn.lanes[1].call_wait_ns = [None] * 80
    drawn.lanes[1].call_waits_for = [None] * 80
    view = lanes_view(drawn)
    assert view is not None
    assert view.left_out == (
        "Not drawn: 125 of 128 ranks (those that wait least and are waited for least); the 1,500 "
        "shortest collectives."
    )
    assert view.full.startswith("transfer, or waiting and transfer that are not told apart")
    view = lanes_view(job(3, 80))
    assert view is not None
    # 2 x 80 waits, of which 100 have an arrow.
    assert len(view.arrows) == 100
    assert view.left_out == "Not drawn: arrows of the 60 shortest waits."
    assert view.left_out in report_html(with_ranks(training, job(3, 80)))


def test_hostile_names_stay_text_and_nothing_is_drawn_of_nothing(training: Diagnosis) -> None:
    drawn = job()
    drawn.names, drawn.step = ["</svg><script>x"], "<b>\u202e"
    root = drawing(report_html(with_ranks(training, drawn)))
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert any("</svg><script>x: 60.0 ms" in title for title in titles)
    assert lanes_view(None) is None
    empty = JobLanes(step="", duration_ns=0, ranks=2, one_clock=True)
    assert lanes_view(empty) is None
    assert "lanes-title" not in report_html(with_ranks(training, empty))


def test_a_job_without_waiting_says_so() -> None:
    drawn = job()
    drawn.lanes[0].call_wait_ns, drawn.lanes[0].call_waits_for = [0], [None]
    view = lanes_view(drawn)
    assert view is not None
    assert view.arrows == ()
    assert view.summary.endswith("No collective waits for another rank.")
