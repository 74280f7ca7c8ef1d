"""``gobrrr plan``, and ``gobrrr predict --mesh``: reports, refusals and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.cli import main

PROGRAM = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, width=2048, blocks=4):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_step():
    model = Net().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(4, 512, dtype=torch.long, device="cuda")

    def step():
        optimizer.zero_grad()
        model(tokens).float().mean().backward()
        optimizer.step()

    return step
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return f"{path}:make_step"


@pytest.mark.torch
def test_a_plan_shows_the_best_meshes(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "plan.json"
    arguments = ["plan", program, "--device", "H100-SXM", "--devices", "16", "--json", str(path)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "on 16 H100-SXM in 2 hosts" in text
    assert "Each host is assumed to have one 400 Gb/s network adapter per device" in text
    lines = [line for line in text.splitlines() if not line.startswith("Saved: ")]
    assert max(map(len, lines)) <= 80
    plan = json.loads(path.read_text())
    rows = plan["best"] + plan["others"]
    # tp of 1, 2, 4 and 8 within a host; of the other 16, 8, 4 and 2 every divisor is a pipeline's
    # stages, and of what a stage has every divisor is sharded: 5 + 4 + 3 + 2 + 1 of 16, and so on.
    left_out = sum(each["meshes"] for each in plan["left_out"])
    assert len(rows) + left_out == 15 + 10 + 6 + 3
    assert len({row["mesh"] for row in rows}) == len(rows)
    assert all(row["dp"] * row["fsdp"] * row["tp"] * row["pp"] == 16 for row in rows)
    rates = [row["batches_per_s"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    for row in plan["best"]:
        assert sum(row["parts_s"].values()) == pytest.approx(row["step_s"], rel=1e-6)
        assert row["low_s"] < row["step_s"] < row["high_s"]
        assert row["tokens_per_s"] == pytest.approx(2048 * row["batches_per_s"])
        batches = row["dp"] * row["fsdp"] * row["microbatches"]
        assert row["batches_per_s"] == pytest.approx(batches / row["step_s"])
        tokens = row["tokens_per_s"] * row["step_s"]
        assert row["tokens_per_joule"] == pytest.approx(tokens / row["joules"])
    assert plan["best"][0]["slower_because"] == ""
    assert all("fewer batches per second than" in row["slower_because"] for row in plan["best"][1:])


@pytest.mark.torch
def test_a_step_that_its_host_binds_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    program, path = tmp_path / "train.py", tmp_path / "plan.json"
    program.write_text(PROGRAM.replace("width=2048", "width=64").replace("(4, 512,", "(1, 16,"))
    plan = ["plan", f"{program}:make_step", "--device", "H100-SXM", "--devices", "2"]
    assert main([*plan, "--json", str(path)]) == 0
    bound = [row for row in json.loads(path.read_text())["best"] if row["host_bound"]]
    assert bound
    lines = capsys.readouterr().out.splitlines()
    for row in bound:
        assert row["low_s"] < row["step_s"] < row["high_s"]
        at = next(i for i, line in enumerate(lines) if f". {row['mesh']}: " in line)
        speed = " ".join(" ".join(lines[at : at + 3]).split())
        assert "per step (host-bound, " in speed


@pytest.mark.torch
def test_pipelines_are_planned_with_what_their_stages_wait(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "plan.json"
    plan = ["plan", program, "--device", "H100-SXM", "--devices", "4", "--json", str(path)]
    assert main(plan) == 0
    found = json.loads(path.read_text())
    rows = {row["mesh"]: row for row in found["best"] + found["others"]}
    # As many microbatches as stages: an update is of as many batches as on the other meshes.
    assert (rows["pp=4"]["microbatches"], rows["pp=2,dp=2"]["microbatches"]) == (4, 2)
    # Stages are not alike: at least (p - 1) / (m + p - 1).
    assert 3 / 7 < rows["pp=4"]["pipeline_waits"] < 1
    assert rows["fsdp=4"]["pipeline_waits"] is None
    assert rows["pp=4"]["slowest_stage"] in range(4)
    assert rows["fsdp=4"]["slowest_stage"] is None
    capsys.readouterr()
    assert main([*plan, "--microbatches", "32"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    found = json.loads(path.read_text())
    rows = {row["mesh"]: row for row in found["best"] + found["others"]}
    assert rows["pp=4"]["pipeline_waits"] < 0.4
    assert rows["pp=4"]["schedule"] in ("1f1b", "interleaved")
    assert "A pipeline runs 32 microbatches per step" in text
    assert "tokens per joule" in text
    assert "the last to update is stage" in text
    # What predict says of the same pipeline.
    out = tmp_path / "d.json"
    arguments = ["predict", program, "--device", "H100-SXM", "--mesh", "pp=4", "--json", str(out)]
    more = ["--microbatches", "32", "--schedule", rows["pp=4"]["schedule"]]
    assert main([*arguments, *more]) == 0
    step_s = json.loads(out.read_text())["step"]["time_s"]["median"]
    assert step_s == pytest.approx(rows["pp=4"]["step_s"], rel=0.05)


@pytest.mark.torch
def test_a_plan_is_what_predict_says(program: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plan, found = tmp_path / "plan.json", tmp_path / "d.json"
    assert (
        main(["plan", program, "--device", "H100-SXM", "--devices", "4", "--json", str(plan)]) == 0
    )
    planned = json.loads(plan.read_text())
    (row,) = [row for row in planned["best"] + planned["others"] if row["mesh"] == "fsdp=4"]
    arguments = ["predict", program, "--device", "H100-SXM", "--mesh", "fsdp=4"]
    assert main([*arguments, "--json", str(found)]) == 0
    diagnosis = json.loads(found.read_text())
    assert diagnosis["source"]["mesh"]["memory"] == row["memory"]
    # The plan costs what is as on one device as it is there: caches may hold other things.
    assert diagnosis["step"]["time_s"]["median"] == pytest.approx(row["step_s"], rel=0.02)


@pytest.mark.torch
def test_what_does_not_fit_is_left_out_with_the_reason(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "plan.json"
    plan = ["plan", program, "--device", "H100-SXM", "--devices", "4"]
    # 138 million parameters in bfloat16: weights, gradients, two moments and the buckets of DDP.
    assert main([*plan, "--memory", "1.2GB", "--json", str(path)]) == 0
    left_out = {each["mesh"]: each["reason"] for each in json.loads(path.read_text())["left_out"]}
    assert "a rank needs" in left_out["dp=4"]
    assert "1.20 GB" in left_out["dp=4"]
    assert "Left out:" in capsys.readouterr().out
    assert main([*plan, "--memory", "1MB"]) == 2
    assert "the step fits no mesh of 4 H100-SXM" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "X", "--device", "cpu", "--devices", "4"], "is a CPU: give a GPU"),
        (["plan", "X", "--device", "H100-SXM", "--devices", "12"], "give the number of hosts"),
        (["plan", "X", "--device", "H100-SXM", "--devices", "0"], "not a positive whole number"),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "4", "--memory", "a lot"],
            "not a memory size",
        ),
        (["plan", "X", "--device", "H100-SXM"], "--devices"),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "4", "--link", "400Gb"],
            "4 devices are on one",
        ),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "16", "--link", "NVLink"],
            "is not a bandwidth",
        ),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "16", "--link", "400Gb,soon"],
            "'soon' is not the latency of a network",
        ),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "16", "--hosts", "3"],
            "cannot be divided equally among 3 hosts",
        ),
        (
            ["plan", "X", "--device", "H100-SXM", "--devices", "4", "--microbatches", "0"],
            "not a positive whole number",
        ),
        (["plan", "X", "--device", "H100-SXM", "--devices", "4", "--memory", "-1GB"], "expected"),
        (["plan", "X", "--device", "H100-SXM", "--devices", "100000000"], "at the most"),
        (["predict", "X", "--device", "H100-SXM", "--mesh", "dp=-2"], "is at least 1"),
        (["predict", "X", "--device", "H100-SXM", "--mesh", "pp=8"], "the model has 4"),
        (
            ["predict", "X", "--device", "H100-SXM", "--mesh", "dp=2", "--link", "400Gb"],
            "the mesh is on one",
        ),
        (["predict", "X", "--device", "H100-SXM", "--mesh", "dp=0"], "is at least 1"),
        (["predict", "X", "--device", "H100-SXM", "--mesh", "tp=3"], "does not divide"),
        (["predict", "X", "--device", "H100-SXM", "--hosts", "2"], "--hosts applies to a mesh"),
        (
            ["predict", "--op", "mm(8x8, 8x8, bf16)", "--device", "H100-SXM", "--mesh", "dp=2"],
            "--mesh applies to a step",
        ),
        (
            [
                "predict",
                "X",
                "--device",
                "H100-SXM",
                "--device",
                "A100-SXM-80GB",
                "--perfetto",
                "p",
            ],
            "--perfetto writes the step on one device",
        ),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert main([program if each == "X" else each for each in arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    # A busy machine is told how far the capture is.
    said_lines = [line for line in captured.err.splitlines() if " so far)" not in line]
    assert len(said_lines) == 1


@pytest.mark.torch
def test_a_hosts_overhead_is_taken_as_given(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, found = tmp_path / "plan.json", {}
    asked = ["--device", "H100-SXM", "--devices", "2", "--json", str(path), "--host-overhead"]
    for times in ("1", "40"):
        assert main(["plan", program, *asked, times]) == 0
        found[times] = json.loads(path.read_text())["best"][0]
    assert found["40"]["step_s"] > 2 * found["1"]["step_s"]
    assert found["40"]["host_bound"]
    capsys.readouterr()
    for wrong in ("0", "much", "inf"):
        assert main(["plan", program, *asked, wrong]) == 2
        assert "not a number above 0" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize("mesh", ["dp=2,tp=2", "pp=2,tp=2"])
def test_layers_that_tp_leaves_whole_are_named(
    mesh: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert main(["predict", program, "--device", "H100-SXM", "--mesh", mesh]) == 0
    # The plain layer outside of the blocks' MLPs.
    said = " ".join(capsys.readouterr().out.split())
    assert "Left whole on every rank of tp: head." in said


@pytest.mark.torch
def test_a_mesh_is_reported_and_its_streams_written(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "trace.json.gz"
    arguments = ["predict", program, "--device", "H100-SXM", "--mesh", "fsdp=4,tp=2"]
    assert main([*arguments, "--perfetto", str(path), "--explain"]) == 0
    text = capsys.readouterr().out
    assert "Mesh of 8 devices on 1 host: dp=1, fsdp=4, tp=2" in text
    assert "Exposed communication:" in text
    assert "tokens per second" in text
    assert "FSDP2: fully_shard on 4 blocks" in text
    assert path.read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.torch
def test_meshes_whose_groups_lie_unevenly_on_hosts_are_left_out(
    program: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "plan.json"
    plan = ["plan", program, "--device", "H100-SXM", "--devices", "12", "--hosts", "3"]
    assert main([*plan, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    left_out = {each["mesh"]: each["reason"] for each in found["left_out"]}
    # Four devices a host.
    assert "the 3 neighbouring ranks of fsdp=3 neither divide a host" in left_out["dp=4,fsdp=3"]
    assert "dp=3,fsdp=4" not in left_out
    assert "Left whole on every rank of tp: head." in found["notices"]
