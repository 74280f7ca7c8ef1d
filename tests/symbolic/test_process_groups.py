"""Programs that communicate by themselves, captured as rank 0 of a job that is not there."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.symbolic.ranks import process_groups  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402
from gobrrr.timeline.errors import CaptureError, InputError  # noqa: E402
from gobrrr.timeline.graph import OpGraph, Wrapping  # noqa: E402

pytestmark = pytest.mark.torch

TARGET = capture_target(target_device("H100-SXM"))


def captured(make: Callable[[], Any], ranks: int = 4) -> OpGraph:
    options = CaptureOptions(model=True, ranks=ranks, ranks_per_host=ranks)
    return capture_op_graph(make, TARGET, options)


def asked(graph: OpGraph) -> list[tuple[str, int, str, tuple[int, ...]]]:
    found = [op.collective for op in graph.ops if op.collective is not None]
    return [(each.kind, each.n_bytes, each.group, each.ranks) for each in found]


def launched() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def test_a_program_finds_itself_in_the_job() -> None:
    seen: dict[str, Any] = {}

    def make() -> Callable[[], Any]:
        launched()
        seen.update(rank=dist.get_rank(), size=dist.get_world_size(), env=os.environ["WORLD_SIZE"])
        x = torch.zeros(8, device="cuda")
        return lambda: x + 1

    captured(make)
    assert seen == {"rank": 0, "size": 4, "env": "4"}
    assert not dist.is_initialized()
    assert "WORLD_SIZE" not in os.environ


@pytest.mark.parametrize("by_name", [False, True])
def test_a_program_that_asks_for_ranks_is_told_that_there_are_none(by_name: bool) -> None:
    module = types.ModuleType("asks_for_ranks")
    exec("from torch.distributed import init_process_group as init", vars(module))

    def make() -> Callable[[], Any]:
        (module.init if by_name else dist.init_process_group)("nccl")
        return lambda: torch.zeros(8, device="cuda") + 1

    original = dist.init_process_group
    with pytest.raises(InputError, match="no ranks here: predict it on a mesh"):
        captured(make, ranks=1)
    assert dist.init_process_group is original
    assert module.init is original


def test_collectives_are_written_down_with_group_and_bytes() -> None:
    def make() -> Callable[[], Any]:
        launched()
        pair = dist.new_group([0, 1])
        x, whole = torch.zeros(8, device="cuda"), torch.zeros(32, device="cuda")

        def step() -> Any:
            dist.all_reduce(x, group=pair)
            dist.all_gather_into_tensor(whole, x)
            dist.reduce_scatter_tensor(x, whole)
            dist.broadcast(x, 0)
            return x

        return step

    found = asked(captured(make))
    everyone = (0, 1, 2, 3)
    assert [(kind, size, ranks) for kind, size, _, ranks in found] == [
        ("all_reduce", 32, (0, 1)),
        ("all_gather", 128, everyone),
        ("reduce_scatter", 128, everyone),
        ("broadcast", 32, everyone),
    ]
    assert [group for _, _, group, _ in found][1:] == ["world"] * 3


def test_objects_of_all_ranks_are_this_ranks() -> None:
    seen: list[Any] = []

    def make() -> Callable[[], Any]:
        launched()
        given: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(given, {"rank": dist.get_rank()})
        run = ["a name"]
        dist.broadcast_object_list(run, src=0)
        seen.extend([*given, *run])
        x = torch.zeros(8, device="cuda")
        return lambda: x + 1

    assert not asked(captured(make))
    assert seen == [{"rank": 0}] * 4 + ["a name"]


def test_a_pipeline_of_torch_is_refused_in_a_sentence() -> None:
    def make() -> Callable[[], Any]:
        launched()
        from torch.distributed import pipelining

        model = nn.Linear(8, 8).to("cuda")
        stage = pipelining.PipelineStage(model, 0, dist.get_world_size(), torch.device("cuda"))
        schedule = pipelining.ScheduleGPipe(stage, 4)
        x = torch.zeros(8, 8, device="cuda")
        return lambda: schedule.step(x)

    with pytest.raises(CaptureError, match=r"a pipeline of torch\.distributed\.pipelining"):
        captured(make)


def test_what_is_asynchronous_runs_beside_what_computes_until_it_is_waited_for() -> None:
    def make() -> Callable[[], Any]:
        launched()
        x, y = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")

        def step() -> Any:
            y.add_(1)
            work = dist.all_reduce(x, async_op=True)
            y.mul_(2)
            work.wait()
            return x.sub_(1)

        return step

    graph = captured(make)
    found = [(op.call.name.partition("::")[2], op.stream, op.after) for op in graph.ops]
    assert found == [
        ("add_", 0, ()),
        ("all_reduce", 6, (0,)),
        ("mul_", 0, ()),
        ("sub_", 0, (1,)),
    ]


def test_functional_collectives_wait_where_their_result_is_used() -> None:
    from torch.distributed import _functional_collectives as functional

    def make() -> Callable[[], Any]:
        launched()
        x, y = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")

        def step() -> Any:
            summed = functional.all_reduce(x, "sum", dist.group.WORLD)
            y.mul_(2)
            return summed + 1

        return step

    graph = captured(make)
    (collective,) = [at for at, op in enumerate(graph.ops) if op.collective is not None]
    assert graph.ops[collective].stream > 0
    names = [op.call.name for op in graph.ops]
    assert collective < names.index("aten::mul_") < names.index("aten::add")
    assert graph.ops[names.index("aten::mul_")].after == ()
    assert graph.ops[names.index("aten::add")].after == (collective,)


def wrapped(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], Any]:
    def make() -> Callable[[], Any]:
        launched()
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to("cuda")
        model = wrap(model)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.zeros(2, 8, device="cuda")

        def step() -> None:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return step

    return make


def test_ddp_is_noted() -> None:
    from torch.nn import parallel

    graph = captured(wrapped(lambda m: parallel.DistributedDataParallel(m, device_ids=[0])))
    assert graph.wrapping == Wrapping("ddp", (0, 1, 2, 3))
    assert graph.model is not None
    assert [each.name for each in graph.model.parameters] == [
        "0.weight", "0.bias", "2.weight", "2.bias",
    ]  # fmt: skip
    assert all(each.ready is not None for each in graph.model.parameters)


def test_fully_shard_is_noted_with_its_modules_and_mesh() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    def shard(model: Any) -> Any:
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model[0], mesh=mesh)
        return fully_shard(model, mesh=mesh)

    graph = captured(wrapped(shard))
    assert graph.wrapping == Wrapping("fsdp", (0, 1), (0, 2))
    assert graph.model is not None
    assert [each.unit for each in graph.model.parameters] == ["0", "0", "", ""]


IMPORTS_BY_NAME = """
from torch.distributed import all_reduce, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

