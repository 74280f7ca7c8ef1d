"""``benchmarks/gpu`` works: its runner, the raw parts, and the page that is made of results."""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from benchmarks.claims import SOURCES  # noqa: E402
from benchmarks.gpu import programs, raw, run_all, status  # noqa: E402
from benchmarks.gpu.card import COLUMNS, Sampler  # noqa: E402
from benchmarks.gpu.parts import cost, records  # noqa: E402
from benchmarks.gpu.setting import Setting  # noqa: E402
from benchmarks.texts import figures_in  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


def test_help_says_where_results_go_and_little_work_is_kept_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("OUT", raising=False)
    with pytest.raises(SystemExit) as helped:
        run_all.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert helped.value.code == 0
    assert "Without --out the results are $OUT/gpu.json, or benchmarks/results/gpu.json" in shown
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as refused:
        run_all.main(["--quick", "--device", "cpu", "--parts", "state"])
    assert "--out has to lie outside benchmarks/results" in str(refused.value.code)


# A made-up part: what it saves, how it ends.
PARTS = {
    "state": "save({'rows': [1, float('nan')]})\n    return {'rows': [1, 2, float('inf')]}",
    "residue": "save([1])\n    raise RuntimeError('first line\\nsecond')",
    "records": (
        "import subprocess, sys, time\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "    save({'child': child.pid})\n    print('waits', flush=True)\n    time.sleep(600)"
    ),
    "cost": "import os\n    save({'half': 1})\n    os._exit(3)",
}


# In the part's process: a module in place of the true one.
MADE_UP = """
import sys, types
from benchmarks.gpu import run_all
part, body, out = sys.argv[1:]
module = types.ModuleType(part)
exec("def run(setting, save):\\n    " + body, module.__dict__)
sys.modules["benchmarks.gpu.parts." + part] = module
sys.exit(run_all.main(["--one", part, "--quick", "--device", "cpu", "--out", out]))
"""


def test_parts_end_alone_and_what_they_saved_is_kept(tmp_path: Path) -> None:
    outcomes = {}
    for name, body in PARTS.items():
        path = tmp_path / f"{name}.json"
        command = [sys.executable, "-c", MADE_UP, name, body, str(path)]
        limit = 8 if name == "records" else 100
        outcomes[name] = run_all.run_apart(name, limit, command, path)
    assert outcomes["state"]["ok"] and outcomes["state"]["result"] == {"rows": [1, 2, None]}
    assert outcomes["residue"]["error"] == "RuntimeError: first line"
    assert outcomes["residue"]["result"] == [1] and "second" in outcomes["residue"]["tail"]
    assert outcomes["records"]["error"] == "ended after 8 s"
    assert "waits" in outcomes["records"]["tail"]
    # What it had started, in a session of its own, has ended with it.
    child = Path(f"/proc/{outcomes['records']['result']['child']}/stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"
    assert outcomes["cost"]["error"] == "exit status 3"
    assert outcomes["cost"]["result"] == {"half": 1}
    assert [name for name, outcome in outcomes.items() if outcome["ok"]] == ["state"]


def test_one_file_holds_all_parts_and_a_missing_one_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_all, "FOLDER", tmp_path)
    for name, line in (("heat", "LIMIT_S = 70"), ("cost", "LIMIT_S = no number")):
        (tmp_path / f"{name}.py").write_text(line)
    file = tmp_path / "out.json"
    code = run_all.main(["--quick", "--device", "cpu", "--out", str(file), "--parts",
                         "heat,spikes,cost"])  # fmt: skip
    whole = json.loads(file.read_text())
    assert code == 1 and whole["topic"] == "gpu" and whole["quick"]
    outcomes = {outcome["part"]: outcome for outcome in whole["parts"]}
    assert list(outcomes) == ["cost", "spikes", "heat"]
    for name in outcomes:
        assert json.loads((tmp_path / "out" / f"{name}.json").read_text()) == outcomes[name]
    assert outcomes["heat"]["ok"] and outcomes["heat"]["result"] == {"skipped": "needs CUDA"}
    assert outcomes["spikes"]["error"] == "not run: there is no parts/spikes.py"
    assert outcomes["cost"]["error"].startswith("not run: invalid syntax")


