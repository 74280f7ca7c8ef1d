"""A program that communicates by itself, captured as the first rank of a job that is not there.

Its process groups are PyTorch's fake ones (``torch.testing._internal.distributed.fake_pg``): they
know their ranks and communicate nothing. What the program asks of them is written down with group,
bytes and stream; wrappers of its model are noted (``ranks.parallel_wrappers``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gobrrr.symbolic.ranks.absent_ranks import (
    all_alike,
    of_ranks,
    refuse_absent_peer,
    refuse_objects,
    refuse_sender,
    within_job,
)
from gobrrr.symbolic.ranks.imported_names import replaced_by_name
from gobrrr.symbolic.ranks.parallel_wrappers import (
    RefusedFsdp,
    Wrapped,
    followed_ddp,
    followed_shard,
    refuse_original_ddp,
    refuse_original_shard,
)
from gobrrr.symbolic.stand_ins import value_of
from gobrrr.symbolic.target.modules import Replacements
from gobrrr.timeline.errors import CaptureError, InputError
from gobrrr.timeline.graph import CollectiveCall
from gobrrr.timeline.nested import nested_tensors
from gobrrr.timeline.streams import StreamOrder

if TYPE_CHECKING:
    from gobrrr.symbolic.graph_recorder import GraphRecorder

NAMESPACES = frozenset({"c10d", "_c10d_functional"})
# Operator of c10d or of its functional form, without its trailing underscore -> what it asks for.
_KINDS = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce", "allgather": "all_gather",
    "_allgather_base": "all_gather", "all_gather_into_tensor": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather", "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
    "broadcast": "broadcast", "scatter": "broadcast", "reduce": "reduce", "gather": "reduce",
    "send": "send", "recv": "send", "recv_any_source": "send",
}  # fmt: skip
_ASYNCHRONOUS = (
    "all_reduce", "all_gather", "all_gather_single", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
    "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip
# Functions that are answered here, without a call.
_ANSWERS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(
        ("init_process_group", "destroy_process_group", "monitored_barrier",
         "broadcast_object_list"),
        lambda *_, **__: None,
    ),
    "all_gather_object": all_alike,
    **dict.fromkeys(("send_object_list", "recv_object_list"), refuse_objects),
}  # fmt: skip
_FIRST_STREAM = 6
# Where else programs take ``fully_shard`` from.
_SHARD_PATHS = ("torch.distributed.fsdp._fully_shard", "torch.distributed._composable.fsdp")
MISSING = (
    "this PyTorch has no fake process group (torch.testing._internal.distributed.fake_pg), which "
    "is needed to capture a step that calls collectives itself: give a plain model, to which "
    "--mesh applies DDP or FSDP2"
)


@dataclass
class Ranks:
    """The process groups of a captured program.

    Attributes:
        size: ranks of the job.
        per_host: of them on one host.
        order: which op waits for which, once streams are used.
        wrapped: what the program wrapped its model in.
    """

    size: int
    per_host: int
    order: StreamOrder = field(default_factory=StreamOrder)
    wrapped: Wrapped = field(default_factory=Wrapped)
    _streams: dict[str, int] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)
    _asynchronous: bool = False

    def called(
        self, recorder: GraphRecorder, func: Any, args: Any, kwargs: Any, inputs: list[Any]
    ) -> Any:
        """What an operator of c10d returns; it is written down.

        ``inputs``: tensors among its arguments.
        """
        import torch

        name = func._schema.name.partition("::")[2]
        functional = func.namespace == "_c10d_functional"
        if functional:
            result = recorder.results.run(func, args, kwargs, inputs)
        else:
            result = _answer(func, args)
        made = nested_tensors(result)
        recorder.place_outputs(made, inputs, False)
        place = recorder.place(sys._getframe(1))
        if name == "wait_tensor":
            self._wait_for(recorder, args[0])
            return result
        kind = _KINDS.get(name.removesuffix("_"))
        if kind is None:
            return result
        group = _group_of(args, kwargs)
        outputs = made if functional else []
        size = max(_bytes(inputs), _bytes(outputs)) if functional else _largest(args)
        ranks = tuple(torch.distributed.get_process_group_ranks(group))
        refuse_absent_peer(func, args, kwargs, len(ranks), self.size)
        call = CollectiveCall(kind, size, _name_of(group, self.size), ranks)
        stream = 0
        if functional or self._asynchronous:
            stream = self._streams.setdefault(call.group, _FIRST_STREAM + len(self._streams))
            self.order.wait_stream(stream, 0)
        recorder.keep_collective(call, (outputs or inputs)[0], place, stream)
        for tensor in outputs:
            number = recorder.storages.number(tensor)
            if number is not None:
                self._at[number] = len(recorder.graph) - 1
        return result

    def _wait_for(self, recorder: GraphRecorder, tensor: Any) -> None:
        number = recorder.storages.number(tensor)
        at = None if number is None else self._at.pop(number, None)
        if at is not None and recorder.recording:
            self.order.wait(0, frozenset((at,)))

    def followed(self, recorder: GraphRecorder, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of ``torch.distributed`` whose ``async_op`` is a stream's."""

        @functools.wraps(function)
        def asked(*args: Any, **kwargs: Any) -> Any:
            former, self._asynchronous = self._asynchronous, bool(kwargs.get("async_op"))
            try:
                work = function(*args, **kwargs)
            finally:
                self._asynchronous = former
            return work if work is None else _Work(self, len(recorder.graph) - 1)

        return asked


