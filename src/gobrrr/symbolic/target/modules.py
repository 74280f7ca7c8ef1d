"""Modules of torch that answer for a device, as they would on the target, while a capture runs."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gobrrr.symbolic.stand_ins import real_call

if TYPE_CHECKING:
    from gobrrr.symbolic.target.answers import DeviceAnswers


class Replacements:
    """Attributes replaced, in order, to be put back in reverse."""

    def __init__(self) -> None:
        self._former: list[tuple[Any, str, bool, Any]] = []

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        """Replace one."""
        own = name in vars(owner)
        self._former.append((owner, name, own, vars(owner).get(name)))
        setattr(owner, name, value)

    def of_modules(self) -> list[tuple[Any, Any]]:
        """What modules had, which others may have imported by name, and what is in its place."""
        return [
            (former, vars(owner)[name])
            for owner, name, own, former in self._former
            if own and isinstance(owner, types.ModuleType)
        ]

    def undo(self) -> None:
        """Put all back."""
        while self._former:
            owner, name, own, value = self._former.pop()
            if own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)


def replace_transfers(put: Replacements, target: Any) -> None:
    """Copies to several devices (of which there is one), and tensors from other processes."""
    import torch
    from torch.multiprocessing import reductions
    from torch.nn.parallel import comm

    put(comm, "scatter", lambda tensor, *_, **__: (tensor.to(target),))
    put(comm, "broadcast", lambda tensor, *_, **__: (tensor.to(target),))
    put(comm, "broadcast_coalesced", lambda tensors, *_, **__: [[t.to(target) for t in tensors]])
    rebuild = reductions.rebuild_tensor

    @functools.wraps(rebuild)  # workers, which are forked from here, send its name
    def received(*args: Any) -> Any:
        # A data loader's batch is there already: it has a memory of its own.
        with torch._C.DisableTorchFunction():
            return real_call(rebuild, args, {})

    put(reductions, "rebuild_tensor", received)


def replace_autocast(put: Replacements, kind: str) -> None:
    """Autocast of the device ``kind`` is that of the CPU, where stand-ins are."""
    import torch
    from torch.amp import autocast_mode

    original = autocast_mode.autocast.__init__
    default = torch.get_autocast_dtype(kind)

    def here(name: Any) -> Any:
        return "cpu" if name == kind else name

    def initialise(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: Any = None,
    ) -> None:
        if device_type == kind and dtype is None:
            dtype = default
        original(self, here(device_type), dtype, enabled, cache_enabled)

    put(autocast_mode.autocast, "__init__", initialise)
    is_enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    set_enabled, set_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype
    put(torch, "is_autocast_enabled", lambda device_type=kind: is_enabled(here(device_type)))
    put(torch, "get_autocast_dtype", lambda device_type=kind: (
        default if device_type == kind and not is_enabled("cpu") else get_dtype(here(device_type))
    ))  # fmt: skip
    put(torch, "set_autocast_dtype", lambda device_type, dtype: set_dtype(here(device_type), dtype))

    def set_autocast(*args: Any, **kwargs: Any) -> None:
        device, enabled = (kind, args[0]) if len(args) == 1 else args
        set_enabled(here(device), enabled)

    put(torch, "set_autocast_enabled", set_autocast)
    put(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype(kind))


class _Ignored:
    """Stands for streams and events: enters, records and waits without effect."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Ignored:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "elapsed_time":
            return lambda *_: 1.0
        if name in ("query", "is_capturing"):
            return lambda: name == "query"
        return lambda *_, **__: self


def replace_device_module(put: Replacements, module: Any, answers: DeviceAnswers) -> None:
    """``torch.cuda`` (or its like) and ``torch.accelerator`` answer without a device."""
    import torch

    memory = answers.memory_bytes or 0
    major, minor = answers.capability
    properties = types.SimpleNamespace(
        name=answers.name, total_memory=memory, multi_processor_count=answers.multiprocessors or 0,
        major=major, minor=minor, warp_size=32,
    )  # fmt: skip
    constants: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "get_device_name": answers.name, "get_device_capability": answers.capability,
        "get_device_properties": properties, "is_bf16_supported": answers.bfloat16,
        "mem_get_info": (memory, memory), "memory_allocated": 0, "max_memory_allocated": 0,
        "memory_reserved": 0, "max_memory_reserved": 0, "memory_stats": {},
        "synchronize": None, "empty_cache": None, "set_device": None, "init": None,
        "reset_peak_memory_stats": None, "manual_seed": None, "manual_seed_all": None,
        "is_current_stream_capturing": False, "ipc_collect": None, "set_rng_state": None,
        "set_rng_state_all": None,
    }  # fmt: skip
    for name, value in constants.items():
        if hasattr(module, name):
            put(module, name, lambda *_, _value=value, **__: _value)
    for name in ("Stream", "Event", "current_stream", "default_stream", "stream", "device"):
        if hasattr(module, name):
            put(module, name, _Ignored)
    if hasattr(module, "get_rng_state"):
        put(module, "get_rng_state", lambda *_, **__: torch.get_rng_state())
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        target = torch.device(answers.type, 0)
        put(accelerator, "is_available", lambda: True)
        put(accelerator, "current_accelerator", lambda *_, **__: torch.device(target.type))
        put(accelerator, "device_count", lambda: 1)
        for name in ("synchronize", "set_device_index", "set_device_idx", "set_stream"):
            if hasattr(accelerator, name):
                put(accelerator, name, lambda *_, **__: None)
        for name in ("current_device_index", "current_device_idx"):
            if hasattr(accelerator, name):
                put(accelerator, name, lambda: 0)
        for name in ("current_stream", "device_index"):
            if hasattr(accelerator, name):
                put(accelerator, name, _Ignored)


@contextlib.contextmanager
def modules_applied_plainly() -> Iterator[None]:
    """``nn.Module._apply`` puts the stand-ins that it makes where the former were."""
    import torch

    put = Replacements()
    put(torch.nn.Module, "_apply", _apply)
    try:
        yield
    finally:
        put.undo()


def _apply(module: Any, function: Any, recurse: bool = True) -> Any:
    """``nn.Module._apply`` for stand-ins, which cannot be swapped (weak references watch them)."""
    import torch

    for child in module.children() if recurse else ():
        child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        with torch.no_grad():
            made = function(parameter)
        if made is not parameter:
            module._parameters[name] = torch.nn.Parameter(made, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module
