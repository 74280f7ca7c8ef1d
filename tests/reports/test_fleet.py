from __future__ import annotations

import re
from html.parser import HTMLParser

from gobrrr.fleet.verdict import Answer, Culprit, FleetVerdict, HeatRow, RunVerdict
from gobrrr.reports.fleet import answer_text, fleet_text
from gobrrr.reports.html.fleet import fleet_html
from gobrrr.reports.terminal import Options

SLOW = Culprit(
    ranks=[56, 57, 58, 59],
    host="node07",
    whole_host=True,
    caused_s=0.0398,
    share=0.97,
    busier_s=0.0412,
    part="kernels",
    leaf="compute.matrix.below",
    excess_s=0.0405,
    place="aten::mm layers.*.mlp backward",
)
ONE = Culprit(
    ranks=[56],
    host="node07",
    caused_s=0.02,
    share=0.5,
    busier_s=0.041,
    part="overhead.data_loading",
    leaf="overhead.data_loading",
    excess_s=0.0405,
    place="<b>train.py:88",
)
VERDICT = FleetVerdict(
    runs=[
        RunVerdict(
            run="2026-11-21",
            ranks=1000,
            hosts=250,
            world_size=1000,
            steps=10,
            step_s=0.412,
            step_low_s=0.405,
            step_high_s=0.431,
            wait_s=0.04,
            transfer_s=0.012,
            network_s=0.052,
            named=SLOW,
            culprits=[ONE] * 10,
            groups=["compute", "overhead.data_loading"],
            heat=[
                HeatRow(label=f"node{i:02}", values_s=[0.1, 0.04 if i == 7 else 0.001])
                for i in range(250)
            ],
            heat_of="host",
            histogram_low_s=0.4,
            histogram_high_s=0.44,
            step_times=[0, 5, 10, 1],
            notices=["Traces of 2 ranks are missing (7, 9)."],
        )
    ],
    files=1002,
    bytes=10_000_000_000,
    read=1002,
    read_s=125.0,
    errors=["bad.json: is empty", "<script>alert(1)</script>.json: is empty"],
    worker_bytes=300_000_000,
    merge_s=4.2,
)


def test_the_verdict_names_the_host_with_evidence() -> None:
    text = fleet_text(VERDICT, Options())
    flat = " ".join(text.split())
    assert "run 2026-11-21: 1,000 ranks on 250 hosts" in flat
    assert "The other ranks wait for host node07 (ranks 56 to 59), 39.8 ms per step each" in flat
    assert "(97 % of all waiting): it spends 40.5 ms per step more than the others" in flat
    assert "on kernels (compute · matrix below" in flat
    assert "at aten::mm layers.*.mlp backward" in flat
    assert "52.0 ms per step, 40.0 ms of it waiting for a later rank" in flat
    assert "2 of 1002 files could not be read" in flat
    assert "a worker used at most 300 MB of memory" in flat
    assert max(len(line) for line in text.splitlines()) <= 80


def test_nobody_is_named_where_nobody_stands_out() -> None:
    run = RunVerdict(run="r", ranks=4, step_s=0.1, step_high_s=0.1, culprits=[ONE])
    text = " ".join(fleet_text(FleetVerdict(runs=[run]), Options()).split())
    assert "run r: 4 ranks, hosts unknown" in text
    assert "No rank stands out: the largest share of the waiting, 50 %, is for rank 56" in text


def test_ascii_where_the_stream_must_be() -> None:
    fleet_text(VERDICT, Options(ascii_only=True)).encode("ascii")


class Page(HTMLParser):
    """Tags and references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_is_self_contained_and_drawn_without_a_script() -> None:
    html = fleet_html(VERDICT)
    page = Page()
    page.feed(html)
    assert all(ref.startswith(("#", "data:")) for ref in page.references)
    assert "://" not in html.split("<style>")[0].replace("http://www.w3.org/2000/svg", "")
    # 250 hosts by 2 causes, twice (ground and strength), and 3 bars.
    assert page.tags["rect"] == 250 * 2 * 2 + 3
    assert page.tags["svg"] == 2
    assert "<h1>The others wait for host node07 (ranks 56 to 59)</h1>" in html
    assert "host node07, data loading: 40.0 ms (median 1.0 ms)" in html
    assert "10 steps of" in html


def test_nothing_of_a_name_becomes_markup() -> None:
    html = fleet_html(VERDICT)
    assert "<script>alert" not in html
    assert "<b>train" not in html
    assert "&lt;b&gt;train.py:88" in html


def test_the_most_different_cell_is_the_strongest() -> None:
    html = fleet_html(VERDICT)
    strengths = re.findall(r'fill-opacity="([0-9.]+)"><title>([^<]*)', html)
    strongest = max(strengths, key=lambda pair: float(pair[0]))
    assert strongest[1].startswith("host node07, data loading")
    assert float(strongest[0]) == 1.0


def test_an_answer_is_a_plain_table_of_80_columns() -> None:
    answer = Answer(("host", "cause", "sum(s)"), (("node00", "python", 0.25), (None, "x" * 90, 12)))
    lines = answer_text(answer, Options()).splitlines()
    assert lines[0].split() == ["host", "cause", "sum(s)"]
    assert lines[1].split() == ["node00", "python", "0.25"]
    assert lines[2].startswith("-")
    assert lines[2].endswith("…      12")
    assert max(map(len, lines)) == 80


def test_many_columns_become_blocks() -> None:
    answer = Answer(tuple(f"column{i}" for i in range(20)), ((0.5,) * 20, (1,) * 20))
    text = answer_text(answer, Options())
    assert "column19  0.5\n\ncolumn0   1\n" in text


def test_an_answer_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in answer_text(Answer(("a",), (("\x1b[31m",),)), Options())


def test_an_answer_without_rows_has_its_header() -> None:
    assert answer_text(Answer(("a", "b"), ()), Options()) == "a  b\n"
