"""The comparison as text, as JSON and as a page; the two commands."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.cli import main
from gobrrr.diagnosis.comparison import compare
from gobrrr.diagnosis.schema import OF_THE_MACHINE, Diagnosis
from gobrrr.reports.compare import (
    comparison_json,
    comparison_markdown,
    comparison_text,
    counter_label,
    counter_text,
    headline,
    relative_text,
)
from gobrrr.reports.html.comparison import comparison_html
from gobrrr.reports.terminal import Options

EVIL = "</td><script>alert(1)</script>\u202e"


@pytest.fixture
def after(training: Diagnosis) -> Diagnosis:
    """Dispatch took 9 of 15 ms less, addmm 3.2 ms less, one op is gone."""
    later = copy.deepcopy(training)
    later.leaves["overhead.dispatch"] -= 0.009
    later.split.overhead_s -= 0.009
    time = later.step.time_s
    time.low, time.median, time.mean, time.high = 0.0895, 0.091, 0.091, 0.0923
    later.ops[0].time_s -= 0.0032
    later.ops.pop()
    later.counters["ops"] = 200
    return later


def test_text(training: Diagnosis, after: Diagnosis) -> None:
    assert comparison_text(compare(training, after), Options(width=80)) == (
        """train_gpt.py
100.0 → 91.0 ms per step: 1.10x (1.07 to 1.13), faster

counted per step  before  after
ops                  611    200    -67 %

            before  after    ms
compute       46.0   46.0   0.0
memory        25.0   25.0   0.0
overhead      27.5   18.5  -9.0  -33 %
unmodelled     1.5    1.5   0.0

part                 before  after    ms
overhead · dispatch    15.0    6.0  -9.0  -60 %

