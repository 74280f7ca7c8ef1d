"""The benchmarks of collectives and of training on many GPUs run on rows of their files' form."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.prediction_distributed import intervals

ROOT = Path(__file__).resolve().parents[2]
NCCL = """collective,dtype,num_gpus,bytes,ms
{rows}"""
FSDP = """\
model,d_model,n_heads,n_layers,vocab,parameters,seq_len,gpu,gpus,microbatch,grad_accum,precision,\
sharding,activation_checkpointing,activation_cpu_offload,tokens_per_s,step_s,mfu
MPT-125m,768,12,12,50368,125000000,2048,a100_80gb,8,4,2,amp_bf16,FULL_SHARD,False,False,1,0.2,40
MPT-350m,1024,16,24,50368,350000000,2048,a100_40gb,16,4,2,bf16,FULL_SHARD,True,False,1,0.5,40
"""
MEGATRON = """\
gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tensor_parallel,data_parallel,\
pipeline_parallel,iteration_ms
2,8,4,1024,16,16,1024,1,2,1,200
2,8,4,1024,16,16,1024,2,1,1,250
2,8,4,1024,16,16,1024,1,1,2,300
2,8,4,1024,16,12,1024,1,2,1,150
"""


def run(topic: str, folder: Path, out: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, f"benchmarks/{topic}/run.py", "--shared", str(folder),
         "--out", str(out), *more],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"src{os.pathsep}."},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.fixture
def collectives(tmp_path: Path) -> Path:
    for device, scale in (("a100_sxm", 2.0), ("h100_sxm", 1.0)):
        rows = [
            f"{kind},half,{ranks},{2**power},{scale * (0.01 + 2**power / 3e8)}"
            for kind in ("all_gather", "all_reduce", "alltoall", "reduce_scatter")
            for ranks in (2, 4, 8)
            for power in range(9, 30)
        ]
        with gzip.open(tmp_path / f"nccl_{device}.csv.gz", "wt") as file:
            file.write(NCCL.format(rows="\n".join(rows)))
    return tmp_path


def test_collectives_are_scored_with_both_halves_apart(collectives: Path, tmp_path: Path) -> None:
    found = run("prediction_collectives", collectives, tmp_path / "out.json")
    summary = found["summary"]
    # 21 sizes: 11, 10 and 11 of them are fitted for 2, 4 and 8 ranks, of 4 kinds and 2 devices.
    assert (summary["fitted"]["n"], summary["unseen"]["n"]) == (256, 248)
    assert set(summary["device_left_out"]) == {"A100-SXM-80GB", "H100-SXM"}
    assert sum(entry["n"] for entry in found["unseen"]) == 248
    assert summary["plain_ring_unseen"]["bias"] < -0.5  # it knows no latency


def residuals(by_model: dict[str, list[float]], kind: str = "tensor") -> list[Any]:
    return [
        intervals.Residual(ratio, model, kind) for model, rows in by_model.items() for ratio in rows
    ]


def test_an_interval_is_as_wide_as_a_model_left_out_needs() -> None:
    near = [0.9 + 0.01 * i for i in range(21)]
    # Models that are alike hold each other as they are.
    assert intervals.spread_of(residuals({"a": near, "b": near, "c": near})) == 1.0
    # Of models that are not, each is further off than the others say.
    apart = {name: [ratio * by for ratio in near] for name, by in zip("abc", (0.85, 1.0, 1.15))}
    assert intervals.spread_of(residuals(apart)) > 1.2


def test_a_kind_of_one_model_has_the_interval_of_all() -> None:
    rows = [
        *residuals({"a": [0.9, 1.0, 1.1], "b": [0.95, 1.0, 1.2]}),
        *residuals({"a": [1.0, 1.0]}, "copies"),
    ]
    found = intervals.intervals(rows)
    assert set(found) == {intervals.ANY, "tensor"}
    assert found["tensor"].models == 2
    assert found["tensor"].holds(1.0)
    assert not found["tensor"].holds(3.0)


def test_steps_that_divide_by_what_no_fitted_step_does_have_a_wider_interval() -> None:
    rows = residuals({"a": [0.9, 1.0, 1.1], "b": [0.95, 1.0, 1.2]})
    fitted = [replace(each, degrees=(degree, 1)) for each, degree in zip(rows, (2, 8) * 3)]
    found, degrees = intervals.intervals(fitted), intervals.fitted_degrees(fitted)
    assert degrees == [{2, 8}, {1}]
    assert intervals.interval_of(fitted[0], found, degrees) == found["tensor"]
    for other in ((4, 1), (2, 2)):
        wide = intervals.interval_of(replace(fitted[0], degrees=other), found, degrees)
        assert wide.low < found[intervals.ANY].low < found[intervals.ANY].high < wide.high


def test_another_degree_is_as_far_off_as_each_that_is_left_out() -> None:
    rows = residuals({"a": [0.9, 1.0, 1.1], "b": [0.95, 1.0, 1.2]})
    fitted = [replace(each, degrees=(degree, 1)) for each, degree in zip(rows, (2, 8) * 3)]
    # One step of eight ranks counts as much as seven of two: 9/10 of all are 4/5 of those seven.
    left_out = [replace(fitted[0], ratio=1.0 + 0.001 * i) for i in range(7)]
    left_out.append(replace(fitted[1], ratio=0.5))
    found, degrees = intervals.intervals(fitted, left_out), intervals.fitted_degrees(fitted)
    other = intervals.interval_of(replace(fitted[0], degrees=(4, 1)), found, degrees)
    assert (other.low, other.high) == pytest.approx((0.5, 1.005))
    # A number of stages that was never measured is another thing.
    stages = intervals.interval_of(replace(fitted[0], degrees=(4, 2)), found, degrees)
    assert stages != other
    assert "tensor of another degree" not in intervals.intervals(fitted, left_out[:7])


def test_training_is_scored_and_meshes_are_ranked(tmp_path: Path) -> None:
    (tmp_path / "fsdp_mpt_a100.csv").write_text(FSDP)
    (tmp_path / "megatron_gpt_a100_node.csv").write_text(MEGATRON)
    found = run("prediction_distributed", tmp_path, tmp_path / "out.json")
    assert found["fsdp_one_host"]["fitted"]["n"] == 1
    assert found["fsdp_several_hosts"]["unseen"]["n"] == 1
    assert found["megatron_one_host"]["fitted"]["n"] == 1
    assert found["megatron_one_host"]["unseen"]["n"] == 3
    # Of two fitted models, each with a mesh of its own kind, there is one interval of all.
    assert set(found["intervals"]) == {
        "any",
        "shards on several hosts",
        "tensor",
        "pipeline",
        "copies",
    }
    assert found["intervals"]["tensor"]["models"] == 0
    ranked = found["meshes_unseen"]
    # The program's own order of the three: data, tensor, pipeline, as the made-up times have it.
    assert (ranked["groups"], ranked["median_tau"], ranked["worst_chosen"]) == (1, 1.0, 0.0)
