"""The terminal report: snapshots at 80 columns, edges, widths, colour and encodings."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from gobrrr.diagnosis.schema import (
    CollectiveRow,
    Coverage,
    DeviceTime,
    Diagnosis,
    Finding,
    FixSummary,
    OpRow,
    Prediction,
    RankRow,
    Split,
    StepRecord,
    UnmodelledOp,
    Untried,
)
from gobrrr.reports import TABLES
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.next_command import next_command
from gobrrr.reports.tables import tables_named
from gobrrr.reports.terminal import Options, gist_text, options_for, print_report, report_text
from gobrrr.timeline.step_kinds import SeenSteps

Snapshot = Callable[[str, str], None]


class Stream(io.StringIO):
    """A text stream that says what it is."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


ALL = tuple(table.name for table in TABLES)


def hostile(diagnosis: Diagnosis) -> Diagnosis:
    name = "</script>\x1b[2J\u202e[bold]" + "x" * 10_000
    op = replace(diagnosis.ops[0], name=name, shapes=name, module=name, source=name)
    return replace(
        diagnosis,
        source={"name": name},
        verdict=name,
        notices=[name],
        ops=[op],
        idle=[replace(diagnosis.idle[1], source=name)],
        lines=[replace(diagnosis.lines[0], name=name)],
        modules=[replace(diagnosis.modules[0], name=name)],
        findings=[Finding(fix=name, prediction=None, because=name)],
    )


def test_training_step(training: Diagnosis, same_as_snapshot: Snapshot) -> None:
    same_as_snapshot("training_80.txt", report_text(training))


def test_every_table(training: Diagnosis, same_as_snapshot: Snapshot) -> None:
    same_as_snapshot("tables_80.txt", report_text(training, Options(by=ALL, top=2, verbose=True)))


def test_nothing_known(minimal: Diagnosis, same_as_snapshot: Snapshot) -> None:
    same_as_snapshot("minimal_80.txt", report_text(minimal))


def test_many_ranks(training: Diagnosis, same_as_snapshot: Snapshot) -> None:
    split = Split(compute_s=0.046, memory_s=0.025, overhead_s=0.0275, unmodelled_s=0.0015)
    ranks = [
        RankRow(
            rank=0,
            step_s=0.1,
            split=split,
            leaves={},
            wait_s=0.0123,
            why="waits 12.300 ms per step, all of it for rank 1",
        ),
        RankRow(
            rank=1,
            step_s=0.14,
            split=split,
            leaves={},
            wait_s=0.0,
            why="arrives last: 13.000 ms more in data loading than the others",
        ),
        RankRow(rank=2, step_s=0.1, split=split, leaves={}),
    ]
    collectives = [
        CollectiveRow(
            name="allreduce", bytes=25_000_000, group_size=3, ranks=[0, 1, 2], calls=4,
            time_s=0.02, exposed_s=0.0125, overlapped_s=0.0075, transfer_s=0.001, skew_s=0.0031,
            algorithm_bytes_per_s=25e9, bus_bytes_per_s=33.3e9, last_rank=1,
        ),
        CollectiveRow(
            name="nccl:all_gather_into_tensor_coalesced", bytes=None, group_size=None, ranks=[0],
            calls=1.5, time_s=0.001, exposed_s=0.0, overlapped_s=0.001,
        ),
    ]  # fmt: skip
    device_time = DeviceTime(
        window_s=0.3,
        busy_s=0.24,
        compute_kernels_s=0.2,
        collectives_s=0.06,
        exposed_collectives_s=0.03,
        exposed_copies_s=0.01,
    )
    text = report_text(
        replace(
            training, ranks=ranks, collectives=collectives, device_time=device_time, ops=[],
            classes=[], findings=[],
        )
    )  # fmt: skip
    same_as_snapshot("ranks_80.txt", text)


def test_the_report_is_one_screen_and_ends_with_the_next_command(training: Diagnosis) -> None:
    training = replace(
        training,
        source={"kind": "script", "name": "train.py", "command": "train.py --size 'very large'"},
        untried=Untried(fixes=["compile", "bf16_autocast"], time_s=170.0),
    )
    text = report_text(training)
    assert len(text.splitlines()) <= 40
    last = text.splitlines()[-1]
    assert "gobrrr fix train.py --size 'very large'" in last
    assert "tries 2 changes, about 3 min" in text
    assert not any(title in text for title in ("Ops", "Modules", "Share of FLOPs", "Profiled over"))
    assert "Profiled over" in report_text(training, Options(verbose=True))
    assert text.splitlines()[-1] == gist_text(training).splitlines()[-1]