class _Work:
    """What an asynchronous call returns: waiting for it is the stream's, not the host's."""

    def __init__(self, ranks: Ranks, at: int) -> None:
        self._ranks, self._at = ranks, at

    def wait(self, *_: Any) -> bool:
        """What computes from here on starts after it."""
        if 0 <= self._at < len(self._ranks.order.ops):
            self._ranks.order.wait(0, frozenset((self._at,)))
        return True

    def is_completed(self) -> bool:
        """Nothing is ever late here."""
        return True

    def is_success(self) -> bool:
        """Nothing fails here."""
        return True


def _answer(func: Any, args: Any) -> Any:
    """What an operator of c10d returns by its schema: its first argument, a handle, or both."""
    from torch._C._distributed_c10d import FakeWork

    kinds = [str(each.type) for each in func._schema.returns]
    values = [FakeWork().boxed() if "Work" in kind else args[0] for kind in kinds]
    return values[0] if len(values) == 1 else tuple(values)


def _group_of(args: Any, kwargs: Any) -> Any:
    import torch
    from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group

    values = (*args, *kwargs.values())
    for value in values:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
            return ProcessGroup.unbox(value)
    names = [value for value in values if isinstance(value, str)]
    return _resolve_process_group(names[-1])


def _name_of(group: Any, size: int) -> str:
    described = str(getattr(group, "group_desc", "") or "")
    if described.startswith("mesh_") and described != "mesh_default":
        return described.removeprefix("mesh_")
    return "world" if group.size() == size else f"group {group.group_name}"


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _largest(args: Any) -> int:
    """The larger of a rank's two buffers, where each is an argument of its own."""
    return max((_bytes(nested_tensors((value,))) for value in args), default=0)


