"""Predictions on a mesh: a diagnosis of the first rank's step, with what it communicates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.pipeline.predict import predict  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.prediction.mesh.collectives import Collective, Group, collective_time  # noqa: E402
from gobrrr.prediction.mesh.ddp import buckets_of  # noqa: E402
from gobrrr.reports.mesh_tables import mesh_text  # noqa: E402
from gobrrr.reports.perfetto import trace_of  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import Parameter  # noqa: E402

pytestmark = pytest.mark.torch

H100 = target_device("H100-SXM")
WIDTH, BATCH, LAYERS = 2048, 4096, 4


def training(width: int = WIDTH, batch: int = BATCH, layers: int = LAYERS) -> gobrrr.Workload:
    with torch.device("meta"):
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)),
            nn.Linear(width, 10),
        ).to(torch.bfloat16)
        inputs = torch.empty(batch, width, dtype=torch.bfloat16)
        targets = torch.empty(batch, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())
    return gobrrr.Workload(model, inputs, functional.cross_entropy, optimizer, targets)


def parameter_bytes(width: int = WIDTH, layers: int = LAYERS) -> int:
    return 2 * (layers * (width * width + width) + width * 10 + 10)


def exposed(found: Diagnosis) -> float:
    return float(found.source["mesh"]["exposed_s"])


def test_a_mesh_is_a_diagnosis_of_its_first_rank() -> None:
    alone, found = predict(training(), "H100-SXM"), predict(training(), "H100-SXM", mesh="dp=8")
    found.check()
    mesh = found.source["mesh"]
    assert (mesh["dp"], mesh["fsdp"], mesh["tp"], mesh["hosts"]) == (8, 1, 1, 1)
    assert found.leaves["memory.network"] == pytest.approx(exposed(found), rel=1e-6)
    assert found.leaves["memory.network_wait"] == 0.0
    assert found.step_s > alone.step_s
    assert found.step.time_s.low < found.step_s < found.step.time_s.high
    assert mesh["steps_per_s"] == pytest.approx(1 / found.step_s)
    assert mesh["tokens_per_s"] is None
    assert found.counters["collectives"] == sum(row["calls"] for row in mesh["communication"])


def test_ddp_reduces_every_gradient_once() -> None:
    found = predict(training(), "H100-SXM", mesh="dp=8")
    (row,) = found.source["mesh"]["communication"]
    assert (row["kind"], row["group"], row["ranks"]) == ("all_reduce", "dp", 8)
    assert row["n_bytes"] == parameter_bytes()
    # The first bucket is closed by the first gradient of more than 1 MiB, and so on: 8 MiB each.
    sizes = [20 + 2 * WIDTH * 10, *(2 * (WIDTH * WIDTH + WIDTH) for _ in range(LAYERS))]
    parameters = [
        Parameter(str(i), "", i, (1,), "bfloat16", size, ready=i) for i, size in enumerate(sizes)
    ]
    buckets = buckets_of(parameters)
    assert row["calls"] == len(buckets)
    assert H100.sheet is not None
    times = [
        collective_time(
            Collective.ALL_REDUCE, sum(p.n_bytes for p in bucket), Group(8), H100.sheet
        ).seconds
        for bucket in buckets
    ]
    # The last bucket has nothing to hide behind; what is exposed is no more than all of them.
    assert times[-1] <= row["exposed_s"] <= row["time_s"] == pytest.approx(sum(times), rel=1e-3)


def test_fsdp_holds_a_shard_and_communicates_more() -> None:
    whole = predict(training(), "H100-SXM", mesh="dp=8")
    found = predict(training(), "H100-SXM", mesh="fsdp=8")
    held, of_copy = found.source["mesh"]["memory"], whole.source["mesh"]["memory"]
    # Rows divide by 8, but for the last layer's 10, of which the first rank has 2.
    shard = 2 * (LAYERS * (WIDTH * WIDTH + WIDTH) // 8 + 2 * WIDTH + 2)
    assert of_copy["weights"] == parameter_bytes()
    assert held["weights"] == shard
    # AdamW: two moments of each, and counters on the host.
    assert held["optimizer"] == 2 * shard
    assert found.counters["peak_memory_bytes"] == held["peak"] < of_copy["peak"]
    kinds = {
        (row["kind"], row["phase"]): row["calls"] for row in found.source["mesh"]["communication"]
    }
    # Each layer is a block; the root has nothing of its own, so that nothing of it is gathered.
    assert kinds == {
        ("all_gather", "forward"): LAYERS + 1,
        ("all_gather", "backward"): LAYERS + 1,
        ("reduce_scatter", "backward"): LAYERS + 1,
    }


def test_slower_links_expose_more() -> None:
    fast = predict(training(), "H100-SXM", mesh="fsdp=16", hosts=2, link="8x400Gb")
    slow = predict(training(), "H100-SXM", mesh="fsdp=16", hosts=2, link="25Gb")
    assert exposed(slow) > 5 * exposed(fast)
    assert slow.source["mesh"]["link_bytes_per_s"] == pytest.approx(25e9 / 8)


def test_latency_is_added_to_every_collective_between_hosts() -> None:
    near = predict(training(), "H100-SXM", mesh="fsdp=16", hosts=2, link="8x400Gb")
    far = predict(training(), "H100-SXM", mesh="fsdp=16", hosts=2, link="8x400Gb,50us")
    assert exposed(far) > exposed(near)
    assert near.source["mesh"]["link_latency_s"] == 0.0
    assert far.source["mesh"]["link_latency_s"] == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mesh": "dp=16", "hosts": 2}, "spans 2 hosts: give the network bandwidth"),
        ({"mesh": "dp=8,fsdp=3", "hosts": 3, "link": "400Gb"}, "of fsdp=3 neither divide a host"),
        ({"mesh": "dp=6", "hosts": 4}, "cannot be divided equally among 4 hosts"),
        ({"mesh": "tp=2"}, "has no module of several nn.Linear"),
        ({"link": "400Gb"}, "--link applies to a mesh"),
    ],
)
def test_what_cannot_be_a_mesh_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        predict(training(), "H100-SXM", **options)  # type: ignore[call-overload]


def test_a_processor_has_no_mesh() -> None:
    with pytest.raises(InputError, match="is a CPU: give a GPU"):
        predict(training(), "cpu", mesh="dp=2")


def test_a_step_without_a_model_has_no_mesh() -> None:
    x = torch.empty(8, 8, device="meta")
    with pytest.raises(InputError, match="the step has no"):
        predict(lambda: x @ x, "H100-SXM", mesh="dp=2")


def test_the_report_fits_a_terminal(tmp_path: Path) -> None:
    found = predict(training(), "H100-SXM", mesh="dp=2,fsdp=4", name="net")
    text = mesh_text(gobrrr.load(found.save(tmp_path / "d.json")))
    assert "Mesh of 8 devices on 1 host: dp=2, fsdp=4, tp=1" in text
    assert "dp (2)" in text
    assert "reduce scatter" in text
    assert max(map(len, text.splitlines())) <= 80
    assert mesh_text(predict(training(64, 8), "H100-SXM")) == ""


def test_stages_of_a_pipeline_are_compiled() -> None:
    def of(*, compiled: bool) -> Diagnosis:
        # A host that takes no time: entering each compiled block costs more of it than so small
        # blocks save.
        return predict(
            training(), "H100-SXM", mesh="pp=2,dp=2", compile=compiled, host_overhead=0.001
        )

    plain, found = of(compiled=False), of(compiled=True)
    found.check()
    assert found.step_s < plain.step_s
    kinds = [
        {(row["kind"], row["group"]) for row in each.source["mesh"]["communication"]}
        for each in (plain, found)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("mesh", ["dp=8", "fsdp=8"])
def test_blocks_are_compiled_and_what_they_communicate_stays(mesh: str) -> None:
    plain = predict(training(), "H100-SXM", mesh=mesh)
    found = predict(training(), "H100-SXM", mesh=mesh, compile=True)
    found.check()

    def asked(each: Diagnosis) -> list[tuple[str, str, int, int]]:
        rows = each.source["mesh"]["communication"]
        return sorted((r["kind"], r["phase"], r["calls"], r["n_bytes"]) for r in rows)

    assert asked(found) == asked(plain)
    assert found.source["mesh"]["memory"] == plain.source["mesh"]["memory"]
    assert found.counters["kernels"] < plain.counters["kernels"]
    # Of the host's time, compiled blocks save ops, and each is entered.
    assert found.source["host_s"] > plain.source["host_s"]
    quick = [
        predict(training(), "H100-SXM", mesh=mesh, compile=compiled, host_overhead=0.001)
        for compiled in (False, True)
    ]
    assert quick[1].step_s < quick[0].step_s
    assert any("Each block is compiled by itself" in said for said in found.notices)


def test_streams_are_in_the_trace() -> None:
    found = predict(training(), "H100-SXM", mesh="fsdp=8")
    events = json.loads(trace_of(found))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    streams = {event["name"]: event["tid"] for event in kernels}
    assert streams["c10d::all_gather"] != streams["c10d::reduce_scatter"]
    assert {event["ph"] for event in events} == {"M", "X"}
