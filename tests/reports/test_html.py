"""The page without a browser: what is in it, that the parts sum, that nothing in it can run."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.diagnosis.fix_schema import Finding, Prediction
from gobrrr.diagnosis.schema import Diagnosis, TimelineColumns
from gobrrr.reports.html import read_asset, render, report_html
from gobrrr.reports.html.pack import chart_data, embed, number, text_column, timeline_data
from gobrrr.reports.html.view import page_of
from gobrrr.reports.html.waterfall import waterfall_of

EVIL = "</script><script>alert(1)</script><!-- \" ' & \u202e\u2028 {{ 7 * 7 }} javascript:x"


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = (dict(attrs).get("id") or "main") if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.words += data


def test_the_page_asks_for_nothing(training: Diagnosis) -> None:
    elements = Elements(report_html(training))
    loading = {"src", "srcset", "poster", "action", "formaction", "background", "manifest"}
    for tag, attributes in elements.tags:
        assert not loading & set(attributes), (tag, attributes)
        assert tag not in ("iframe", "object", "embed", "img", "base")
        if tag == "link":
            assert (attributes["href"] or "").startswith("data:")
    css = read_asset("report.css")
    assert "@import" not in css
    assert "url(" not in css


def test_only_the_bundled_script_may_run(training: Diagnosis) -> None:
    text = report_html(training)
    digest = base64.b64encode(hashlib.sha256(read_asset("report.js").encode()).digest()).decode()
    policy = next(
        attributes["content"]
        for tag, attributes in Elements(text).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}'" in (policy or "")
    assert "default-src 'none'" in (policy or "")
    assert f"<script>{read_asset('report.js')}</script>" in text
    # An end tag inside would end the element early.
    assert "</script" not in read_asset("report.js")
    assert "</style" not in read_asset("report.css")


def test_hostile_names_stay_text(training: Diagnosis) -> None:
    training.verdict = EVIL
    training.source["name"] = EVIL
    training.device.name = EVIL
    ceilings = training.device.ceilings
    ceilings[0] = dataclasses.replace(ceilings[0], source=EVIL)
    ceilings[1] = dataclasses.replace(ceilings[1], source="javascript:alert(1)")
    training.environment = {EVIL: EVIL, "list": [EVIL], "nan": float("nan")}
    training.notices = [EVIL]
    training.findings[0].because = training.findings[0].title = EVIL
    for op in training.ops:
        op.name = op.shapes = op.module = op.source = op.regime = op.phase = EVIL
    for group in training.modules + training.lines + training.classes:
        group.name = group.regime = EVIL
    training.coverage.unmodelled[0].op = EVIL * 200
    benign = len(Elements(report_html(_without_names(training))).tags)
    elements = Elements(report_html(training))
    scripts = [attributes for tag, attributes in elements.tags if tag == "script"]
    assert [attributes.get("id") for attributes in scripts] == ["data", None]
    assert len(elements.tags) == benign
    assert "\u202e" not in elements.words
    assert "49" not in elements.words.split("7 * 7")[0][-40:]
    assert not [a for _, a in elements.tags if (a.get("href") or "").startswith("javascript")]
    data = json.loads(elements.scripts["data"])
    assert data["ops"]["name"]["values"] == [
        EVIL.replace("\u202e", "\ufffd").replace("\u2028", " ")
    ]


def _without_names(diagnosis: Diagnosis) -> Diagnosis:
    import msgspec

    text = msgspec.json.encode(diagnosis).decode()
    plain = text.replace(json.dumps(EVIL, ensure_ascii=False)[1:-1], "x")
    copy = msgspec.json.decode(plain, type=Diagnosis)
    copy.environment["nan"] = float("nan")
    return copy


def test_embedded_json_survives_a_script_element() -> None:
    text = embed({"a": "</ScRiPt><!--", "b": "&\u2028\u2029"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": "</ScRiPt><!--", "b": "&\u2028\u2029"}


@pytest.mark.parametrize("name", ["minimal", "training"])
def test_unknown_is_shown_as_unknown(name: str, request: pytest.FixtureRequest) -> None:
    diagnosis: Diagnosis = request.getfixturevalue(name)
    for op in diagnosis.ops:
        op.flops = op.bytes = op.intensity = op.roof_s = op.roof_fraction = float("nan")
        op.module = op.source = op.phase = op.dtype = None
    diagnosis.mfu = diagnosis.speed_of_light_s = None
    text = report_html(diagnosis)
    assert not re.search(r"\b(NaN|nan|None|inf)\b", Elements(text).words)
    assert json.loads(Elements(text).scripts["data"])["ops"]["length"] == len(diagnosis.ops)


def test_numbers() -> None:
    assert number(None) is None
    assert number(float("nan")) is None
    assert number(float("inf")) is None
    assert number(3.0) == 3
    assert number(1.23456789e-7) == 1.234568e-07


def test_text_columns_name_each_text_once() -> None:
    assert text_column(["a", "b", None, "a", ""]) == {
        "values": ["a", "b"],
        "index": [0, 1, -1, 0, -1],
    }


def test_the_waterfall_falls_from_the_step_to_the_speed_of_light(training: Diagnosis) -> None:
    falls, _ = waterfall_of(training)
    first, *drops, last = falls
    assert (first.label, first.time) == ("measured", "100.0 ms")
    # Roofs: 30 matrix + 4 vector + 12 traffic = 46 ms; 100 - 46 = 54 ms fall.
    assert (last.label, last.time_s) == ("speed of light", 0.046)
    assert sum(fall.time_s for fall in drops) == pytest.approx(0.054)
    assert [fall.label for fall in drops][:3] == ["dispatch", "python", "unexplained"]
    for above, below in itertools.pairwise(drops):
        assert below.left + below.width == pytest.approx(above.left, abs=0.01)
    assert drops[-1].left == pytest.approx(last.width, abs=0.01)


def test_a_predicted_step_is_not_called_measured(training: Diagnosis) -> None:
    assert "From measured to speed of light" in report_html(training)
    training.step.time_s.n = 0
    text = report_html(training)
    assert "From predicted to speed of light" in text
    assert "From measured" not in text
    time = training.step.time_s
    low, high = time.low * 1e3, time.high * 1e3
    assert page_of(training).figures[0].note == f"predicted, {low:.1f} to {high:.1f}"


def test_small_leaves_share_a_row(training: Diagnosis) -> None:
    # 0.5 % of 100 ms is 0.5 ms: 0.4 and 0.3 ms share a row, 0.7 ms = 0.4 + 0.3.
    training.leaves["overhead.allocation"] = 0.0004
    training.leaves["overhead.garbage_collection"] = 0.0003
    falls, _ = waterfall_of(training)
    assert [f.time_s for f in falls if f.label == "other overhead"] == [pytest.approx(0.0007)]


def test_without_a_speed_of_light_the_waterfall_says_so(training: Diagnosis) -> None:
    training.speed_of_light_s = None
    falls, note = waterfall_of(training)
    assert falls[-1].label == "work at the ceilings"
    assert "speed of light is unknown" in note


def test_a_leaf_points_to_the_findings_that_act_on_it(training: Diagnosis) -> None:
    training.findings[1].leaves = ["compute.matrix.below"]
    falls, _ = waterfall_of(training)
    assert [f.findings for f in falls if f.label == "matrix below the ceiling"] == [(1,)]
    text = report_html(training)
    assert 'href="#finding-1"' in text
    assert 'id="finding-1"' in text


def test_split_segments_fill_the_bar(training: Diagnosis) -> None:
    page = page_of(training)
    assert sum(segment.width for segment in page.segments) == pytest.approx(100)
    # 46 of 100 ms.
    assert page.light == 46.0
    assert [segment.level for segment in page.segments] == [
        "compute", "memory", "overhead", "unmodelled",
    ]  # fmt: skip


def test_settings_of_which_none_is_set_are_no_row(training: Diagnosis) -> None:
    training.environment = {"python": "3.11", "settings": {}}
    page = render(training).decode()
    assert "<dt>python</dt>" in page
    assert "<dt>settings</dt>" not in page
    training.environment["settings"] = {"OMP_NUM_THREADS": "1"}
    assert "<dt>settings</dt><dd>OMP_NUM_THREADS=1</dd>" in render(training).decode()


def test_panels_without_content_are_left_out(minimal: Diagnosis, training: Diagnosis) -> None:
    assert 'id="ranks"' not in report_html(minimal)
    assert 'id="scaling"' not in report_html(minimal)
    assert 'id="scaling"' in report_html(training)


def test_columns_of_a_chart_match_the_rows(training: Diagnosis) -> None:
    ops = chart_data(training)["ops"]
    assert ops["length"] == 7
    assert ops["time_s"] == [op.time_s for op in training.ops]
    names = [ops["name"]["values"][i] for i in ops["name"]["index"]]
    assert names[:2] == ["addmm", "mm"]


def test_modules_have_their_class_in_the_columns(training: Diagnosis) -> None:
    training.modules = [
        replace(training.modules[0], name=f"layer.{i}.mlp", module_class=name)
        for i, name in enumerate(("BertLayer", "BertLayer", None))
    ]
    for rows, classes in (("modules", ["BertLayer", "BertLayer", None]), ("joined", [None])):
        column = chart_data(training)[rows]["module_class"]
        assert [([*column["values"], None])[i] for i in column["index"]] == classes


def unpacked(packed: dict[str, object]) -> dict[str, dict[str, list[int]]]:
    data = gzip.decompress(base64.b64decode(str(packed["data"])))
    columns: dict[str, dict[str, list[int]]] = {"host": {}, "kernel": {}, "idle": {}}
    offset = 0
    layout = packed["layout"]
    assert isinstance(layout, list)
    for entry in layout:
        size, length = entry["bytes"], entry["length"]
        values = np.frombuffer(data, f"<u{size}", length, offset)
        columns[entry["lane"]][entry["column"]] = values.tolist()
        offset += size * length
    assert offset == len(data)
    return columns


def test_the_timeline_comes_back_as_it_was() -> None:
    packed = timeline_data(
        TimelineColumns(
            names=["aten::mm", EVIL, "aten::mm"],
            host_start_ns=[500, 0, 0], host_duration_ns=[70_000, 10, 300],
            host_thread=[9, 4, 4], host_kind=[0, 5, 0], host_name=[0, 1, 2],
            kernel_start_ns=[600], kernel_duration_ns=[80], kernel_stream=[7], kernel_name=[2],
            kernel_regime=["memory"],
            idle_start_ns=[0], idle_duration_ns=[600], idle_cause=["python"],
        )
    )  # fmt: skip
    assert packed is not None
    columns = unpacked(packed)
    # Sorted by start, longer first: (0, 300), (0, 10), (500, 70000); starts as differences.
    assert columns["host"]["start"] == [0, 0, 500]
    assert columns["host"]["duration"] == [300, 10, 70_000]
    assert columns["host"]["lane"] == [0, 0, 1]
    # Equal names share an entry; 0 is no name.
    assert columns["host"]["name"] == [1, 2, 1]
    assert packed["names"][0] == "aten::mm"
    assert columns["kernel"]["kind"] == [1]
    assert packed["regimes"] == ["memory"]
    assert (packed["threads"], packed["streams"]) == ([4, 9], [7])
    assert (packed["end"], packed["unit_ns"]) == (70_500, 1)


def test_a_long_step_is_drawn_in_coarser_units() -> None:
    packed = timeline_data(
        TimelineColumns(
            names=["a"], kernel_start_ns=[0, 9_000_000_000], kernel_duration_ns=[10, 1_000_000_000],
            kernel_stream=[0, 0], kernel_name=[0, 0], kernel_regime=["compute", "compute"],
        )
    )  # fmt: skip
    # 10 s in 32 bits: ceil(1e10 / (2**32 - 1)) = 3 ns.
    assert packed is not None
    assert packed["unit_ns"] == 3
    assert unpacked(packed)["kernel"]["start"] == [0, 3_000_000_000]


def test_no_timeline() -> None:
    assert timeline_data(None) is None
    assert timeline_data(TimelineColumns()) is None


def test_the_page_is_small(training: Diagnosis) -> None:
    assert len(render(training)) < 300_000


def test_a_hundred_thousand_events_stay_under_ten_megabytes(training: Diagnosis) -> None:
    n = 100_000
    random = np.random.default_rng(0)
    gaps = random.integers(1, 20_000, n)
    training.timeline = TimelineColumns(
        names=[f"aten::op_{i}" for i in range(500)],
        host_start_ns=np.cumsum(gaps).tolist(),
        host_duration_ns=random.integers(1, 20_000, n).tolist(),
        host_thread=random.integers(0, 3, n).tolist(),
        host_kind=random.integers(0, 10, n).tolist(),
        host_name=random.integers(0, 500, n).tolist(),
    )
    # At most 4 + 4 + 1 + 1 + 2 bytes a span, a third more as base64: 1.6 MB.
    assert len(render(training)) < 2_000_000


def test_the_headline_is_a_whole_sentence(training: Diagnosis) -> None:
    cause = "Known cause: values are read one by one (.item(), .cpu()), train.py:28."
    training.verdict = f"{cause} Compute-bound. 46 % of each step is in compute-bound ops."
    page = page_of(training)
    assert page.lead == cause
    assert page.rest.startswith("Compute-bound.")


def test_a_finding_shows_the_figures_that_it_has(training: Diagnosis) -> None:
    training.findings = [
        Finding(fix="a", prediction=None, because="5.03 ms of the step.", advice=True, words=["x"]),
        Finding(fix="b", prediction=None, because="", advice=True, words=["x"], cause_share=0.25),
        Finding(
            fix="c",
            prediction=Prediction(low_s=0.01, expected_s=0.02, high_s=0.03, speedup=1.25),
            because="",
        ),
    ]
    nothing, share, predicted = (finding.figures for finding in page_of(training).findings)
    assert nothing == ()
    assert share == (("takes of the wall time", "25 %", ""),)
    assert predicted == (
        ("predicted", "1.25x", "saves 20.0 ms (10.0 to 30.0)"),
        ("measured", "not tried", ""),
    )