OTHERWISE = [fully_shard]

def fully_shard_it(model):
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, mesh=mesh)

class Own(DDP):
    pass
"""


def module_of(source: str) -> types.ModuleType:
    """A module of a program; it need not be in ``sys.modules``."""
    module = types.ModuleType("program_with_names")
    exec(source, vars(module))
    return module


def test_what_a_program_imported_by_name_before_is_followed_too() -> None:
    """And it is the program's again afterwards: a second capture has its own."""
    program = module_of(IMPORTS_BY_NAME)
    before = dict(vars(program))
    for _ in range(2):
        graph = captured(wrapped(program.fully_shard_it))
        assert graph.wrapping == Wrapping("fsdp", (0, 1), (0, 2))
        graph = captured(wrapped(lambda m: program.DDP(m)))
        assert graph.wrapping == Wrapping("ddp", (0, 1, 2, 3))
        assert vars(program) == before


def test_what_is_imported_by_name_within_a_capture_is_the_original_after_it() -> None:
    made: list[types.ModuleType] = []

    def imported(model: Any) -> Any:
        made.append(module_of(IMPORTS_BY_NAME))
        return made[0].fully_shard_it(model)

    captured(wrapped(imported))
    program = made[0]
    assert program.fully_shard is torch.distributed.fsdp.fully_shard
    assert program.DDP is torch.nn.parallel.DistributedDataParallel
    assert program.all_reduce is dist.all_reduce
    assert program.init_process_group is dist.init_process_group
    # A helper of the program stays imported: the next capture must not write into the former's.
    graph = captured(wrapped(program.fully_shard_it))
    assert graph.wrapping == Wrapping("fsdp", (0, 1), (0, 2))


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda program, model: program.Own(model), "DistributedDataParallel"),
        (lambda program, model: program.OTHERWISE[0](model), "fully_shard"),
    ],
)
def test_originals_that_a_program_holds_otherwise_are_refused(
    wrap: Callable[[Any, Any], Any], name: str
) -> None:
    program = module_of(IMPORTS_BY_NAME)
    with pytest.raises(CaptureError, match=f"a {name} that was bound before the capture"):
        captured(wrapped(lambda model: wrap(program, model)))