@pytest.mark.parametrize(
    ("source", "saved_as", "command"),
    [
        ({"kind": "module", "command": "-m package.train"}, "", "gobrrr run --html report.html -m"),
        ({"kind": "script", "command": "a.py"}, "my d.json", "gobrrr report 'my d.json' --by"),
        ({"kind": "script", "command": "a.py", "world_size": 2}, "", "--nproc-per-node 2"),
        ({"kind": "trace", "command": "t.json.gz"}, "", "gobrrr trace t.json.gz --by line,op"),
        ({"kind": "function"}, "", 'diagnosis.save("d.json")'),
    ],
)
def test_the_next_command_is_of_what_was_diagnosed(
    training: Diagnosis, source: dict[str, object], saved_as: str, command: str
) -> None:
    training = replace(training, source={"name": "a.py", **source})
    assert command in report_text(training, Options(saved_as=saved_as)).splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"regime": None}, "gobrrr run --step Linear --stop --threads 1 a.py"),
        ({"untried": Untried(fixes=["compile"])}, "gobrrr fix --threads 1 --allow 'a b' a.py"),
        ({"fixes": FixSummary(enough_s=130.0)},
         "gobrrr fix --budget 3m --threads 1 --allow 'a b' --only compile a.py"),
        ({"fixes": FixSummary(best=["compile"])},
         "gobrrr fix --only compile --write fast_a.py --threads 1 --allow 'a b' a.py"),
    ],
)  # fmt: skip
def test_the_next_command_carries_what_it_knows_of_the_options_given(
    training: Diagnosis, changes: dict[str, object], command: str
) -> None:
    options = {
        "--threads": "1", "--stop": "", "--step": "Linear", "--only": "compile", "--allow": "a b",
        "--json": "d.json",
    }  # fmt: skip
    source = {"kind": "script", "name": "a.py", "command": "a.py", "options": options}
    found = next_command(replace(training, source=source, **changes))
    assert found.command == command
    own = finding_with(training, "gobrrr fix --only tf32")
    tried = report_text(replace(training, source=source, findings=[own]))
    assert "try: gobrrr fix --only tf32 --threads 1 --allow 'a b' a.py" in tried


def finding_with(diagnosis: Diagnosis, verify: str) -> Finding:
    """A finding that such a command tries, and that is worth telling."""
    half_s = diagnosis.accounted_s / 2
    prediction = Prediction(low_s=half_s, expected_s=half_s, high_s=half_s, speedup=2.0)
    return Finding(fix="tf32", prediction=prediction, because="it is", verify=verify)


def test_what_a_trace_lacks_is_its_next_step(training: Diagnosis) -> None:
    source = {"kind": "trace", "name": "t.json", "command": "t.json"}
    lines = [replace(training.lines[0], name="")]
    without_lines = replace(training, source=source, lines=lines)
    assert "with_stack=True" in report_text(without_lines).splitlines()[-1]
    training.device.ceilings.clear()
    said = report_text(replace(training, source=source)).splitlines()[-1]
    assert said.split()[-5:] == ["gobrrr", "trace", "t.json", "--ceilings", "c.json"]


def test_no_next_trial_where_the_times_are_in_doubt(training: Diagnosis) -> None:
    source = {"kind": "script", "name": "a.py", "command": "a.py"}
    untried = Untried(fixes=["compile"])
    doubtful = replace(training, source=source, untried=untried, regime=None, verdict="")
    assert report_text(doubtful).splitlines()[-1].startswith("Next: gobrrr run a.py")


def test_a_line_that_is_every_rows_is_told_once(training: Diagnosis) -> None:
    ops = [replace(op, source="model.py:7 in f") for op in training.ops]
    text = report_text(replace(training, ops=ops), Options(by=("op",)))
    table = text[text.index("Ops, all at model.py:7") :]
    assert table.count("model.py:7") == 1


def test_print_of_a_diagnosis_is_the_report(training: Diagnosis) -> None:
    assert str(training) == report_text(training)


