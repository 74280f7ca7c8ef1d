from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from fleet_making import write_ranks
from gobrrr.fleet.build import FleetOptions, build_fleet
from gobrrr.fleet.query import VIEWS, ask
from gobrrr.timeline.errors import InputError


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    write_ranks(tmp_path / "run", {1: 60}, per_host=2)
    (tmp_path / "run" / "rank7.json").write_text("{")
    build_fleet([str(tmp_path / "run")], tmp_path / "fleet", FleetOptions(workers=1))
    return tmp_path / "fleet"


def test_idle_by_host_and_cause(fleet: Path) -> None:
    answer = ask(fleet, "select host, cause, sum(s) from idle group by all order by 3 desc")
    assert answer.columns == ("host", "cause", "sum(s)")
    loading = {row[0]: row[2] for row in answer.rows if row[1] == "data_loading"}
    assert loading["node00"] > 60e-6 > loading.get("node01", 0.0)


@pytest.mark.parametrize("view", VIEWS)
def test_every_table_is_there(fleet: Path, view: str) -> None:
    answer = ask(fleet, f"select * from {view}")
    assert answer.rows
    assert answer.columns[:2] == (("path", "run") if view == "files" else ("run", "rank"))
    assert {row[answer.columns.index("run")] for row in answer.rows} == {"run"}


def test_steps_sum_to_their_leaves(fleet: Path) -> None:
    sums = "compute_s + memory_s + overhead_s + unmodelled_s"
    answer = ask(fleet, f"select count(*), max(abs(s - ({sums}))) from steps")
    assert answer.rows[0][0] == 8
    assert answer.rows[0][1] < 1e-9


def test_collectives_say_whom_they_wait_for(fleet: Path) -> None:
    answer = ask(
        fleet, "select rank, sum(wait_s), min(last_rank) from collectives group by 1 order by 1"
    )
    assert [row[2] for row in answer.rows] == [1] * 4
    assert [row[1] for row in answer.rows] == pytest.approx([120e-6, 0, 120e-6, 120e-6])


def test_ranks_say_what_they_cost_the_others(fleet: Path) -> None:
    answer = ask(fleet, "select rank, host from ranks order by caused_s desc limit 1")
    assert answer.rows == ((1, "node00"),)


def test_files_say_what_is_wrong_with_them(fleet: Path) -> None:
    answer = ask(fleet, "select path, error from files where error is not null")
    assert len(answer.rows) == 1
    assert "rank7.json" in answer.rows[0][0]


def test_a_fleet_of_processors_has_the_table_of_collectives(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {}, world=1)
    out = tmp_path / "fleet"
    build_fleet([str(tmp_path / "run")], out, FleetOptions(workers=1))
    for name in ("collectives", "waits"):
        for path in (out / name).rglob("*.parquet"):
            path.unlink()
    assert ask(out, "select run, rank, wait_s from collectives").rows == ()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("select * from kernels", "no table kernels; a fleet folder has steps, ops, idle"),
        ("select nothing from steps", "nothing"),
        ("selct 1", "the query failed"),
        ("select 1; select 2", "one select statement"),
        ("drop view steps", "one select statement"),
        ("create table a as select 1", "one select statement"),
        ("copy (select 1) to 'here.csv'", "one select statement"),
        ("set enable_external_access = true", "one select statement"),
        ("", "one select statement"),
        ("select * from read_csv('/etc/hostname')", "the query failed"),
    ],
)
def test_bad_questions_are_one_sentence(fleet: Path, question: str, said: str) -> None:
    before = sorted(fleet.rglob("*"))
    with pytest.raises(InputError, match=said) as error:
        ask(fleet, question)
    assert "\n" not in str(error.value)
    assert sorted(fleet.rglob("*")) == before


def test_a_folder_that_is_no_fleet_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a fleet folder"):
        ask(tmp_path, "select 1")
    with pytest.raises(InputError, match="does not exist"):
        ask(tmp_path / "nowhere", "select 1")


def test_answers_are_json_objects_with_nulls(fleet: Path) -> None:
    from gobrrr.reports.fleet import answer_csv, answer_json

    answer = ask(fleet, "select rank, null as nothing, 'a,b' as text from ranks where rank = 2")
    assert json.loads(answer_json(answer)) == [{"rank": 2, "nothing": None, "text": "a,b"}]
    assert answer_csv(answer) == 'rank,nothing,text\n2,,"a,b"\n'


def test_columns_of_one_name_are_told_apart_in_objects(fleet: Path) -> None:
    from gobrrr.reports.fleet import answer_json

    answer = ask(fleet, "select a.rank, b.rank from ranks a, ranks b where a.rank < b.rank limit 1")
    (row,) = json.loads(answer_json(answer))
    assert list(row) == ["rank", "rank_2"]
