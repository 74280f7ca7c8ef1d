"""What the rows of the GPU benchmark come to: on the files that there are, and on made-up rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import scores

FILES = sorted(
    path
    for path in (Path(__file__).parents[2] / "benchmarks" / "results").glob("gpu_*-*.json")
    if "scores" in json.loads(path.read_bytes())
)
ADD = (
    "void at::native::(anonymous namespace)::add_kernel<float, at::native::Plus<float> >(float*)",
    "void native::<unnamed>::add_kernel<float, native::Plus<float>>(T1 *)",
)
MUL = ("void at::native::mul_kernel<4u, false>(int)", "void native::mul_kernel<4, 0>(int)")
MM = ("gemm_f32_tn", "gemm_f32_tn")


def told(name: str, op: str | None = "aten::add", share: float = 1.0, **given: Any) -> Any:
    work = {"bytes_read": 80e6, "bytes_written": 40e6, "compute_dtype": "bfloat16"}
    return {
        "name": name, "kind": 0, "op": op, "share_of_op": share, "duration_ns": 10_000,
        "work": work, "roof": {"matrix_s": 0.0}, **given,
    }  # fmt: skip


def counted(name: str, moved: float = 120e6, pipe: float | None = 0.0) -> Any:
    return {
        "name": name, scores.DURATION: 10_000.0, scores.READ: moved - 40e6,
        scores.WRITTEN: 40e6, scores.PIPE: pipe,
    }  # fmt: skip


def of_counters(kernels: list[Any], ncu: list[Any]) -> Any:
    program = {"gobrrr": {"kernels": kernels}, "ncu": ncu}
    return scores.counters({"programs": {"one": program}})["programs"][0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scores_of_a_file_are_those_of_its_rows(path: Path) -> None:
    found = json.loads(path.read_bytes())
    assert found["scores"] == json.loads(json.dumps(scores.scores(found["parts"])))


def test_there_are_files_of_a_gpu() -> None:
    assert len(FILES) >= 4


@pytest.mark.parametrize("torch_s, ncu_s", [ADD, MUL, MM])
def test_both_tools_names_of_a_kernel_are_one(torch_s: str, ncu_s: str) -> None:
    assert scores.name_of(torch_s) == scores.name_of(ncu_s)
    assert len({scores.name_of(names[0]) for names in (ADD, MUL, MM)}) == 3


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_kernel_that_one_list_lacks_shifts_no_other(lost: int) -> None:
    kernels = [told(names[0]) for names in (MUL, ADD, MM)]
    ncu = [counted(names[1], moved) for names, moved in zip((MUL, ADD, MM), (60e6, 120e6, 240e6))]
    ratios = [2.0, 1.0, 0.5]
    for one, other in ((kernels, ncu[:lost] + ncu[lost + 1 :]),
                       (kernels[:lost] + kernels[lost + 1 :], ncu)):  # fmt: skip
        row = of_counters(one, other)
        assert row["joined"] == 2 and row["joined_share"] == pytest.approx(2 / 3)
        left = sorted(ratios[:lost] + ratios[lost + 1 :])
        assert row["told_over_counted_bytes"]["streams"]["ends"] == left
    assert of_counters(kernels, ncu[:lost] + ncu[lost + 1 :])["not_joined"] == [
        scores.name_of(kernels[lost]["name"])
    ]


def test_another_kernel_in_its_place_is_not_joined() -> None:
    row = of_counters([told(MUL[0]), told(ADD[0])], [counted(MUL[1]), counted(MM[1])])
    assert row["joined"] == 1 and row["not_joined"] == [scores.name_of(ADD[0])]
    # Nor is one whose bytes were not counted.
    unknown = {**counted(ADD[1]), scores.READ: None}
    assert of_counters([told(ADD[0])], [unknown])["joined"] == 0


def test_an_op_of_several_kernels_is_one_and_copies_leave_it_unknown() -> None:
    parts = [told(MM[0], "aten::mm", 0.75), told(ADD[0], "aten::mm", 0.25)]
    workspace = {**told("Memset (Device)", None), "kind": 3}
    row = of_counters([parts[0], workspace, parts[1]], [counted(MM[1]), counted(ADD[1], 360e6)])
    assert row["whole_ops"] == 1
    assert row["told_over_counted_bytes"]["of_several_kernels"]["ends"] == [0.5, 0.5]
    assert row["worst_ops"][0]["reason"] == "tiles read their operands again"
    copy = {**parts[1], "kind": 4}
    assert of_counters([parts[0], copy], [counted(MM[1])])["whole_ops"] == 0


def test_what_fits_into_the_l2_is_not_held_against_dram() -> None:
    work = {"bytes_read": 8e6, "bytes_written": 4e6, "compute_dtype": "float32"}
    row = of_counters([told(ADD[0], work=work)], [counted(ADD[1], 41e6)])
    assert row["whole_ops"] == 1 and row["told_over_counted_bytes"]["streams"]["n"] == 0


def test_tensor_pipes_are_held_against_the_told_share_of_products() -> None:
    product = told(MM[0], "aten::mm", roof={"matrix_s": 8e-6})
    row = of_counters([product], [counted(MM[1], pipe=60.0)])
    assert row["pipe_over_told"]["median"] == pytest.approx(0.75)
    product["work"] = {**product["work"], "compute_dtype": "float32"}
    row = of_counters([product], [counted(MM[1], pipe=60.0)])
    assert row["pipe_over_told"]["n"] == 0 and len(row["pipes_busy_in_float32"]) == 1


def test_live_steps_with_and_without_a_notice_stay_apart() -> None:
    def row(step_s: float, notices: list[str]) -> Any:
        leaves = {"overhead.python": step_s / 2, "overhead.launch": step_s / 2}
        live = {"step_s": step_s, "leaves": leaves, "regime": "overhead", "notices": notices}
        return {"events_s": [1.0, 1.0, 9.0], "block_s": [1.0], "after_s": 2.0, "live": live}

    programs = {"a": row(1.01, []), "b": row(1.3, ["uncertain"]), "c": {"error": "too long"}}
    found = scores.live({"programs": programs})
    assert found["without_notice"] == {"n": 1, "median": 1.01, "ends": [1.01, 1.01]}
    assert found["with_notice"]["ends"] == [1.3, 1.3] and found["not_run"] == ["c"]
    assert found["leaves_are_the_step"] == 2
    assert found["traces_of_without_notice"]["n"] == 0


def test_fixes_are_inside_their_interval_or_named() -> None:
    said = {"low_s": 0.0, "expected_s": 0.2, "high_s": 0.3}
    fixes = {"right": said, "wrong": {**said, "high_s": 0.05}, "out": {"ruled_out": "no"}}
    programs = {"one": {
        "timed": {"base": [1.0, 1.0]}, "predicted": {"fixes": fixes, "diagnosis": {"step_s": 2.0}},
        "gains": {"right": [0.1, 0.1], "wrong": [0.1, 0.1], "out": [0.1, 0.2], "never": [1.0]},
    }, "two": {"timed": {"error": "x"}, "predicted": {"error": "x"}}}  # fmt: skip
    found = scores.fixes({"programs": programs})
    assert (found["n"], found["inside"], found["outside"]) == (2, 1, ["wrong of one"])
    assert found["expected_over_measured"]["median"] == pytest.approx(2.0)
    assert found["rows"][0]["told_step_over_base"] == 2.0
    assert [row["rightly"] for row in found["ruled_out"]] == [False]


def test_truths_of_blocks_that_fill_the_queue_are_marked() -> None:
    def kind(truth_s: float, grew_s: float) -> Any:
        said = {"told_s": 0.0, "off": 0.1, "spiked": {"step_s": 10.0, "notices": []}}
        return {"truth_s": truth_s, "step_grew_s": grew_s, "alone_s": [3.0], "spiked_s": [10.0],
                "told": [said]}  # fmt: skip

    bases = {
        "device": {"kinds": {"python": kind(0.5, 0.5), "item": kind(3.5, 3.5)}},
        "host": {"kinds": {"views": kind(0.5, 0.5)}},
        "graph": {"skipped": "needs CUDA"},
    }
    found = scores.spikes({"bases": bases})
    assert [row["truth_of_filling_blocks"] for row in found["rows"]] == [True, False, False]
    assert found["refuted"] == ["item on device", "views on host"]
    assert found["off"]["graph"]["n"] == 0


def test_steps_after_a_profile_over_those_before() -> None:
    def walls(*medians: float) -> Any:
        return {when: {"wall_us": [us]} for when, us in zip(("before", "after", "later"), medians)}

    rows = [{"case": "once", **walls(10.0, 15.0, 15.0)}, {"case": "once", "error": "late"}]
    assert scores.residue({"rows": rows}) == {"once": {"n": 1, "median": 1.5, "ends": [1.5, 1.5]}}
    torn = {"medians_us": [10.0, 9.0, 11.0], "rows": [{}, {"kernels": 5}, {"kernels": 0}]}
    found = scores.sessions({"torn": torn, "last": {"error": "late"}})
    assert found["torn"]["ends"] == [0.9, 1.1] and found["torn"]["without_all_kernels"] == 1
    assert "last" not in found


def test_scripts_that_were_not_reached_are_named() -> None:
    clock = {"steps_s": [9.0, 1.0, 1.0], "free_s": None}
    told_s = {"step": {"time_s": {"median": 0.9}}, "notices": []}
    found = scores.scripts({
        "ceilings": {"exit": 0}, "late": {"skipped": "no time left"},
        "one": {"alone": {"clock": clock, "exit": 0},
                "diagnosed": {"diagnosis": told_s, "exit": -15}},
    })  # fmt: skip
    assert found["scripts"]["one"]["told_over_alone"] == 0.9
    assert not found["scripts"]["one"]["ended_alike"] and found["not_run"] == ["late"]