@pytest.mark.parametrize("width", [80, 81, 100, 137, 200])
def test_no_line_is_wider_than_the_terminal(training: Diagnosis, width: int) -> None:
    for diagnosis in (training, hostile(training)):
        text = report_text(diagnosis, Options(width=width, by=ALL))
        assert max(cell_len(line) for line in text.splitlines()) <= width


def test_numbers_are_never_cut(training: Diagnosis) -> None:
    for width in (80, 120):
        text = report_text(hostile(training), Options(width=width, by=("op",)))
        row = next(line for line in text.splitlines() if line.endswith("228 GFLOP/s"))
        assert row.split()[-9:] == [
            "16.0",
            "16",
            "%",
            "compute",
            "84",
            "%",
            "151",
            "228",
            "GFLOP/s",
        ]


def test_hostile_names_are_inert(training: Diagnosis) -> None:
    text = report_text(hostile(training), Options(by=ALL))
    assert "\x1b" not in text and "\u202e" not in text
    # Square brackets are not markup.
    assert "[bold]" in text


def test_wide_characters_keep_the_columns(training: Diagnosis) -> None:
    wide = replace(training.ops[0], name="自定义算子::前向传播计算核心")
    text = report_text(replace(training, ops=[wide, training.ops[1]]), Options(by=("op",)))
    rows = [line for line in text.splitlines() if line.endswith("GFLOP/s") and "151" in line]
    assert len(rows) == 2
    assert {cell_len(row) for row in rows} == {80}


def test_one_op_with_nothing_known(training: Diagnosis) -> None:
    op = OpRow(
        name="mylib::op",
        shapes="",
        dtypes="",
        count=1,
        time_s=0.1,
        kernel_s=0.1,
        fixed_s=0.0,
        flops=None,
        bytes=None,
        intensity=None,
        flops_per_s=None,
        bytes_per_s=None,
        regime="unmodelled",
        roof_s=None,
        roof_fraction=None,
        below_s=None,
    )
    coverage = Coverage(
        modelled_time_fraction=0.0, unmodelled=[UnmodelledOp(op="mylib::op", time_s=0.1)]
    )
    text = report_text(replace(training, ops=[op], coverage=coverage), Options(by=("op",)))
    rows = [line.split() for line in text.splitlines() if line.startswith("  mylib::op")]
    assert rows == [["mylib::op", "1", "100.0", "100", "%", "unmodelled", "-", "-", "-"]]
    assert "Modelled: 0.0 % of kernel time. Not: mylib::op 100.0 ms." in text


def test_unknown_is_a_dash_and_never_zero(training: Diagnosis) -> None:
    unknown = replace(training, mfu=None, speed_of_light_s=None, batch_doubling=None, findings=[])
    text = report_text(unknown)
    assert "MFU" not in text and "Speed of light" not in text and "Batch test" not in text


def test_split_lines_sum_to_the_step(training: Diagnosis) -> None:
    # 46.0 + 25.0 + 27.5 + 1.5 = 100.0 ms, as printed
    lines = report_text(training, Options(verbose=True)).splitlines()
    names = ("  compute ", "  memory ", "  overhead ", "  unmodelled ")
    tops = [line.split() for line in lines if line.startswith(names)]
    assert [float(cells[1]) for cells in tops[:4]] == [46.0, 25.0, 27.5, 1.5]
    # Parts of overhead, the largest first: 15 + 6 + 3 + 2 + 1 + 0.5 = 27.5
    start = next(i for i, line in enumerate(lines) if line.startswith("  overhead"))
    parts = [line[16:22].strip() for line in lines[start + 1 : start + 7]]
    assert [float(part) for part in parts] == [15.0, 6.0, 3.0, 2.0, 1.0, 0.5]


def test_bar_shows_roof_and_rest_of_the_step(training: Diagnosis) -> None:
    # At 80 columns the bar of a whole step is 80 - 35 = 45 cells.
    # compute 46 % -> 20.7 -> 21, of it 34 of 100 ms at a ceiling -> 15.3 -> 15
    line = next(x for x in report_text(training).splitlines() if x.startswith("  compute"))
    assert (line.count("█"), line.count("▒")) == (15, 6)


def test_zero_step(minimal: Diagnosis) -> None:
    step = StepRecord(time_s=replace(minimal.step.time_s, n=1))
    assert "0.0 ms per step (1 timed step)" in report_text(replace(minimal, step=step))