op                                                  before  after    ms
addmm [1536] [512x384] [384x1536] · blocks.*.mlp.…    16.0   12.8  -3.2  -20 %
mylib::fused_rope [8x64x6x64] · blocks.*.attn · f…     1.5      -  -1.5   gone
"""
    )


def test_no_interval_no_claim(training: Diagnosis, after: Diagnosis) -> None:
    after.step.time_s.n = 1
    text = headline(compare(training, after))
    assert text == "100.0 → 91.0 ms per step: 1.10x, too few steps for an interval"


def test_predictions_have_no_steps_to_be_too_few(training: Diagnosis, after: Diagnosis) -> None:
    after.step.time_s.n = 0
    text = headline(compare(training, after))
    assert text == "100.0 → 91.0 ms per step: 1.10x, after is predicted"
    training.step.time_s.n = 0
    compared = compare(training, after)
    assert headline(compared) == "100.0 → 91.0 ms per step: 1.10x, both predicted"
    page = comparison_html(compared)
    assert page.count(" · predicted</small>") == 2
    assert "0 steps" not in page


def test_steps_far_apart_have_a_unit_each(training: Diagnosis, after: Diagnosis) -> None:
    shrink = 3e-6
    time = after.step.time_s
    time.low, time.median, time.mean, time.high = (
        each * shrink for each in (0.0985, 0.1, 0.1, 0.1013)
    )
    after.leaves = {name: each * shrink for name, each in training.leaves.items()}
    for level in ("compute", "memory", "overhead", "unmodelled"):
        setattr(after.split, f"{level}_s", getattr(training.split, f"{level}_s") * shrink)
    compared, back = compare(training, after), compare(after, training)
    assert headline(compared) == "100 ms → 300 ns per step: 333,000x as fast, faster"
    assert headline(back) == "300 ns → 100 ms per step: 333,000x as long, slower"
    text = comparison_text(back, Options(width=80))
    header, compute, *_ = text.split("\n\n")[1 + ("counted" in text)].splitlines()
    assert header.split() == ["before", "after", "change"]
    assert compute.split() == ["compute", "138", "ns", "46.0", "ms", "+46.0", "ms", "333,333x"]
    page = comparison_html(back)
    assert '<td class="n">138 ns</td><td class="n">46.0 ms</td>' in page
    assert "&lt;0" not in page and "0.00x" not in page


def test_json(training: Diagnosis, after: Diagnosis) -> None:
    data = json.loads(comparison_json(compare(training, after)))
    assert data["comparison_version"] == 1
    assert data["verdict"] == "faster"
    assert data["ops"][0]["before_s"] == 0.016


def test_page(training: Diagnosis, after: Diagnosis) -> None:
    after.ops[0].module = training.ops[0].module = EVIL
    after.source["name"] = after.device.name = EVIL
    text = comparison_html(compare(training, after))
    assert text.count("<script>") == 1
    assert "alert(1)" in text
    assert "\u202e" not in text
    assert 'id="data"' not in text


def test_page_of_nothing(minimal: Diagnosis) -> None:
    assert "No op moved." in comparison_html(compare(minimal, minimal))


def one_read_more(diagnosis: Diagnosis) -> Diagnosis:
    """The same step on a processor with one `.item()` beside the reads of its optimizer."""
    diagnosis.device.kind = "cpu"
    diagnosis.counters |= {"reads_of_one_value": 28.0, "reads_by_optimizer": 28.0}
    later = copy.deepcopy(diagnosis)
    later.counters["reads_of_one_value"] = 29.0
    read = replace(
        later.ops[-1], name=READ_OF_ONE_VALUE, count=1.0, time_s=1e-6, source="bench.py:9 in step",
        phase=None,
    )  # fmt: skip
    later.ops.append(read)
    # Within what the steps vary by, 98.5 to 101.3 ms.
    later.ops[0].time_s *= 1.02
    return later


def test_counters_that_changed_come_first_and_noise_does_not_come(training: Diagnosis) -> None:
    later = one_read_more(training)
    text = comparison_text(compare(training, later), Options(width=80))
    row = next(line for line in text.splitlines() if line.startswith("synchronisations"))
    assert row.split() == ["synchronisations,", "bench.py:9", "in", "step", "0", "1", "new"]
    assert "reads" not in text and "addmm" not in text
    assert text.index("counted per step") < text.index("compute") < text.index("\nop ")
    assert "1 op that runs as often as before" in text
    page = comparison_html(compare(training, later))
    assert page.index("synchronisations, bench.py:9 in step") < page.index('id="ops"')
    # A time that is the program's is shown, and no multiple of one without a digit.
    later.leaves["overhead.python"], training.leaves["overhead.python"] = 0.01, 1e-6
    later.ops[0].time_s *= 1.1
    text = comparison_text(compare(training, later), Options(width=80))
    assert "addmm" in text
    python = next(line for line in text.splitlines() if line.startswith("overhead · python"))
    assert python.split()[-3:] == ["<0.1", "10.0", "+10.0"]


def test_a_busy_machine_tells_no_op_from_noise(training: Diagnosis) -> None:
    later = copy.deepcopy(training)
    later.ops[0].time_s *= 7
    later.notices.append(f"Beside others, {OF_THE_MACHINE}.")
    compared = compare(training, later)
    assert compared.ops[0].in_noise
    assert "addmm" not in comparison_text(compared, Options(width=80))


def test_two_programs_are_told_as_two(training: Diagnosis) -> None:
    other = copy.deepcopy(training)
    other.source["name"] = "other.py"
    assert compare(training, other).notices == []
    for row in other.ops:
        row.shapes, row.module = "(3,3)", "net"
    (notice,) = compare(training, other).notices
    assert "train_gpt.py before, other.py after" in notice
    other.source["name"] = "train_gpt.py:another"
    assert compare(training, other).notices == []


def saved(diagnosis: Diagnosis, path: Path) -> str:
    return str(diagnosis.save(path))


def test_compare_command(
    training: Diagnosis, after: Diagnosis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = saved(training, tmp_path / "old.json"), saved(after, tmp_path / "new.json")
    page = tmp_path / "c.html"
    assert main(["compare", old, new, "--html", str(page), "--json", str(tmp_path / "c.json")]) == 0
    assert "1.10x" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "c.json").read_text())["ratio"] == pytest.approx(1.0989, abs=1e-4)


def test_markdown(training: Diagnosis, after: Diagnosis) -> None:
    text = comparison_markdown(compare(training, after))
    assert text == (
        """`train_gpt.py`

**100.0 → 91.0 ms per step: 1.10x (1.07 to 1.13), faster**

- compute 46.0 → 46.0 ms
- memory 25.0 → 25.0 ms
- overhead 27.5 → 18.5 ms (-33 %)
- unmodelled 1.5 → 1.5 ms

| counted per step | before | after |       |
| ---------------- | -----: | ----: | ----: |
| ops              |    611 |   200 | -67 % |

