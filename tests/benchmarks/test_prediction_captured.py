"""The captured training programs are the measured models, and are predicted as the command does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.prediction_captured import gpt, mpt, steps
from benchmarks.prediction_captured.items import Item
from benchmarks.prediction_captured.mpt import Network
from benchmarks.prediction_captured.run import groups, of_known_overhead
from benchmarks.prediction_distributed.rows import FsdpRow, MegatronRow

import gobrrr

ROOT = Path(__file__).resolve().parents[2]
SMALL = Network(width=64, heads=4, layers=2, vocabulary=256, length=32)
MEGATRON = MegatronRow(
    width=64, heads=4, layers=4, seq_len=32, gpus=4, micro_batch=2, microbatches=3, tensor=1,
    data=2, pipeline=2, measured_s=1.0, fitted=True,
)  # fmt: skip
FSDP = FsdpRow(
    model="MPT-125m", width=64, heads=4, layers=2, vocabulary=256, seq_len=32,
    device="A100-SXM-80GB", gpus=8, microbatch=2, microbatches=1, precision="amp_bf16",
    sharding="FULL_SHARD", checkpointing=True, measured_s=1.0, fitted=True,
)  # fmt: skip
FSDP_COLUMNS = (
    "model,d_model,n_heads,n_layers,vocab,parameters,seq_len,gpu,gpus,microbatch,grad_accum,"
    "precision,sharding,activation_checkpointing,activation_cpu_offload,tokens_per_s,step_s,mfu"
)


def test_the_program_has_the_parameters_of_the_measured_model() -> None:
    import torch

    of = Network(width=7168, heads=56, layers=48, vocabulary=50368, length=4096)
    with torch.device("meta"):
        model = mpt.Decoder(of, recompute=False)
    # MPT-30b at 4,096 tokens, as llm-foundry counts it.
    assert sum(each.numel() for each in model.parameters()) == 29_989_894_144


def test_a_pipeline_is_predicted_as_the_function_does() -> None:
    found = steps.MegatronProgram(MEGATRON).predicted(MEGATRON)
    step = gpt.make_step(
        replace(SMALL, layers=4, vocabulary=50304), MEGATRON.micro_batch, whole_step=True
    )
    said = gobrrr.predict(step, "A100-SXM-80GB", mesh="dp=2,pp=2", microbatches=3)
    assert found.seconds == pytest.approx(said.step_s, rel=1e-4)
    assert found.peak_bytes == said.source["mesh"]["memory"]["peak"]
    assert found.host_bound == said.source["host_bound"]


def test_further_microbatches_take_their_passes_and_no_update() -> None:
    one, three = (steps.fsdp_step(replace(FSDP, microbatches=count)).seconds for count in (1, 3))
    assert one < three < 3 * one
    two = steps.fsdp_step(replace(FSDP, microbatches=2))
    slower = two.with_attention_slower(2.0)
    assert slower.seconds - two.seconds == pytest.approx(two.attention_s)
    assert 0 < two.attention_s < two.seconds
    assert slower.high_s / slower.low_s == pytest.approx(two.high_s / two.low_s)
    # Reductions of copies and the update are once in a step, whatever the microbatches.
    alone = replace(MEGATRON, data=1, pipeline=1, gpus=1)
    program = steps.MegatronProgram(alone)
    time = {
        (copies, count): program.predicted(replace(alone, data=copies, microbatches=count)).seconds
        for copies in (1, 2)
        for count in (1, 2)
    }
    assert time[2, 1] > time[1, 1]
    assert time[2, 2] - time[2, 1] == pytest.approx(time[1, 2] - time[1, 1], rel=1e-6)


def test_shards_are_those_that_the_program_asks_for() -> None:
    options = steps.mesh_of(FSDP)
    graph = steps.captured(steps.mpt_program(FSDP), FSDP.device, options)
    assert graph.wrapping is not None
    assert (graph.wrapping.kind, graph.wrapping.reduce_dtype) == ("fsdp", "float32")
    assert graph.wrapping.ranks == tuple(range(8))
    with pytest.raises(ValueError, match="SHARD_GRAD_OP"):
        steps.mpt_program(replace(FSDP, sharding="SHARD_GRAD_OP"))


def test_rows_of_each_half_are_scored_apart(tmp_path: Path) -> None:
    rows = [
        f"{model},64,4,2,256,1,32,a100_80gb,8,2,2,amp_bf16,FULL_SHARD,False,False,1,0.1,40"
        for model in ("MPT-125m", "MPT-350m")
    ]
    (tmp_path / "fsdp_mpt_a100.csv").write_text("\n".join([FSDP_COLUMNS, *rows]) + "\n")
    (tmp_path / "megatron_gpt_a100_node.csv").write_text(
        "gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tensor_parallel,data_parallel,"
        "pipeline_parallel,iteration_ms\n"
    )
    out = tmp_path / "out.json"
    command = [
        sys.executable, "benchmarks/prediction_captured/run.py", "--shared", str(tmp_path),
        "--out", str(out),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"src{os.pathsep}."}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [found["fsdp"][half]["n"] for half in ("fitted", "unseen")] == [1, 1]
    assert found["programs"] == {"there_are": 1, "predicted": 1}
    assert found["said_not_to_fit"] == {"n": 2, "said": 0}
    assert found["fsdp"]["fitted"]["bias"] < -0.5  # 0.1 s is made up, and far longer
    assert groups([])["all"]["unseen"] == {"n": 0, "interval_holds": None}
    # Rows are read as they were written, so that a figure can be added without another run.
    kept = found.pop("fsdp_attention_1")
    out.write_text(json.dumps(found))
    subprocess.run([*command, "--complete"], cwd=ROOT, env=environment, check=True)
    remade = json.loads(out.read_text())
    of_rows = remade.pop("fsdp_attention_1")["unseen"]
    assert of_rows["median_error"] == pytest.approx(kept["unseen"]["median_error"], abs=2e-3)
    assert remade == found


def test_hosts_that_wait_take_turns_in_a_pipeline() -> None:
    program = steps.MegatronProgram(MEGATRON)
    found = [program.predicted(MEGATRON, overhead) for overhead in (None, steps.MEGATRON_OVERHEAD)]
    item = Item(MEGATRON, found[0], found[1])
    (waiting,) = of_known_overhead([item], hosts_wait=True)
    in_turns_s = steps.MEGATRON_OVERHEAD * item.host_s
    assert waiting.predicted_s == pytest.approx(max(in_turns_s, found[1].seconds))
    # The schedule of the stages' passes knows of the turns by itself.
    assert found[1].seconds == pytest.approx(in_turns_s, rel=0.05)
    (plain,) = of_known_overhead(
        [replace(item, row=replace(MEGATRON, pipeline=1))], hosts_wait=True
    )
    assert plain.predicted_s == found[1].seconds