def test_all_steps_are_told_where_the_timed_ones_do_not_stand_for_them(minimal: Diagnosis) -> None:
    time = replace(minimal.step.time_s, median=0.1, mean=0.1, low=0.1, high=0.1, n=24)
    seen = SeenSteps(count=30, mean_s=0.15, median_s=0.1, attached=2, attached_mean_s=0.3)
    step = replace(minimal.step, time_s=time, seen=seen)
    said = "30 steps ran with nothing attached, 24 of them timed: mean 150.0 ms, median 100.0 ms."
    for report in (report_text, report_markdown):
        text = report(replace(minimal, step=step)).replace("\\", "")
        assert said in " ".join(text.split())
        alike = replace(step, seen=dataclasses.replace(seen, mean_s=0.105))
        assert "nothing attached" not in report(replace(minimal, step=alike))


def test_colour_only_in_a_terminal(training: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    piped, terminal = Stream(terminal=False), Stream(terminal=True)
    print_report(training, piped)
    print_report(training, terminal)
    assert "\x1b[" not in piped.getvalue() and "\x1b[" in terminal.getvalue()
    assert piped.getvalue() == report_text(training)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not options_for(terminal).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not options_for(terminal).colour


def test_colour_changes_no_character(training: Diagnosis) -> None:
    import re

    coloured = report_text(training, Options(colour=True))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [x.rstrip() for x in plain.splitlines()] == report_text(training).splitlines()


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("20", 80), ("999", 200), ("x", 80)])
def test_width(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert options_for(Stream(terminal=False)).width == width


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "unknown-codec"])
def test_ascii_where_the_encoding_has_no_blocks(
    training: Diagnosis, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = Stream(terminal=False, encoding=encoding)
    print_report(training, stream)
    text = stream.getvalue()
    assert text.isascii() and "###" in text
    # One character for one: every column stays where it was.
    assert [len(x) for x in text.splitlines()] == [
        len(x) for x in report_text(training).splitlines()
    ]


def test_a_path_keeps_its_end(training: Diagnosis) -> None:
    line = replace(training.lines[0], name=f"{'folder/' * 20}model.py:61 in forward")
    text = report_text(replace(training, lines=[line]), Options(by=("line",)))
    row = next(row for row in text.splitlines() if "model.py:61 in forward" in row)
    assert row.startswith("  …") and cell_len(row) == 80


def test_a_long_op_name_is_on_the_second_line(training: Diagnosis) -> None:
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    text = report_text(
        replace(training, ops=[replace(training.ops[0], name=name)]), Options(by=("op",))
    )
    assert "    _scaled_dot_product_flash_attention_for_cpu_backward · [1536]" in text


def test_top_says_what_it_left_out(training: Diagnosis) -> None:
    text = report_text(training, Options(top=3, by=("op",)))
    assert "  … 4 more: --top 7" in text
    assert "gelu" not in text


def test_in_a_notebook_the_text_is_the_text(
    training: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = report_text(training)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert report_text(training) == plain


def test_tokens_per_second_are_those_of_the_time_beside_them(minimal: Diagnosis) -> None:
    def told(step: StepRecord) -> str:
        return " ".join(report_text(replace(minimal, step=step)).split())

    # Ten tokens in 0.1 s in the median, in 0.2 s in the mean.
    time = replace(minimal.step.time_s, median=0.1, mean=0.2, low=0.1, high=0.4, n=24)
    step = replace(minimal.step, time_s=time, tokens=10)
    usual, varying = told(step), told(replace(step, varying=True, basis="mean"))
    assert "100.0 ms per step (" in usual and "; 100 tokens per second" in usual
    assert "200.0 ms per step (" in varying and "; 50.0 tokens per second" in varying
    # The interval is the median's, which the mean may lie outside of.
    assert "100.0 ms per step (100.0 to 400.0, 24 timed steps; mean 200.0" in usual
    assert "200.0 ms per step (24 timed steps; median 100.0, 100.0 to 400.0; " in varying


def test_phases_that_stand_for_modules_are_told_once(training: Diagnosis) -> None:
    named = replace(training)
    titles = [table.title for table in tables_named(("module", "phase"), named, 9)]
    assert len(titles) == 2
    unknown = replace(training, modules=[])
    (table,) = tables_named(("module", "phase"), unknown, 9)
    assert table.title == titles[1]
