"""Predictions of a pipeline: a diagnosis of its first stage's step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.diagnosis.verdict import verdict_of  # noqa: E402
from gobrrr.pipeline.predict import predict  # noqa: E402
from gobrrr.reports.mesh_tables import mesh_text  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402

pytestmark = pytest.mark.torch

# Wide layers: what a stage sends takes little beside what it computes.
WIDTH, BATCH, LAYERS = 16384, 2048, 8


def training(layers: int = LAYERS, **options: Any) -> gobrrr.Workload:
    with torch.device("meta"):
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(layers))
        ).to(torch.bfloat16)
        inputs = torch.empty(BATCH, WIDTH, dtype=torch.bfloat16)
        targets = torch.empty(BATCH, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    return gobrrr.Workload(model, inputs, functional.cross_entropy, optimizer, targets)


def test_a_pipeline_is_a_diagnosis_of_its_first_stage() -> None:
    alone = predict(training(), "H100-SXM")
    found = predict(training(), "H100-SXM", mesh="pp=4", microbatches=8)
    found.check()
    mesh = found.source["mesh"]
    assert (mesh["pp"], mesh["devices"]) == (4, 4)
    # A fourth of the work for each of 8 microbatches, and what is waited; the optimizer aside.
    pipeline = mesh["pipeline"]
    assert pipeline["seconds"] < found.step_s
    assert found.step_s > 8 * alone.step_s / 4 * 0.8
    # What the first stage waits is in the step, as communication.
    assert found.leaves["memory.network"] == pytest.approx(pipeline["bubble_s"][0], rel=0.05)
    # Equal stages wait (p - 1) / (m + p - 1) of it, and a little more for what is sent; the first
    # one more than that, for it needs no gradient of its input.
    assert 3 / 11 < pipeline["bubble_s"][1] / pipeline["seconds"] < 0.36
    assert pipeline["bubble_s"][0] > pipeline["bubble_s"][1]


def test_more_microbatches_make_less_of_a_bubble() -> None:
    few, many = (
        predict(training(), "H100-SXM", mesh="pp=4", microbatches=m).source["mesh"]["pipeline"]
        for m in (4, 32)
    )
    assert few["bubble_s"][0] / few["seconds"] > 2 * many["bubble_s"][0] / many["seconds"]


def test_schedules_hold_different_activations() -> None:
    held = {
        schedule: predict(
            training(), "H100-SXM", mesh="pp=4", microbatches=16, schedule=schedule
        ).source["mesh"]["memory"]["activations"]
        for schedule in ("1f1b", "gpipe")
    }
    # 16 in flight, not 4; and of all stages alike, so that the last one holds most, with the loss.
    assert 4 * held["1f1b"] < held["gpipe"] < 6 * held["1f1b"]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_activations_are_those_of_the_passes_whatever_the_optimizer_makes(optimizer: Any) -> None:
    # Weights of a layer are eight times its activations. One microbatch holds most where all
    # gradients are there and no activations (SGD), or what the optimizer makes beside them (AdamW).
    work = training()
    work = replace(work, optimizer=optimizer(work.model.parameters(), foreach=True))
    found = predict(work, "H100-SXM", mesh="pp=4", microbatches=32, schedule="gpipe")
    # Two outputs in each of two layers, 32 times; and the loss of the last stage.
    kept = 32 * 2 * 2 * (2 * BATCH * WIDTH)
    assert kept < found.source["mesh"]["memory"]["activations"] < 1.5 * kept


def test_what_the_optimizer_makes_is_there_once() -> None:
    memory = [
        predict(
            training(foreach=foreach), "H100-SXM", mesh="pp=4", microbatches=1, schedule="gpipe"
        ).source["mesh"]["memory"]
        for foreach in (True, False)
    ]
    # Lists of new tensors as large as a stage's weights; or one layer's at a time.
    weights = 2 * LAYERS / 4 * WIDTH * WIDTH
    assert memory[0]["activations"] == pytest.approx(weights, rel=0.1)
    assert memory[1]["activations"] < 0.5 * weights


def test_a_stage_holds_and_updates_its_own_layers() -> None:
    for options in ({"foreach": True}, {"foreach": False}):
        alone = predict(training(**options), "H100-SXM", mesh="dp=2").source["mesh"]["memory"]
        found = predict(training(**options), "H100-SXM", mesh="pp=4")
        memory = found.source["mesh"]["memory"]
        assert memory["weights"] == pytest.approx(alone["weights"] / 4, rel=0.01)
        assert memory["optimizer"] == pytest.approx(alone["optimizer"] / 4, rel=0.01)
    assert found.source["mesh"]["pipeline"]["microbatches"] == 16  # four for each stage


@pytest.mark.parametrize("foreach", [True, False])
def test_a_sharded_stage_holds_and_updates_shards_of_its_own_layers(foreach: bool) -> None:
    alone = predict(training(foreach=foreach), "H100-SXM", mesh="dp=2").source["mesh"]["memory"]
    found = predict(training(foreach=foreach), "H100-SXM", mesh="pp=2,fsdp=2", microbatches=4)
    found.check()
    memory = found.source["mesh"]["memory"]
    for kind in ("weights", "optimizer"):
        assert memory[kind] == pytest.approx(alone[kind] / 4, rel=0.01)
    # Gathered parameters, and gradients until they are scattered: whole.
    assert memory["gradients"] == pytest.approx(alone["weights"] / 2, rel=0.01)
    assert memory["buffers"] > alone["weights"] / 2
    whole = predict(training(foreach=foreach), "H100-SXM", mesh="pp=2", microbatches=4)
    updates = [each.source["mesh"]["pipeline"]["update_s"] for each in (found, whole)]
    assert updates[0] != updates[1]
    asked = {
        (row["group"], row["kind"], row["calls"]) for row in found.source["mesh"]["communication"]
    }
    # Four layers of a weight and a bias on each stage, a unit each.
    assert {("fsdp", "all_gather", 4), ("fsdp", "reduce_scatter", 4)} <= asked


def test_waits_for_other_stages_are_not_called_communication() -> None:
    found = predict(training(), "H100-SXM", mesh="pp=2", microbatches=2)
    pipeline = found.source["mesh"]["pipeline"]
    network_s = found.leaves["memory.network"] + found.leaves["memory.network_wait"]
    for waited_s, waits in ((0.9 * network_s, True), (0.1 * network_s, False)):
        pipeline["bubble_s"] = [waited_s, 0.0]
        found.regime = "memory"
        found.leaves |= dict.fromkeys((leaf for leaf in found.leaves if "device" in leaf), 0.0)
        said = verdict_of(found)
        assert ("waiting for other stages of the pipeline" in said) is waits
        assert ("with more microbatches (here 2)" in said) is waits
        assert ("a faster link" in said) is not waits


def test_a_stage_has_no_energy_of_the_tokens_of_all() -> None:
    assert predict(training(), "H100-SXM", mesh="dp=2").energy is not None
    assert predict(training(), "H100-SXM", mesh="pp=2", microbatches=2).energy is None


def test_the_report_says_what_its_stages_wait() -> None:
    found = predict(training(), "H100-SXM", mesh="pp=2,dp=2", microbatches=4)
    text = mesh_text(found)
    assert "pp=2, dp=2, fsdp=1, tp=1" in text
    assert "Pipeline: 4 microbatches (1f1b)" in text
    last = found.source["mesh"]["pipeline"]["slowest_stage"]
    assert f"the last to update is stage {last + 1} of 2" in " ".join(text.split())
    assert {row["group"] for row in found.source["mesh"]["communication"]} == {"pp", "dp"}
    assert all(len(line) <= 80 for line in text.splitlines())
    said = " ".join(found.notices)
    assert "divided evenly into 2 parts on 2 stages" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mesh": "dp=2", "microbatches": 4}, "--microbatches applies to a pipeline"),
        ({"mesh": "dp=2", "schedule": "1f1b"}, "--schedule applies to a pipeline"),
        ({"microbatches": 4}, "--microbatches applies to a mesh"),
        ({"mesh": "pp=2", "schedule": "2f2b"}, "no schedule '2f2b'; schedules are gpipe, 1f1b"),
        (
            {"mesh": "pp=16"},
            "a pipeline of 16 stages needs at least 16 blocks, and the model has 8",
        ),
        (
            {"mesh": "pp=4", "schedule": "interleaved", "microbatches": 6},
            "rounds of 4",
        ),
    ],
)
def test_what_is_no_pipeline_is_said_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        predict(training(), "H100-SXM", **options)