@contextlib.contextmanager
def as_first_rank(recorder: GraphRecorder, ranks: Ranks) -> Iterator[None]:
    """Until the block ends this process is rank 0 of a job, as the program sees it.

    Raises:
        InputError: it is a rank of a real one.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise InputError("this PyTorch was built without torch.distributed, which a mesh needs")
    if dist.is_initialized():
        raise InputError(
            "torch.distributed is already initialised in this process: predict a mesh in another "
            "process"
        )
    put, environment = Replacements(), dict(os.environ)
    os.environ.update(_launched(ranks))
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        # A plain model needs none of it.
        put(dist, "init_process_group", _refuse)
        put(dist.distributed_c10d, "init_process_group", _refuse)
    else:
        with recorder.switch.off(), _plainly():
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks.size)
        _replace(put, recorder, ranks)
    try:
        with replaced_by_name(put.of_modules()):
            yield
    finally:
        put.undo()
        if dist.is_initialized():
            dist.destroy_process_group()
        os.environ.clear()
        os.environ.update(environment)


def _launched(ranks: Ranks) -> dict[str, str]:
    """What torchrun tells its processes."""
    return {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks.size),
        "LOCAL_WORLD_SIZE": str(ranks.per_host), "GROUP_RANK": "0",
        "MASTER_ADDR": "localhost", "MASTER_PORT": "29500",
    }  # fmt: skip


def _refuse(*_: Any, **__: Any) -> None:
    raise CaptureError(MISSING)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Tensors of the machinery are real."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._mode_utils import no_dispatch

    with unset_fake_temporarily(), no_dispatch():
        yield


def _replace(put: Replacements, recorder: GraphRecorder, ranks: Ranks) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import device_mesh
    from torch.nn import parallel

    c10d = dist.distributed_c10d
    for name, answer in _ANSWERS.items():
        # One for each name: it tells which function is to be put back.
        answered = functools.partial(answer)
        for owner in (dist, c10d, device_mesh):
            if hasattr(owner, name):
                put(owner, name, answered)
    for name in _ASYNCHRONOUS:
        function = getattr(c10d, name, None)
        if function is not None:
            followed = ranks.followed(recorder, function)
            for owner in (dist, c10d):
                if hasattr(owner, name):
                    put(owner, name, followed)
    for owner in (dist, device_mesh):
        if hasattr(owner, "init_device_mesh"):
            made = within_job(device_mesh.init_device_mesh, ranks.size)
            put(owner, "init_device_mesh", _without_modes(made))
    grouped = of_ranks(dist.new_group, ranks.size)
    for owner in (dist, c10d):
        put(owner, "new_group", grouped)
    # Not at ``recv``, which a program may hold from before: PyTorch 2.11 does not look for a mode.
    for name in ("source_rank", "_source_rank"):
        put(dist.Work, name, refuse_sender)
    for method in ("__init__", "__getitem__", "_flatten", "get_group", "mesh"):
        own = vars(device_mesh.DeviceMesh).get(method)
        if own is not None:
            put(device_mesh.DeviceMesh, method, _without_modes(own))
    functional = dist._functional_collectives
    if hasattr(functional, "_maybe_wrap_tensor"):
        put(functional, "_maybe_wrap_tensor", functools.partial(_waits_when_used, functional))
    original = parallel.DistributedDataParallel
    ddp = followed_ddp(ranks.wrapped, original)
    for owner in (parallel, parallel.distributed):
        put(owner, "DistributedDataParallel", ddp)
    put(original, "__init__", refuse_original_ddp)
    with contextlib.suppress(ImportError):
        from torch.distributed import fsdp

        shard = followed_shard(ranks.wrapped, ranks.size)
        put(fsdp, "fully_shard", shard)
        put(fsdp, "FullyShardedDataParallel", RefusedFsdp)
        put(fsdp.FSDPModule, "__init_subclass__", refuse_original_shard(fsdp.FSDPModule))
        for path in _SHARD_PATHS:
            inner = sys.modules.get(path)
            if inner is not None:
                put(inner, "fully_shard", shard)
    put(torch._C, "_get_accelerator", lambda *_: torch.device(recorder.device.partition(":")[0]))


def _without_modes(function: Any) -> Any:
    if isinstance(function, property):
        return property(_without_modes(function.fget))

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        import torch

        with torch._C.DisableTorchFunction(), _plainly():
            return function(*map(_real, args), **{k: _real(v) for k, v in kwargs.items()})

    return plain


def _waits_when_used(functional: Any, tensor: Any) -> Any:
    """What a functional collective returns outside of a trace, which stand-ins are taken for."""
    if tensor.requires_grad:
        # Its backward pass has to see it.
        return functional.wait_tensor(tensor)
    return functional.AsyncCollectiveTensor(tensor)


def _real(value: Any) -> Any:
    """A tensor of ranks with its values, where it was made as a stand-in."""
    import torch

    known = value_of(value) if isinstance(value, torch.Tensor) else None
    return value if known is None else known
