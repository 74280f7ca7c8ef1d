"""What programs that parallelise themselves communicate, as predicted and as two processes do it.

The same programs run under gloo, where each collective of a step is written down as torch issues
it, and are captured as the first rank of a job that is not there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.prediction.mesh.costs import mesh_ops  # noqa: E402
from gobrrr.prediction.mesh.mesh import Mesh  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.timeline.graph import ModelFacts  # noqa: E402

pytestmark = pytest.mark.torch

TARGET = capture_target(target_device("H100-SXM"))
PROGRAMS = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import parallel

DEVICE = os.environ.get("PROGRAMS_ON", "cuda")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=96, blocks=3, buffers=False):
        super().__init__()
        self.first = nn.BatchNorm1d(width) if buffers else nn.Linear(width, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def joined():
    if not dist.is_initialized():
        dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    return init_device_mesh(DEVICE, (dist.get_world_size(),), mesh_dim_names=("all",))


def training(model, runs=1):
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.ones(8, 96, device=DEVICE)

    def step():
        optimizer.zero_grad()
        for at in range(runs):
            if at < runs - 1:
                with model.no_sync():
                    model(x).float().square().mean().backward()
            else:
                model(x).float().square().mean().backward()
        optimizer.step()

    return step


def wrapped(model, **options):
    joined()
    return nn.parallel.DistributedDataParallel(model.to(DEVICE), **options)


def ddp():
    return training(wrapped(Net(buffers=True)))


def ddp_views():
    options = {"bucket_cap_mb": 0.25, "gradient_as_bucket_view": True, "broadcast_buffers": False}
    return training(wrapped(Net(buffers=True), **options), runs=2)


def ddp_unused():
    return training(wrapped(Net(width=96), bucket_cap_mb=0.25, find_unused_parameters=True))


def sharded(keep=None, root=None, **options):
    mesh = joined()
    model = Net().to(DEVICE)
    for at, block in enumerate(model.blocks):
        fsdp.fully_shard(block, mesh=mesh, reshard_after_forward=at != keep, **options)
    return training(fsdp.fully_shard(model, mesh=mesh, reshard_after_forward=root, **options))


def shards():
    return sharded()


def shards_mixed():
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return sharded(keep=2, mp_policy=policy)


def shards_reduced_in_bfloat16():
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    return sharded(root=True, mp_policy=policy)


def divided():
    mesh = joined()
    model = Net().to(DEVICE)
    how = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
    for block in model.blocks:
        parallel.parallelize_module(block, mesh, how)
    return training(model)


def by_hand():
    mesh = joined()
    n = dist.get_world_size()
    model = Net().to(DEVICE)
    whole, part = torch.ones(64 * n, device=DEVICE), torch.ones(64, device=DEVICE)
    sent, got = torch.ones(32 * n, device=DEVICE), torch.ones(32 * n, device=DEVICE)
    x = torch.ones(8, 96, device=DEVICE)

    def step():
        dist.all_gather_into_tensor(whole, part)
        dist.all_to_all_single(got, sent)
        model(x).sum().backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        for work in works:
            work.wait()
        dist.broadcast(part, 0, group=mesh.get_group())
        model.zero_grad()

    return step
"""
RECORD = """
import importlib.util, json, os, sys
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

spec = importlib.util.spec_from_file_location("programs", sys.argv[1])
programs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(programs)
# A file is where they meet: a port that is free now may be taken by another a moment later.
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}.store",
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

KINDS = {"allreduce_": "all_reduce", "all_reduce": "all_reduce", "_allgather_base_": "all_gather",
         "all_gather_into_tensor": "all_gather", "_reduce_scatter_base_": "reduce_scatter",
         "reduce_scatter_tensor": "reduce_scatter", "broadcast_": "broadcast",
         "alltoall_base_": "all_to_all"}


# They hand on what was asked for before.
HANDLES = ("wait_tensor", "_wrap_tensor_autograd")


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in tensors(item)]
    return []


class Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(each.__name__ in ("DTensor", "AsyncCollectiveTensor") for each in types):
            # They ask for collectives once they are taken apart.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if func.namespace in ("c10d", "_c10d_functional") and name not in HANDLES:
            sizes = [sum(t.numel() * t.element_size() for t in tensors(each))
                     for each in (*args, result)]
            self.found.append([KINDS.get(name, name), max(sizes)])
        return result


found = {}
for name in sys.argv[3:]:
    step = getattr(programs, name)()
    for _ in range(2):
        step()
    with Record() as record:
        step()
    found[name] = record.found
if dist.get_rank() == 0:
    with open(sys.argv[2], "w") as file:
        json.dump(found, file)
dist.barrier()
dist.destroy_process_group()
"""
NAMES = (
    "ddp", "ddp_views", "ddp_unused", "shards", "shards_mixed", "shards_reduced_in_bfloat16",
    "divided", "by_hand",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs")
    (path / "programs.py").write_text(PROGRAMS)
    (path / "record.py").write_text(RECORD)
    return path


@pytest.fixture(scope="module")
def issued(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Of each program, the collectives of a step: kind and bytes."""
    out = folder / "issued.json"
    ranks = []
    for rank in range(2):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
            "PROGRAMS_ON": "cpu", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, str(folder / "record.py"), str(folder / "programs.py"), str(out)]
        ranks.append(
            subprocess.Popen([*command, *NAMES], env=environment, stderr=subprocess.PIPE, text=True)
        )
    try:
        said = [rank.communicate(timeout=300)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert out.exists(), said
    found = json.loads(out.read_text())
    return {name: [(kind, size) for kind, size in rows] for name, rows in found.items()}


def made(folder: Path, name: str) -> Callable[[], Any]:
    def make() -> Any:
        spec = importlib.util.spec_from_file_location("programs", folder / "programs.py")
        assert spec is not None
        assert spec.loader is not None
        programs = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(programs)
        return getattr(programs, name)()

    return make


def predicted(folder: Path, name: str, ranks: int = 2) -> list[tuple[str, int]]:
    options = CaptureOptions(model=True, ranks=ranks, ranks_per_host=ranks)
    graph = capture_op_graph(made(folder, name), TARGET, options)
    ops = mesh_ops(graph, graph.model or ModelFacts((), ()), Mesh(dp=ranks)).ops
    asked = [op.collective for op in ops if op.collective is not None]
    assert all(each.ranks == tuple(range(ranks)) for each in asked)
    return [(each.kind, each.n_bytes) for each in asked]


@pytest.mark.parametrize("name", NAMES)
def test_collectives_are_those_that_torch_issues(
    folder: Path, issued: dict[str, list[tuple[str, int]]], name: str
) -> None:
    assert issued[name]
    assert predicted(folder, name) == issued[name]