def test_a_part_that_no_longer_fits_is_not_begun(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    run = ["--quick", "--device", "cpu", "--out", str(file), "--parts", "heat", "--seconds", "1"]
    assert run_all.main(run) == 1
    (outcome,) = json.loads(file.read_text())["parts"]
    assert re.fullmatch(r"not run: [01] s are left, its limit is 70 s", outcome["error"])
    with pytest.raises(SystemExit):
        run_all.main(["--parts", "nonsense", "--out", str(file)])


def test_samples_of_the_card_are_columns_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        def sample(self) -> tuple[Any, ...]:
            return (time.monotonic(), 1980, None, 350.5, 40, 4, 99)

    sampler = Sampler(Made())  # type: ignore[arg-type]
    begin = time.monotonic() + 0.15
    time.sleep(0.4)
    sampler.stop()
    columns = sampler.since(begin)
    assert tuple(columns) == COLUMNS
    assert {len(column) for column in columns.values()} == {len(columns["t_s"])} != {0}
    assert columns["t_s"][0] >= 0 and columns["memory_mhz"][0] is None


@pytest.mark.parametrize("name", ["state", "heat"])
def test_raw_parts_on_a_processor(name: str, tmp_path: Path) -> None:
    saved: list[Any] = []
    part = importlib.import_module(f"benchmarks.gpu.parts.{name}")
    result = part.run(Setting("cpu", True, tmp_path), saved.append)
    json.dumps(result, allow_nan=False)
    assert "skipped" in str(result)


def test_records_and_costs_of_a_processor(tmp_path: Path) -> None:
    setting = Setting("cpu", True, tmp_path)
    found = records.run(setting, lambda result: None)
    for name in ("session_1", "after_idle", "prepared", "trace_only"):
        assert found[name]["add_ops"] == found[name]["expected_adds"] == 50, name
        assert found[name]["outside_session"] == found[name]["zero_ts"] == 0, name
    costs = cost.per_call(setting, lambda result: None)
    assert len(costs["wall_us"]["on"]["view"]) == 2
    assert costs["spans"][0]["view"]["outermost"] == 40


def test_records_that_are_lost_early_or_zero_are_counted() -> None:
    def event(cat: str, ts: float, correlation: int, dur: float = 1.0) -> dict[str, Any]:
        name = "cudaLaunchKernel" if cat == "cuda_runtime" else "add"
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 7,
                "args": {"correlation": correlation}}  # fmt: skip

    session = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 10.0, "dur": 90.0}
    stall = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "ts": 21.0, "dur": 5.0}
    events = [session, stall]
    events += [event("cuda_runtime", 20.0 + i, i) for i in range(5)]
    # 1 lacks its record, 2 begins before its call, 3 is zero, 9 has no call and lies outside.
    events += [event("kernel", 30.0, 0), event("kernel", 21.5, 2), event("kernel", 0.0, 3)]
    events += [event("kernel", 30.5, 4, 0.0), event("kernel", 120.0, 9)]
    found = raw.examined({"traceEvents": events, "bytes": 1, "export_s": 0.0})
    assert found["calls_without_record"] == 1 and found["calls_without_record_at"] == [1]
    assert found["records_without_call"] == 1 and found["records_before_call"] == 2
    assert found["zero_ts"] == 1 and found["zero_duration_records"] == 1
    assert found["outside_session"] == 2 and found["overlaps_in_a_queue"] == 1
    assert found["overhead"] == [["Buffer Flush", 1.0, 5.0]]


def test_there_are_150_programs() -> None:
    assert len(programs.PROGRAMS) * len(programs.DTYPES) * len(programs.MODES) == 152
    assert len({program.name for program in programs.PROGRAMS}) == 38


def test_the_page_is_what_the_results_make() -> None:
    assert list(status.problems()) == []


def test_rows_name_tests_that_exist_and_take_their_figures_from_results() -> None:
    rows = status.rows()
    assert len(rows) > 15
    homes = (ROOT, ROOT / "tests" / "simulated_device", ROOT / "tests" / "devices")
    for row in rows:
        for name in re.findall(r"`([\w/]*test_\w+\.py)`", row.test):
            assert any((home / name).is_file() for home in homes), name
        assert not figures_in(re.sub(r"\{[^}]*\}", "", row.found)), row.claim


def test_a_row_says_whether_what_it_rests_on_is_as_it_was() -> None:
    (row,) = [row for row in status.rows() if row.claim.startswith("peak memory")]
    assert row.verdict == "confirmed"
    assert "at sources that have changed since" in row.told()
    as_measured = {"sources": {**SOURCES, "cli": "other"}}
    result = {**status.results(row.file), **as_measured}
    assert "changed since" not in row.told({**result})
    assert "changed since" in replace(row, rooms=("cli",)).told(result)
    assert replace(row, verdict="open").told() == "nothing yet"
