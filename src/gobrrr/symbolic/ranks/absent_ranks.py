"""What a captured program may ask of a job whose other ranks are not there."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

from gobrrr.timeline.errors import CaptureError


def all_alike(object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
    """``all_gather_object``: every rank gives what this one gives."""
    object_list[:] = [obj] * len(object_list)


def refuse_objects(*_: Any, **__: Any) -> None:
    """``send_object_list`` and ``recv_object_list``.

    Raises CaptureError.
    """
    raise CaptureError(
        "what one rank sends another as an object is not known here, so that a pipeline of "
        "torch.distributed.pipelining cannot be predicted: --mesh pp=N makes one of a plain model"
    )


def within_job(function: Any, size: int) -> Any:
    """``init_device_mesh``, of a mesh that has as many ranks as the job."""

    @functools.wraps(function)
    def made(device_type: Any, mesh_shape: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = prod(mesh_shape)
        if wanted != size:
            shape = " x ".join(map(str, mesh_shape))
            raise CaptureError(
                f"the program makes a device mesh of {shape} = {wanted} ranks, and --mesh has "
                f"{size} devices: give a mesh of {wanted}"
            )
        return function(device_type, mesh_shape, *args, **kwargs)

    return made


def of_ranks(function: Any, size: int) -> Any:
    """``new_group``, of ranks that the job has."""

    @functools.wraps(function)
    def grouped(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        members = None if ranks is None else [int(rank) for rank in ranks]
        if members is not None and not members:
            raise CaptureError("the program makes a process group without ranks")
        beyond = [rank for rank in members or () if not 0 <= rank < size]
        if beyond:
            raise CaptureError(
                f"the program makes a process group with rank {beyond[0]}, which does not exist: "
                f"--mesh has {size} devices, ranks 0 to {size - 1}"
            )
        return function(ranks, *args, **kwargs)

    return grouped


def refuse_sender(*_: Any, **__: Any) -> None:
    """Who sent, which ``recv`` asks of its work where the program does not say it."""
    raise CaptureError(
        "the program receives from any rank (recv without src), and which one sends is "
        "not known here: give src, or use irecv"
    )


# What operators of c10d call the rank of the group that they send to, or receive from.
_PEERS = ("dst", "src", "root_rank")


def refuse_absent_peer(func: Any, args: Any, kwargs: Any, ranks: int, size: int) -> None:
    """Whether an operator of c10d communicates with a rank that its group has.

    ``ranks``: of the group; ``size``: of the job.

    Raises:
        CaptureError: with another, which PyTorch's fake process groups do not look at.
    """
    given = dict(zip((each.name for each in func._schema.arguments), args)) | kwargs
    peer = next((given[name] for name in _PEERS if type(given.get(name)) is int), None)
    if peer is None or 0 <= peer < ranks:
        return
    of_job = f"--mesh has {size} devices" if ranks == size else f"its process group has {ranks}"
    raise CaptureError(
        f"the program calls {func._schema.name.partition('::')[2].rstrip('_')} with rank {peer}, "
        f"which does not exist: {of_job}, ranks 0 to {ranks - 1}"
    )