| part                | before | after |   ms |       |
| ------------------- | -----: | ----: | ---: | ----: |
| overhead · dispatch |   15.0 |   6.0 | -9.0 | -60 % |
"""
        + text[text.index("\n| op  ") :]
    )
    training.ops[-1].name = EVIL
    text = comparison_markdown(compare(training, after))
    # In a code span, and no line is a box of its own.
    assert "`</td><script>alert(1)</script>" in text and "\u202e" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} <= {5, 6}


@pytest.mark.parametrize("other", ["trace", "diagnosis"])
def test_compare_takes_traces(
    data: Path, training: Diagnosis, tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    trace = str(data / "traces" / "h100_bert_small_inference.json.gz")
    after = trace if other == "trace" else saved(training, tmp_path / "d.json")
    assert main(["compare", trace, after, "--markdown", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("`h100_bert_small_inference.json.gz`")
    assert ("1.00x" in printed) == (other == "trace")
    assert main(["compare", trace, after, "--markdown", str(tmp_path / "c.md")]) == 0
    assert (tmp_path / "c.md").read_text() == printed
    (tmp_path / "list.json").write_text("[]")
    assert main(["compare", trace, str(tmp_path / "list.json")]) == 2


def test_one_sentence_for_a_file_that_is_no_diagnosis(
    training: Diagnosis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = saved(training, tmp_path / "good.json"), tmp_path / "bad.json"
    bad.write_text('{"a": 1}')
    said = set()
    for command in (["report", str(bad)], ["compare", good, str(bad)], ["compare", str(bad), good],
                    ["check", str(bad)], ["check", good, "--baseline", str(bad)]):  # fmt: skip
        assert main(command) == 2
        said.add(capsys.readouterr().err)
    assert len(said) == 1
    assert "is not a gobrrr diagnosis" in said.pop()


def test_an_error_is_as_wide_as_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"a": 1}')
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.chdir(tmp_path)
    assert main(["report", bad.name]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and all(len(line) <= 50 for line in lines)


def test_check_command(
    training: Diagnosis, after: Diagnosis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = saved(training, tmp_path / "old.json"), saved(after, tmp_path / "new.json")
    assert main(["check", new, "--baseline", old]) == 0
    assert "new.json: no breach" in capsys.readouterr().out
    assert main(["check", old, "--baseline", new, "--max", "kernels=10"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "breach: kernels: 380 per step, at most 10 allowed",
        "breach: ops: 611 per step, 200 in the baseline (+205.5 %)",
    ]
    slim = str(tmp_path / "slim.json")
    assert main(["check", new, "--save-baseline", slim]) == 0
    assert main(["check", old, "--baseline", slim]) == 1
    assert main(["check", old, "--baseline", slim, "--only", "flops,kernels"]) == 0
    assert "no breach (flops, kernels)" in capsys.readouterr().out
    assert main(["check", old, "--max-overhead", "30", "--regime", "compute"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [[], ["--max", "kernels"], ["--regime", "fast"], ["--time-tolerance", "-3"],
     ["--baseline", "/nowhere.json"], ["--max", "ops=1", "--only", "ops"]],
)  # fmt: skip
def test_check_refuses_what_it_cannot_check(
    training: Diagnosis, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(training, tmp_path / "d.json")
    assert main(["check", path, *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_bar_leaves_its_box(training: Diagnosis, after: Diagnosis) -> None:
    # Two leaves of a level move the same way: the level moves by more than either of them.
    after.leaves["overhead.python"] -= 0.004
    after.split.overhead_s -= 0.004
    text = comparison_html(compare(training, after))
    bars = re.findall(r'style="left:([-\d.]+)%;width:([\d.]+)%"', text)
    assert len(bars) >= 4
    for left, width in bars:
        assert 0.0 <= float(left) <= float(left) + float(width) <= 100.0
    # Python by 4 and dispatch by 9 of the 13 that the level moved, which goes to the edge.
    assert [left for left, _ in bars][:1] == ["0.0"]


def test_growth_from_tenfold_on_is_a_multiple() -> None:
    assert relative_text(2.0, 3.0) == "+50 %"
    assert relative_text(2.0, 19.9) == "+895 %"
    assert relative_text(2.0, 20.0) == "10x"
    assert relative_text(1.0, 4317.09) == "4,317x"


def test_a_counter_of_seconds_has_its_unit_beside_its_value() -> None:
    assert counter_label("host_waits_s") == "host waits"
    assert counter_text("host_waits_s", 0.0163) == "16.3 ms"
    assert counter_label("peak_memory_bytes") == "peak memory"
    assert counter_text("peak_memory_bytes", 940_359_673.0) == "940 MB"
    assert counter_text("kernels", 1465.0) == "1,465"
    assert counter_text("copies", 1.0) == "1"
