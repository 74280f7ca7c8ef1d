"""The report in a real browser: every panel there and reacting, nothing asked for, no error."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.browser.page import Page
from tests.reports.drawn_ranks import job
from tests.reports.test_fleet import VERDICT

from gobrrr.diagnosis.comparison import compare
from gobrrr.diagnosis.schema import BatchDoubling, Diagnosis, GrowthRow, RankRow, Split, Spread
from gobrrr.reports.html import render
from gobrrr.reports.html.comparison import comparison_html
from gobrrr.reports.html.fleet import fleet_html

Open = Callable[..., Page]
# The tooltip is there, for conditions in the page.
SHOWN = "!document.getElementById('tip').hidden"
PANELS = ["filters", "op-table", "roofline-chart", "where-view"]
EVIL = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>\"'& \u202e"


def complete(diagnosis: Diagnosis) -> Diagnosis:
    """With every optional panel."""
    spread = Spread(median=0.1, mean=0.1, low=0.09, high=0.11, n=20)
    diagnosis.batch_doubling = BatchDoubling(
        time_s=spread,
        doubled_time_s=Spread(median=0.13, mean=0.13, low=0.12, high=0.14, n=20),
        ratio=1.3, work_ratio=1.9, expected_s=0.19, overhead_s=0.06, split_overhead_s=0.055,
        agrees=True, sentence="Twice the batch took 1.30x the time; its work grew 1.90x.",
        ops=[GrowthRow(name="aten::mm", shapes="[2x2]", count=3, time_s=0.01, doubled_s=0.012,
                       expected_s=0.02)],
    )  # fmt: skip
    diagnosis.ranks = [
        RankRow(
            rank=rank, step_s=0.1 + rank / 100, leaves={}, why="late at all_reduce" if rank else "",
            split=Split(compute_s=0.05, memory_s=0.03, overhead_s=0.02, unmodelled_s=0.0),
        )
        for rank in range(4)
    ]  # fmt: skip
    diagnosis.lanes = job(4, 2)
    return diagnosis


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_panel_is_drawn(
    open_page: Open, recorded: Diagnosis, training: Diagnosis, width: int, dark: bool
) -> None:
    training = complete(training)
    training.timeline = recorded.timeline
    page = open_page(training, width, dark)
    page.show_timeline()
    for panel in PANELS:
        assert page.js("'ready' in document.getElementById(arguments[0]).dataset", panel), panel
    for section in ("verdict", "waterfall", "findings", "roofline", "ops", "timeline", "where",
                    "classes", "scaling", "ranks", "machine"):  # fmt: skip
        box = page.one(f"#{section}").size
        assert box["height"] > 50, section
    # Nothing sticks out sideways; tables scroll in their own box.
    assert page.js("document.documentElement.scrollWidth") <= width
    assert len(page.all(".marks path")) == 6  # 7 ops, one without a formula
    assert not page.all(".none")
    theme = "dark" if dark else "light"
    page.screenshot(f"complete_{width}_{theme}")
    assert page.errors() == []
    assert page.requests() == []


# Names in a comparison that begin on the line after their key.
BROKEN = """[...document.querySelectorAll('.moves .key')].filter(key => {
    const range = document.createRange();
    range.selectNode(key.nextSibling);
    return range.getClientRects()[0].top > key.getBoundingClientRect().bottom;
}).map(key => key.parentElement.textContent)"""
# Labels of the split that are wider than their part of it.
CUT = """[...document.querySelectorAll('.split .seg')]
    .filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.trim())"""


@pytest.mark.parametrize("width", [1280, 390, 340])
def test_labels_of_the_split_are_whole_or_not_there(
    open_page: Open, training: Diagnosis, width: int
) -> None:
    for overhead in (0.05, 0.2, 0.3, 0.35, 0.4):
        parts = {"compute_s": 0.1 * overhead, "memory_s": 0.1 * (1 - 2 * overhead)}
        split = Split(**parts, overhead_s=0.1 * overhead, unmodelled_s=0.0)
        page = open_page(replace(training, split=split), width)
        assert page.js(CUT) == [], overhead


@pytest.mark.parametrize("width", [1280, 390])
def test_a_comparison(open_page: Open, training: Diagnosis, width: int) -> None:
    """Tables scroll in their own box, and what a row is about stays beside its colour."""
    after = msgspec.json.decode(msgspec.json.encode(training), type=Diagnosis)
    for row in after.ops:
        row.time_s *= 2
    after.leaves = {name: 2 * value for name, value in after.leaves.items()}
    after.ops[0].name = training.ops[0].name = "aten::_foreach_addcmul_"
    page = open_page(comparison_html(compare(training, after)).encode(), width)
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js(BROKEN) == []
    page.screenshot(f"comparison_{width}")
    assert (page.errors(), page.requests()) == ([], [])


@pytest.mark.parametrize("width", [1280, 390])
def test_a_fleet(open_page: Open, width: int) -> None:
    page = open_page(fleet_html(VERDICT).encode(), width)
    assert page.js("document.documentElement.scrollWidth") <= width
    # Evidence is a sentence, which is read in lines.
    assert page.one("tbody tr").size["height"] < 100
    page.screenshot(f"fleet_{width}")
    assert (page.errors(), page.requests()) == ([], [])


@pytest.mark.parametrize("width", [1280, 390])
def test_a_recorded_step(open_page: Open, recorded: Diagnosis, width: int) -> None:
    page = open_page(recorded, width)
    page.show_timeline()
    assert page.js("document.documentElement.scrollWidth") <= width
    page.screenshot(f"recorded_{width}")
    assert (page.errors(), page.requests()) == ([], [])


def test_nothing_known_is_still_a_page(open_page: Open, minimal: Diagnosis) -> None:
    page = open_page(minimal)
    assert len(page.all(".none")) >= 5
    assert page.errors() == []


# Names of ceilings that lie on each other or on a mark, and what leaves the axes.
CROWDED = """(() => {
    const box = e => e.getBoundingClientRect();
    const frame = box(document.querySelector('.axes .frame'));
    const names = [...document.querySelectorAll('.roof-names text')];
    const points = name => {
        // Along its middle: the box of a slanted name holds much that it does not.
        const at = name.getCTM(), length = name.getComputedTextLength();
        return [...Array(Math.floor(length / 4)).keys()].map(
            i => [at.a * 4 * i + at.e, at.b * 4 * i + at.f]);
    };
    const near = (a, b, least) => a.some(([x, y]) => b.some(
        ([u, v]) => Math.hypot(x - u, y - v) < least));
    const found = names.flatMap((name, i) => names.slice(i + 1).filter(
        other => near(points(name), points(other), 9)).map(other => name.textContent));
    for (const mark of document.querySelectorAll('.marks path')) {
        const own = box(mark), svg = box(mark.ownerSVGElement);
        if (own.left < frame.left - 1 || own.right > frame.right + 1
            || own.bottom > frame.bottom + 1.5 || own.top < frame.top - 1)
            found.push('a mark leaves the axes');
        const middle = [own.left + own.width / 2 - svg.left, own.top + own.height / 2 - svg.top];
        for (const name of names) if (near(points(name), [middle], own.width / 2))
            found.push(`a mark on ${name.textContent}`);
    }
    return names.length ? found : ['no name at all'];
})()"""


@pytest.mark.parametrize("width", [1400, 500, 390])
def test_nothing_on_the_roofline_lies_on_a_name(
    open_page: Open, training: Diagnosis, recorded: Diagnosis, width: int
) -> None:
    # Two ceilings at nearly one height, and levels near each other.
    rate = training.device.ceilings[0]
    training.device.ceilings.append(
        dataclasses.replace(
            rate, name=rate.name.replace("matrix", "vector"), value=1.2 * rate.value
        )
    )
    for diagnosis in (training, recorded):
        assert open_page(diagnosis, width).js(CROWDED) == []


@pytest.mark.parametrize("width", [1280, 500, 390])
def test_each_section_is_in_the_navigation_and_to_be_seen(
    open_page: Open, training: Diagnosis, width: int
) -> None:
    page = open_page(complete(training), width)
    links = page.all(".bar nav a")
    shown = {
        link.get_attribute("hash") or link.get_attribute("href").split("#")[1] for link in links
    }
    assert {"where", "classes", "machine"} <= {name.lstrip("#") for name in shown}
    for link in links:
        place = link.rect
        assert place["width"] > 0 and 0 <= place["x"] <= place["x"] + place["width"] <= width


def test_the_timeline_is_drawn_before_anybody_comes_to_it(
    open_page: Open, recorded: Diagnosis
) -> None:
    page = open_page(recorded)
    page.wait("'ready' in document.getElementById('timeline-view').dataset")
    page.wait("!!document.querySelector('canvas.lanes')?.dataset.view")
    assert page.js("scrollY") == 0


# What can be operated; radio-like groups (the icicle) are one stop, within which arrows go.
OPERABLE = """[...document.querySelectorAll(
    'a[href], button:not([disabled]), input, select, summary, [tabindex="0"]')]
    .filter(e => e.tabIndex >= 0 && e.checkVisibility() && !e.closest('[hidden]'))"""


def test_all_is_reached_by_tab_and_shows_that_it_is(
    open_page: Open, training: Diagnosis, recorded: Diagnosis
) -> None:
    training.timeline = recorded.timeline
    page = open_page(complete(training))
    page.show_timeline()
    operable = page.js(f"{OPERABLE}.length")
    page.run("scrollTo(0, 0); document.activeElement.blur(); window.seen = new Set()")
    key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    without_outline = []
    for _ in range(operable):
        page.cdp("Input.dispatchKeyEvent", type="keyDown", **key)
        page.cdp("Input.dispatchKeyEvent", type="keyUp", **key)
        page.run("seen.add(document.activeElement)")
        if not page.js(
            "(({outlineStyle, outlineWidth}) => outlineStyle !== 'none' && outlineWidth !== '0px')"
            "(getComputedStyle(document.activeElement))"
        ):
            without_outline.append(page.js("document.activeElement.outerHTML.slice(0, 80)"))
    assert page.js(f"{OPERABLE}.filter(e => !seen.has(e)).map(e => e.outerHTML.slice(0, 80))") == []
    assert without_outline == []
    # The heads of the table sort by a key, and what is folded opens by one.
    page.press(".ops th button", "\ue007")
    assert page.all(".ops th")[0].get_attribute("aria-sort") == "ascending"
    page.press("summary", " ")
    assert page.js("document.querySelector('summary').parentElement.open")


def test_pointing_at_a_mark_tells_about_it(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    x, y = page.js(
        "document.querySelector('.marks .memory').getAttribute('transform').match(/[\\d.]+/g)"
    )
    page.point_until(".roofline", float(x), float(y), SHOWN)
    tip = page.one("#tip")
    assert "_foreach_addcdiv_" in tip.text
    assert "train_gpt.py:97" in tip.text
    page.point_until(".roofline", 300, 5, f"!({SHOWN})")
    assert not tip.is_displayed()


def test_a_click_on_a_mark_opens_its_row(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    x, y = page.js(
        "document.querySelector('.marks .memory').getAttribute('transform').match(/[\\d.]+/g)"
    )
    page.point(".roofline", float(x), float(y), click=True)
    selected = page.one("tr.selected")
    assert "_foreach_addcdiv_" in selected.text
    assert "170 MB" in page.one("tr.details").text
    assert len(page.all(".marks .selected")) == 1
    page.click("tr.selected td.n")
    assert page.all("tr.selected") == []


def test_marks_are_reached_by_keys(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    page.press(".roofline", "\ue014")  # right: the op with the most time
    assert page.says("#tip", "addmm")
    page.press(".roofline", "\ue014", "\ue007")  # the next, enter
    assert page.one("tr.selected .name").text == "mm"


def test_filters_act_on_the_roofline_and_the_table(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    before = len(page.all(".ops tbody tr"))
    assert before == 7
    page.click('[data-regime="memory"]')
    assert page.all(".marks .memory") == []
    assert len(page.all(".ops tbody tr")) == 4  # 3 of 7 are bound by memory
    page.click('[data-regime="memory"]')
    page.run(
        "const s = document.getElementById('by-phase'); s.value = 'backward';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert [cell.text for cell in page.all(".ops .name")] == ["mm"]
    assert len(page.all(".marks path")) == 1
    page.run(
        "const s = document.getElementById('by-phase'); s.value = '';"
        "s.dispatchEvent(new Event('change'))"
    )
    page.press("#search", "layer")
    assert [cell.text for cell in page.all(".ops .name")] == ["native_layer_norm"]


def test_the_table_sorts(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    names = [cell.text for cell in page.all(".ops .name")]
    assert names[0] == "addmm"  # the most time first
    page.click(".ops th button", 0)
    names = [cell.text for cell in page.all(".ops .name")]
    assert names == sorted(names, key=str.casefold)
    head = page.all(".ops th")[1]
    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.all(".ops .name")[0].text == "mylib::fused_rope"  # 1.5 ms, the least


def test_the_timeline_zooms_and_goes_to_gaps(open_page: Open, recorded: Diagnosis) -> None:
    page = open_page(recorded)
    page.show_timeline()
    whole = page.view()
    page.press("canvas.lanes", "+")
    low, high = page.view()
    assert high - low == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    page.press("canvas.lanes", "\ue014")
    moved = page.view()
    # A fifth of what is seen.
    assert moved[0] - low == pytest.approx((high - low) / 5, rel=0.01)
    page.press("canvas.lanes", "n")
    idle = recorded.timeline.idle_duration_ns if recorded.timeline else []
    low, high = page.view()
    assert high - low == pytest.approx(2.2 * max(idle), rel=0.02)
    assert "Idle gap 1" in page.one(".said").text
    page.press("canvas.lanes", "0")
    assert page.view() == whole


def test_the_wheel_scrolls_until_the_timeline_is_clicked(
    open_page: Open, recorded: Diagnosis
) -> None:
    page = open_page(recorded)
    page.show_timeline()
    whole = page.view()
    page.point("canvas.lanes", 600, 60)
    wheel = {"type": "mouseWheel", "deltaX": 0, "deltaY": -240}
    x, y = page.run(
        "const b = document.querySelector('canvas.lanes').getBoundingClientRect();"
        "return [b.left + 600, b.top + 60]"
    )
    page.cdp("Input.dispatchMouseEvent", x=x, y=y, **wheel)
    assert page.view() == whole
    page.point("canvas.lanes", 600, 60, click=True)
    x, y = page.run(
        "const b = document.querySelector('canvas.lanes').getBoundingClientRect();"
        "return [b.left + 600, b.top + 60]"
    )
    page.cdp("Input.dispatchMouseEvent", x=x, y=y, **wheel)
    low, high = page.view()
    assert high - low < 0.8 * (whole[1] - whole[0])


def test_a_kernel_tells_about_itself(open_page: Open, recorded: Diagnosis) -> None:
    page = open_page(recorded)
    page.show_timeline()
    timeline = recorded.timeline
    assert timeline is not None
    longest = max(
        range(len(timeline.kernel_start_ns)), key=lambda i: timeline.kernel_duration_ns[i]
    )
    middle = timeline.kernel_start_ns[longest] + timeline.kernel_duration_ns[longest] / 2
    width = page.one("canvas.lanes").size["width"]
    low, high = page.view()
    # The first lane: 24 of axis, 16 of title, then the row.
    x, y = (middle - low) / (high - low) * width, 24 + 16 + 6
    page.point("canvas.lanes", x, y, click=True)
    name = timeline.names[timeline.kernel_name[longest]]
    assert page.says(".said", name[:40])
    page.point_until("canvas.lanes", x, y, SHOWN)
    assert page.says("#tip", "duration")


def test_where_zooms_and_switches(open_page: Open, recorded: Diagnosis) -> None:
    page = open_page(recorded)
    before = page.js("document.querySelectorAll('.icicle button').length")
    deepest = page.all(".icicle button")[2]
    name = deepest.find_element("css selector", "span").get_attribute("textContent")
    page.run("arguments[0].click()", deepest)
    assert page.all(".crumbs button")[-1].text == name
    page.click(".crumbs button", 0)
    assert page.js("document.querySelectorAll('.icicle button').length") == before
    page.press(".icicle button", "\ue015")  # down
    assert page.js("document.activeElement.querySelector('span').textContent") != "step"
    page.click("#where-view .chip", 1)
    lines = page.all("#where-view .chip")[1]
    assert lines.get_attribute("aria-pressed") == "true"
    assert page.all(".icicle button")


def test_where_names_modules_with_their_class(open_page: Open, training: Diagnosis) -> None:
    classes = {"encoder.layer.0": "BertLayer", "encoder.layer.1": "BertLayer",
               "encoder.Pooler": "Pooler", "head": None}  # fmt: skip
    training.modules = [
        replace(training.modules[0], name=path, module_class=name) for path, name in classes.items()
    ]
    page = open_page(training)
    shown = page.js("[...document.querySelectorAll('.icicle span')].map(e => e.textContent)")
    # None where the module's own name is its class.
    assert set(shown) == {
        "step", "encoder", "layer", "0 (BertLayer)", "1 (BertLayer)", "Pooler", "head",
    }  # fmt: skip
    button = "document.querySelector('.icicle button[aria-label^=\"0 (BertLayer), \"]')"
    assert page.js(f"{button} !== null")


def test_themes_and_print(open_page: Open, training: Diagnosis) -> None:
    page = open_page(training)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.js(ground)
    for _ in range(2):
        page.click("#theme")
    assert page.js("document.documentElement.dataset.theme") == "dark"
    assert page.js(ground) != light
    pdf = base64.b64decode(page.cdp("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert page.errors() == []


def test_hostile_names_are_inert(open_page: Open, recorded: Diagnosis, training: Diagnosis) -> None:
    training.verdict = training.source["name"] = training.device.name = EVIL
    training.timeline = recorded.timeline
    assert training.timeline is not None
    names = training.timeline.names
    training.timeline.names = [EVIL + "x" * 10_000 for _ in names]
    training.timeline.idle_cause = [EVIL for _ in training.timeline.idle_cause]
    training.timeline.kernel_regime = [EVIL for _ in training.timeline.kernel_regime]
    for op in training.ops:
        op.name = op.shapes = op.module = op.source = op.phase = op.regime = EVIL + "y" * 10_000
        op.intensity = float("nan")
    training.ops[1].name = ""
    for group in [*training.modules, *training.lines]:
        group.name = EVIL
    training.device.levels[0].name = EVIL
    training.device.ceilings[0] = dataclasses.replace(training.device.ceilings[0], name=EVIL)
    try:
        page = open_page(training)
        page.show_timeline()
        page.point(".roofline", 300, 200)
        page.press("canvas.lanes", "n", "p")
        page.click(".ops .open")
        for at in (0, 1):
            page.click("#where-view .chip", at)
        assert page.js("window.ran") is None
        assert page.js("document.scripts.length") == 3
        assert page.all("img") == []
        assert page.js("document.documentElement.scrollWidth") <= 1280
        page.screenshot("hostile_1280")
        assert (page.errors(), page.requests()) == ([], [])
    finally:
        training.timeline.names = names


# Of shares and times beside bars: what is written, and the room that its column has.
WIDER_THAN_ITS_COLUMN = """[...document.querySelectorAll('.level .n, .fall .n')].map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const [written, room] = [range, cell].map(each => each.getBoundingClientRect().width);
    return written > room + 0.5 ? `${cell.textContent} ${written} > ${room}` : '';
}).filter(Boolean)"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_widest_shares_fit_their_column(
    open_page: Open, training: Diagnosis, width: int
) -> None:
    # 100.0 % and <0.1 %, of a part and of a whole level.
    step_s = training.accounted_s
    training.leaves = dict.fromkeys(training.leaves, 0.0)
    training.leaves["overhead.python"] = step_s * (1 - 2e-5)
    training.leaves["memory.device.below"] = step_s * 2e-5
    training.split = Split(
        compute_s=0.0, memory_s=step_s * 2e-5, overhead_s=step_s * (1 - 2e-5), unmodelled_s=0.0
    )
    training.check()
    page = open_page(training, width)
    shares = page.js("[...document.querySelectorAll('.pct')].map(cell => cell.textContent)")
    assert {"100.0 %", "<0.1 %"} <= set(shares)
    assert page.js(WIDER_THAN_ITS_COLUMN) == []


def test_a_hundred_thousand_events(open_page: Open, large: Diagnosis) -> None:
    data = render(large)
    assert len(data) < 10_000_000
    page = open_page(data)
    page.show_timeline()
    whole = page.view()
    page.press("canvas.lanes", *"++++++")
    low, high = page.view()
    assert high - low == pytest.approx((whole[1] - whole[0]) / 64, rel=0.01)
    page.click(".more")
    assert len(page.all(".ops tbody tr")) == 2000
    assert page.errors() == []
