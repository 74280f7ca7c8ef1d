"""Wrappers of a program's model that are noted and not run: ``DistributedDataParallel``, FSDP2.

What they do is in code that knows no tensors without data (DDP's reducer) or in memory that they
free behind autograd's back (FSDP2). The step is built from their options afterwards.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gobrrr.observe.op_arguments import short_name
from gobrrr.timeline.errors import CaptureError
from gobrrr.timeline.graph import Wrapping

# Options that change nothing of what a step costs, or are followed; any other is refused by name.
_DDP_OPTIONS = frozenset({
    "device_ids", "output_device", "dim", "init_sync", "check_reduction", "static_graph",
    "broadcast_buffers", "forward_sync_buffers", "bucket_cap_mb", "find_unused_parameters",
    "gradient_as_bucket_view",
})  # fmt: skip
# Methods of a module under ``fully_shard`` that say what is the default, where they say True.
_DEFAULTS = frozenset({
    "set_requires_gradient_sync", "set_is_last_backward", "set_requires_all_reduce",
    "set_reshard_after_backward", "set_unshard_in_backward",
})  # fmt: skip
# ... and those that change what it communicates, or when.
_METHODS = frozenset({
    "reshard", "unshard", "reset_iter_state", "set_reshard_after_forward",
    "set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch", "set_custom_all_gather",
    "set_custom_reduce_scatter", "set_all_reduce_hook", "set_post_optim_event",
    "set_reduce_scatter_divide_factor", "set_gradient_divide_factor",
    "set_force_sum_reduction_for_comms", "set_reduce_scatter_unused_params",
    "set_reduce_scatter_max_input_buffers", "set_separate_reduce_scatter_group",
    "set_allocate_memory_from_process_group_for_comm", "set_symm_mem_for_comm",
})  # fmt: skip


@dataclass
class Wrapped:
    """What a program has wrapped.

    Attributes:
        wrapping: how; ``None`` so far.
        module: the model.
        wrapped: all that was wrapped, in order.
        units: the modules that ``fully_shard`` was applied to.
        reshards: what ``reshard_after_forward`` was for each, by its identity.
        stored: by the identity of a module and the name of its parameter, the dtype of the
            parameter's shards where it computes in another.
        silent: whether DDP is told to keep gradients to this rank.
    """

    wrapping: Wrapping | None = None
    module: Any = None
    wrapped: list[Any] = field(default_factory=list)
    units: list[Any] = field(default_factory=list)
    reshards: dict[int, bool | None] = field(default_factory=dict)
    stored: dict[tuple[int, str], str] = field(default_factory=dict)
    silent: bool = False

    @property
    def whole(self) -> list[Any]:
        """Units that stay gathered between their passes: by default the model's own."""
        said = self.reshards
        return [
            unit for unit in self.units
            if said[id(unit)] is False or (said[id(unit)] is None and unit is self.module)
        ]  # fmt: skip

    def check(self) -> None:
        """Whether the model holds all that was wrapped.

        Raises:
            CaptureError: there is more than one model.
        """
        inside = {id(each) for each in self.module.modules()}
        if all(id(each) in inside for each in self.wrapped):
            return
        if self.wrapping is not None and self.wrapping.kind == "ddp":
            raise CaptureError(
                "the step wraps several models in DistributedDataParallel, which cannot be "
                "predicted yet: predict a step that trains one"
            )
        raise CaptureError(
            "fully_shard was not applied to the model that holds all modules it was applied to: "
            "apply it to the model last"
        )

    def note(self, wrapping: Wrapping, module: Any) -> None:
        """The largest module that was wrapped is the model.

        Raises:
            CaptureError: the program wraps in several ways.
        """
        if self.wrapping is not None and self.wrapping != wrapping:
            raise CaptureError(
                "the step wraps its model in several ways (DDP and fully_shard, on several meshes, "
                "or with several precisions), which cannot be predicted yet"
            )
        self.wrapping = wrapping
        self.wrapped.append(module)
        inside = self.module is not None and any(each is self.module for each in module.modules())
        if self.module is None or inside:
            self.module = module


def followed_ddp(wrapped: Wrapped, true_class: type) -> type:
    """A class in place of ``DistributedDataParallel``."""
    import torch
    import torch.distributed as dist

    class FollowedDataParallel(true_class):  # type: ignore[misc]
        """The module that it wraps, noted."""

        def __init__(self, module: Any, *_: Any, process_group: Any = None, **options: Any) -> None:
            torch.nn.Module.__init__(self)
            self.module = module
            for name, value in options.items():
                if name not in _DDP_OPTIONS and value not in (None, False):
                    raise CaptureError(
                        f"DistributedDataParallel({name}={value}) cannot be predicted yet: leave "
                        "it out"
                    )
            group = process_group or dist.group.WORLD
            members = tuple(dist.get_process_group_ranks(group))
            cap = options.get("bucket_cap_mb")
            static = bool(options.get("static_graph"))
            wrapping = Wrapping(
                "ddp",
                members,
                bucket_bytes=None if cap is None else int(cap * (1 << 20)),
                bucket_views=bool(options.get("gradient_as_bucket_view")),
                # A static graph is looked through in the first step alone.
                finds_unused=bool(options.get("find_unused_parameters")) and not static,
                broadcasts=all(
                    options.get(name) is not False
                    for name in ("broadcast_buffers", "forward_sync_buffers")
                ),
            )
            wrapped.note(wrapping, module)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            former, wrapped.silent = wrapped.silent, True
            try:
                yield
            finally:
                wrapped.silent = former

        def __getstate__(self) -> Any:
            return vars(self)

    return FollowedDataParallel


