"""When torch gathers and scatters the shards of a pipeline's stages, beside what is predicted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.pipelining")

from tests.prediction.mesh.test_mesh_pipeline import FACTS, GRAPH  # noqa: E402

from gobrrr.prediction.kernels.kernel_model import DEFAULT_FLAGS  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.prediction.mesh.costs import Platform, cost_ops  # noqa: E402
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions  # noqa: E402
from gobrrr.prediction.mesh.pipeline import pipelined  # noqa: E402
from gobrrr.prediction.step.costs import CostedOp  # noqa: E402
from gobrrr.prediction.step.host_lane import TYPICAL_HOST  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="no gloo",
    ),
]
MICROBATCHES = 3
# Two stages of two blocks, each stage sharded over two ranks; what happens in a step, in order.
PROGRAM = f"""
import json, os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}", rank=rank, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "fsdp"))
said = []


def told(function, what):
    def asked(*args, **options):
        said.append(what)
        return function(*args, **options)

    return asked


for name, what in (("foreach_all_gather", "all_gather"), ("foreach_reduce", "reduce_scatter")):
    setattr(_fsdp_param_group, name, told(getattr(_fsdp_param_group, name), what))
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
net.register_forward_hook(lambda *_: said.append("forward"))
for block in net:
    fully_shard(block, mesh=mesh["fsdp"], reshard_after_forward=False)
fully_shard(net, mesh=mesh["fsdp"], reshard_after_forward=False)
stage = mesh["pp"].get_local_rank()
part = PipelineStage(net, stage, 2, torch.device("cpu"), group=mesh["pp"].get_group())
schedule = Schedule1F1B(part, {MICROBATCHES}, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(2 * {MICROBATCHES}, 8)
for _ in range(2):
    said.clear()
    optimizer.zero_grad()
    schedule.step(data) if stage == 0 else schedule.step(target=data)
    optimizer.step()
print(json.dumps(said), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def ends_pass(one: CostedOp) -> bool:
    return one.op.call.name == "aten::mm"


def test_shards_are_gathered_once_and_scattered_at_the_end_as_torch_does(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "store")],
            env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(4)
    ]  # fmt: skip
    try:
        ended = [each.communicate(timeout=240) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0] * 4, ended
    ran = [json.loads(out.splitlines()[-1]) for out, _ in ended]
    platform = Platform(target_device("H100-SXM"), None, DEFAULT_FLAGS)
    mesh = Mesh(pp=2, fsdp=2)
    plain = cost_ops(GRAPH, mesh, platform)
    options = MeshOptions(mesh, None, MICROBATCHES)
    found = pipelined(GRAPH, FACTS, plain, platform, TYPICAL_HOST, options)
    predicted = []
    for each in found.ops:
        call = each.op.collective
        if call is not None and call.group == "fsdp":
            predicted.append(call.kind)
        elif each.op.phase is Phase.FORWARD and each.op.module == "blocks.1" and ends_pass(each):
            predicted.append("forward")
    assert ran[0] == ran[1] == predicted
    assert predicted == [*["all_gather"] * 2, *["forward"] * 3, *["reduce_scatter"] * 2]
    # The last stage, whose passes take turns.
    assert ran[2] == ran[3] == predicted