@pytest.mark.parametrize("by_name", [True, False])
def test_layers_that_a_program_divides_itself_are_followed(by_name: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    parallelize_module = parallel.parallelize_module

    def divide(model: Any) -> Any:
        mesh = init_device_mesh("cuda", (4,), mesh_dim_names=("tp",))
        how = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
        if by_name:
            return parallelize_module(model, mesh, how)
        return parallel.parallelize_module(model, mesh, how)

    # With --mesh tp=4 nothing is divided a second time.
    options = CaptureOptions(model=True, ranks=4, ranks_per_host=4, tensor_parallel=4)
    graph = capture_op_graph(wrapped(divide), TARGET, options)
    assert graph.divided == 1
    assert graph.model is not None
    sizes = {each.name: each.shape for each in graph.model.parameters}
    assert (sizes["0.weight"], sizes["2.weight"]) == ((2, 8), (8, 2))
    assert all(each.gradient is not None for each in graph.model.parameters)
    # What the last layer's parts make is added up; the input has no gradient.
    found = [(op.phase, op.collective) for op in graph.ops if op.collective is not None]
    assert [(phase, c.kind, c.n_bytes, c.ranks) for phase, c in found] == [
        (Phase.FORWARD, "all_reduce", 2 * 8 * 4, (0, 1, 2, 3))
    ]


def sharded(model: Any, **options: Any) -> Any:
    from torch.distributed import fsdp

    return fsdp.fully_shard(model, **options)


def told(model: Any, method: str, *args: Any) -> Any:
    getattr(sharded(model), method)(*args)
    return model


def policy(dtype: Any) -> Any:
    from torch.distributed import fsdp

    return fsdp.MixedPrecisionPolicy(param_dtype=dtype)


def ddp(model: Any, **options: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model, **options)


def in_mesh(model: Any, *shape: int) -> Any:
    from torch.distributed import device_mesh

    device_mesh.init_device_mesh("cuda", shape)
    return model


def in_group(model: Any, *ranks: int) -> Any:
    dist.new_group(list(ranks))
    return model


def test_a_mixed_precision_policy_casts_what_it_computes_in() -> None:
    graph = captured(wrapped(lambda m: told(m, "set_requires_gradient_sync", True)))
    assert graph.wrapping == Wrapping("fsdp", (0, 1, 2, 3))
    graph = captured(wrapped(lambda m: sharded(m, mp_policy=policy(torch.bfloat16))))
    assert graph.model is not None
    assert {(each.dtype, each.stored) for each in graph.model.parameters} == {
        ("bfloat16", "float32")
    }
    products = [op.call for op in graph.ops if op.call.name in ("aten::addmm", "aten::mm")]
    assert {spec.dtype for call in products for spec in call.tensors} == {"bfloat16"}
    # The input is cast, once.
    casts = [op for op in graph.ops if op.call.name == "aten::_to_copy"]
    assert [op.phase for op in casts] == [Phase.FORWARD]


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (lambda m: ddp(m, delay_all_reduce_named_params=[1]), "delay_all_reduce_named_params="),
        (lambda m: nn.Sequential(ddp(m[0]), ddp(m[2])), "wraps several models"),
        (lambda m: sharded(m, reshard_after_forward=2), "reshard_after_forward=2"),
        (lambda m: sharded([m[0], m[2]]), "of a list of modules"),
        (lambda m: sharded(m, ignored_params={m[0].weight}), "ignored_params="),
        (lambda m: sharded(m, mp_policy=policy(torch.float16)), "with float16"),
        (lambda m: sharded(sharded(m[0]) and m[2]), "apply it to the model last"),
        (lambda m: told(m, "set_requires_gradient_sync", False), "set_requires_gradient_sync"),
        (lambda m: told(m, "set_modules_to_forward_prefetch", []), "set_modules_to_forward_pref"),
        (lambda m: torch.distributed.fsdp.FullyShardedDataParallel(m), "FSDP1"),
        (lambda m: in_mesh(m, 2, 4), r"a device mesh of 2 x 4 = 8 ranks, and --mesh has 4"),
        (lambda m: in_group(m, 2, 4), "a process group with rank 4, which does not exist"),
        (in_group, "a process group without ranks"),
    ],
)
def test_what_is_not_followed_is_refused_in_a_sentence(
    wrap: Callable[[nn.Module], nn.Module], said: str
) -> None:
    with pytest.raises(CaptureError, match=said):
        captured(wrapped(wrap))


def test_without_the_fake_group_a_program_of_a_job_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "torch.testing._internal.distributed.fake_pg", None
    )
    with pytest.raises(CaptureError, match="has no fake process group"):
        captured(wrapped(lambda m: m))
    # A plain model needs none.
    x = nn.Linear(2, 2)
    assert captured(lambda: (x, torch.zeros(2, 2))).wrapping is None


def test_a_process_of_a_real_job_predicts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(InputError, match="is already initialised in this process"):
        captured(wrapped(lambda m: m))
    assert process_groups.MISSING