class RefusedFsdp:
    """In place of the first FSDP."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise CaptureError(
            "FullyShardedDataParallel (FSDP1) cannot be predicted: fully_shard (FSDP2) can, and "
            "--mesh fsdp=N applies it to a plain model"
        )


def refuse_original_ddp(*_: Any, **__: Any) -> None:
    """The original's ``__init__``, where a program reaches it all the same.

    Raises CaptureError.
    """
    raise _of_before("DistributedDataParallel")


def refuse_original_shard(fsdp_module: type) -> Any:
    """``FSDPModule.__init_subclass__``: the original gives each module that it shards a class.

    What that raises is a CaptureError; a class that is none of a module is PyTorch's own.
    """
    import torch

    def defined(made: type) -> None:
        if fsdp_module in made.__bases__ and issubclass(made, torch.nn.Module):
            raise _of_before("fully_shard")

    return classmethod(defined)


def _of_before(name: str) -> CaptureError:
    return CaptureError(
        f"the program calls a {name} that was bound before the capture (in a subclass, a default "
        "argument, a table), which cannot be followed: call it by its own name"
    )


def followed_shard(wrapped: Wrapped, size: int) -> Callable[..., Any]:
    """A function in place of ``fully_shard``, in a job of ``size`` ranks."""

    def fully_shard(
        module: Any,
        *,
        mesh: Any = None,
        reshard_after_forward: Any = None,
        mp_policy: Any = None,
        **options: Any,
    ) -> Any:
        if isinstance(module, (list, tuple)):
            raise CaptureError(
                "fully_shard of a list of modules, which share their collectives, cannot be "
                "predicted yet: shard each"
            )
        for name, value in options.items():
            if value is not None and type(value).__name__ != "OffloadPolicy":
                raise CaptureError(
                    f"fully_shard({name}={value}) cannot be predicted yet: leave it out"
                )
        if not (reshard_after_forward is None or isinstance(reshard_after_forward, bool)):
            raise CaptureError(
                f"fully_shard(reshard_after_forward={reshard_after_forward}), shards over fewer "
                "ranks between the passes, cannot be predicted yet: True and False can"
            )
        reduced = _compute_in(wrapped, module, mp_policy)
        members = _members(size, mesh)
        wrapped.note(Wrapping("fsdp", *members, reduce_dtype=reduced), module)
        wrapped.units.append(module)
        wrapped.reshards[id(module)] = reshard_after_forward
        for name in (*_DEFAULTS, *_METHODS):
            vars(module)[name] = functools.partial(_told, name)
        return module

    return fully_shard


def _told(method: str, *args: Any, **kwargs: Any) -> None:
    """A method of ``FSDPModule``.

    Raises CaptureError where it asks for something else than the default.
    """
    if method not in _DEFAULTS or next(iter((*args, *kwargs.values())), None) is not True:
        raise CaptureError(
            f"{method} of a module under fully_shard cannot be predicted yet: its default can"
        )


def _compute_in(wrapped: Wrapped, module: Any, policy: Any) -> str:
    """Give a unit the dtype that a ``MixedPrecisionPolicy`` has it compute in.

    Returns the dtype that its gradients are reduced in; ``""`` for their own.
    """
    import torch

    if policy is None:
        return ""
    dtype, reduced = policy.param_dtype, policy.reduce_dtype
    if torch.float16 in (dtype, reduced):
        raise CaptureError(
            "a MixedPrecisionPolicy with float16, whose gradients are divided before and after "
            "they are reduced, cannot be predicted yet: bfloat16 can"
        )
    if dtype is not None:
        made: dict[int, Any] = {}
        for each in _own_modules(module, {id(unit) for unit in wrapped.units}):
            for name, parameter in each._parameters.items():
                if parameter is None or not parameter.is_floating_point():
                    continue
                if parameter.dtype != dtype:
                    if id(parameter) not in made:
                        with torch.no_grad():
                            cast = parameter.to(dtype)
                        made[id(parameter)] = torch.nn.Parameter(cast, parameter.requires_grad)
                    wrapped.stored[id(each), name] = short_name(parameter.dtype)
                    each._parameters[name] = made[id(parameter)]
        if policy.cast_forward_inputs:
            cast_inputs = functools.partial(_cast_inputs, dtype)
            module.register_forward_pre_hook(cast_inputs, prepend=True, with_kwargs=True)
    if policy.output_dtype is not None:
        module.register_forward_hook(functools.partial(_cast_output, policy.output_dtype))
    return "" if reduced is None or reduced == dtype else short_name(reduced)


def _own_modules(module: Any, units: set[int]) -> Iterator[Any]:
    """A module and those in it that are of no unit of their own."""
    yield module
    for child in module.children():
        if id(child) not in units:
            yield from _own_modules(child, units)


def _cast_inputs(dtype: Any, _: Any, args: Any, kwargs: Any) -> Any:
    return _cast(dtype, args), _cast(dtype, kwargs)


def _cast_output(dtype: Any, _: Any, __: Any, output: Any) -> Any:
    return _cast(dtype, output)


def _cast(dtype: Any, values: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    def one(value: Any) -> Any:
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floats and value.dtype != dtype else value

    return tree_map(one, values)


def _members(size: int, mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks that share a module's shards, and those that hold the same one."""
    import torch.distributed as dist

    if mesh is None:
        return tuple(range(size)), (0,)
    groups = [tuple(dist.get_process_group_ranks(group)) for group in mesh.get_all_groups()]
    return (groups[-1], groups[0]) if len(groups) == 2 else (groups[0], (0,))
