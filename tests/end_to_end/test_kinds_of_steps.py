"""Scripts whose steps are not all the same: work and time of the same steps, whatever the warm-up.

No wall time is asserted; FLOPs are closed forms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NESTED = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def evaluate():
    net.eval()
    with torch.no_grad():
        for _ in range(30):
            net(torch.randn(32, 64)).argmax(1).sum().item()
    net.train()
for epoch in range(12):
    for i in range(5):
        loss = nn.functional.cross_entropy(net(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    evaluate()
"""
# 2 * 32 * (64 * 256 + 256 * 10) forward, as much for gradients of weights, and of the inputs of
# the second layer.
NESTED_FLOPS = 2 * 32 * (2 * (64 * 256 + 256 * 10) + 256 * 10)

VARYING = """
import random, torch
from torch import nn
torch.manual_seed(0); random.seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(260):
    n = random.randint(10, 200)
    loss = nn.functional.cross_entropy(net(torch.randn(n, 64)), torch.randint(0, 10, (n,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CHECKPOINTS = """
import io, torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(80):
    loss = net(torch.randn(32, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 8 == 7:
        torch.save(net.state_dict(), io.BytesIO())
"""

GENERATES = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
)
model = LlamaForCausalLM(config).eval()
for n in (5, 9, 7, 12, 6, 8, 11):
    prompt = torch.randint(3, 100, (1, n))
    model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, min_new_tokens=20,
        do_sample=False, pad_token_id=0,
    )
"""


def diagnosis_of(source: str, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    (folder / "script.py").write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, "-m", "gobrrr", "run", *options, "--json", "d.json", "script.py"],
        cwd=folder, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Where a line is broken depends on how many digits the measured figures have.
    return json.loads((folder / "d.json").read_text()), " ".join(done.stdout.split())


def matrix_flops(found: dict[str, Any]) -> float:
    return sum(row["flops"] for row in found["ops"] if row["unit"] == "matrix")


@pytest.mark.parametrize("warmup", ["3", "4"])
def test_a_step_recorded_with_evaluation_in_it_is_not_the_step(tmp_path: Path, warmup: str) -> None:
    found, text = diagnosis_of(NESTED, tmp_path, "--warmup", warmup, "--steps", "20")
    assert matrix_flops(found) == pytest.approx(NESTED_FLOPS, rel=0.02)
    assert found["mfu"] is None or found["mfu"] <= 1.05
    parts = {part["name"]: part for part in found["wall"]["parts"]}
    assert "script.py" in parts["evaluation"]["source"]
    assert found["wall"]["steps_share"] + sum(p["share"] for p in parts.values()) == pytest.approx(
        1
    )
    assert "Wall time: training steps" in text
    assert found["step"]["kind"] == "training step"


def test_work_of_steps_of_many_sizes_is_a_mean(tmp_path: Path) -> None:
    found, text = diagnosis_of(VARYING, tmp_path)
    # Rows between 10 and 200, each the same work.
    assert matrix_flops(found) == pytest.approx(NESTED_FLOPS / 32 * 105, rel=0.1)
    assert found["step"]["varying"]
    assert found["step"]["basis"] == "mean"
    assert "steps vary" in " ".join(text.split())


LENGTHS = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(32, 16)
    def forward(self, x):
        h = x.new_zeros(x.shape[0], 16)
        for at in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat((x[:, at], h), 1)))
        return h
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
# Blocks of timed steps are multiples of ten.
lengths = (2, 3, 4, 5, 7, 9, 12, 16, 21, 28)
for i in range(150):
    loss = net(torch.randn(4, lengths[i % 10], 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def test_a_script_of_many_lengths_holds_its_own_gate(tmp_path: Path) -> None:
    found = {}
    # Which lengths are recorded differs: with one of them the longest is, with the other not.
    for warmup in ("4", "9"):
        (tmp_path / warmup).mkdir()
        found[warmup], _ = diagnosis_of(
            LENGTHS, tmp_path / warmup, "--warmup", warmup, "--steps", "40"
        )
        assert found[warmup]["step"]["varying"]
        # A product for each place of the input forward and, of weights and states, two backward,
        # but for the first state's; 10.7 places in the mean.
        counted = sum(row["count"] for row in found[warmup]["ops"] if row["unit"] == "matrix")
        assert counted == pytest.approx(3 * 10.7 - 1, rel=0.1)
    assert found["4"]["counters"]["reads_of_one_value"] == pytest.approx(1)
    for now, before in (("4", "9"), ("9", "4")):
        gate = subprocess.run(
            [sys.executable, "-m", "gobrrr", "check", f"{now}/d.json", "--no-times",
             "--baseline", f"{before}/d.json"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert gate.returncode == 0, gate.stdout + gate.stderr


def test_saving_is_a_part_of_the_wall_time(tmp_path: Path) -> None:
    found, _ = diagnosis_of(CHECKPOINTS, tmp_path, "--warmup", "3", "--steps", "30")
    part = next(p for p in found["wall"]["parts"] if p["name"] == "checkpointing")
    assert "script.py" in part["source"]
    assert part["per_step"] == pytest.approx(1 / 8, rel=0.35)


@pytest.mark.models
def test_a_step_of_generation_is_one_token(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found, text = diagnosis_of(GENERATES, tmp_path, "--warmup", "8", "--steps", "30")
    assert found["step"]["kind"].startswith("decode step (one call of LlamaForCausalLM")
    assert found["step"]["tokens"] == 1
    assert "tokens per second" in text
    assert "prefill" in {part["name"] for part in found["wall"]["parts"]}


TWO_NETWORKS = """
import torch
from torch import nn
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8))
D = nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 1))
of_g = torch.optim.SGD(G.parameters(), lr=0.1)
of_d = torch.optim.SGD(D.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
for _ in range(60):
    of_d.zero_grad()
    fake = G(torch.randn(4, 8))
    criterion(D(fake.detach()), torch.zeros(4, 1)).backward()
    of_d.step()
    of_g.zero_grad()
    criterion(D(fake), torch.ones(4, 1)).backward()
    of_g.step()
"""


def test_modules_of_two_networks_have_their_names(tmp_path: Path) -> None:
    found, _ = diagnosis_of(TWO_NETWORKS, tmp_path, "--warmup", "4", "--steps", "6")
    names = {row["module"] for row in found["ops"] if row["name"] == "aten::addmm"}
    assert names == {"G.0", "G.1", "D.0", "D.1"}
