"""Global settings of the process that a fix may touch: read, compared, put back.

A trial must leave every one of them as it found it: a setting that leaks makes the program that
is timed next another program.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

# Configuration modules of the compiler: read only once the program has loaded them.
THREADS = "number of threads"
_COMPILER_CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
# These record what happened rather than what is wanted.
_NOT_SETTINGS = frozenset({"_cache_config_ignore_prefix", "_save_config_ignore"})
_WRAPPERS = (staticmethod, classmethod, property)
_VARIABLE = "environment variable "
# Wrapped by the compiler for good when it first compiles a module.
_COMPILER_FUNCTIONS = ("__init__", "__setstate__")
# Set by the compiler for its own later use when it first runs.
_COMPILER_VARIABLES = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "KMP_")


@dataclass(frozen=True, slots=True)
class Setting:
    """One global setting: how to read it, and how to write it (``None``: it cannot be)."""

    read: Callable[[], Any]
    write: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings at one moment, by name, with the way to write each."""

    values: Mapping[str, Any]
    known: Mapping[str, Setting]


def read_settings() -> Settings:
    """Every setting that can be read here and now."""
    values: dict[str, Any] = {}
    known: dict[str, Setting] = {}
    with warnings.catch_warnings():
        # Some settings warn that they no longer do anything.
        warnings.simplefilter("ignore")
        for name, setting in _settings():
            try:
                values[name] = setting.read()
            except (AttributeError, ImportError, KeyError, RuntimeError, TypeError):
                continue  # This version or build of torch does not have it.
            known[name] = setting
    return Settings(values, known)


def changed(before: Settings, after: Settings) -> tuple[str, ...]:
    """Names of settings that differ, sorted. What only one side could read is left out.

    (A configuration that was loaded in between has no earlier value to differ from.)
    """
    names = {
        name
        for name in before.values.keys() | after.values.keys()
        if name.startswith(_VARIABLE) or (name in before.values and name in after.values)
    }
    return tuple(sorted(n for n in names if not _same(before.values.get(n), after.values.get(n))))


def write_settings(wanted: Settings, names: Iterable[str]) -> tuple[str, ...]:
    """Give the named settings the wanted values; returns those that would not take it."""
    names = tuple(names)
    settings = [wanted.known.get(name) or _variable(name.removeprefix(_VARIABLE)) for name in names]
    errors = (AttributeError, RuntimeError, TypeError, ValueError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, setting in zip(names, settings):
            if setting.write is not None and not _reads(setting, wanted.values.get(name)):
                with contextlib.suppress(*errors):
                    setting.write(wanted.values.get(name))
        return tuple(
            name
            for name, setting in zip(names, settings)
            if not _reads(setting, wanted.values.get(name))
        )


def _reads(setting: Setting, wanted: Any) -> bool:
    """Whether it has that value by now.

    One setting may follow from another, and torch refuses to read some that were set in two ways.
    """
    try:
        return _same(setting.read(), wanted)
    except (AttributeError, RuntimeError):
        return False


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return bool(a == b)
    except (RuntimeError, TypeError, ValueError):
        return False


def _settings() -> Iterator[tuple[str, Setting]]:
    for name in sorted(os.environ):
        if not name.startswith(_COMPILER_VARIABLES):
            yield _VARIABLE + name, _variable(name)
    yield "gc.isenabled()", Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable())
    yield "gc.get_threshold()", Setting(gc.get_threshold, lambda v: gc.set_threshold(*v))
    yield "working directory", Setting(os.getcwd, os.chdir)
    if "torch" in sys.modules:
        yield from _torch_settings()
        yield from _torch_backends()
        yield from _torch_functions()
        yield from _module_hooks()
    for module in _COMPILER_CONFIGS:
        if module in sys.modules:
            yield from _compiler_config(module)


def _variable(name: str) -> Setting:
    def write(value: str | None) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    return Setting(lambda: os.environ.get(name), write)


def _torch_settings() -> Iterator[tuple[str, Setting]]:
    import torch

    for kind in ("cpu", "cuda"):
        yield (
            f"autocast on {kind}",
            Setting(
                partial(torch.is_autocast_enabled, kind),
                partial(torch.set_autocast_enabled, kind),
            ),
        )
        yield (
            f"autocast dtype on {kind}",
            Setting(
                partial(torch.get_autocast_dtype, kind),
                partial(torch.set_autocast_dtype, kind),
            ),
        )
    yield (
        "autocast cache",
        Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    )
    yield "grad mode", Setting(torch.is_grad_enabled, torch._C._set_grad_enabled)
    yield "inference mode", Setting(torch.is_inference_mode_enabled)
    yield "default dtype", Setting(torch.get_default_dtype, torch.set_default_dtype)
    yield (
        "default device",
        Setting(
            lambda: import_module("torch.utils._device").__dict__["CURRENT_DEVICE"],
            torch.set_default_device,
        ),
    )
    yield THREADS, Setting(torch.get_num_threads, torch.set_num_threads)
    yield "number of interop threads", Setting(torch.get_num_interop_threads)
    yield (
        "deterministic algorithms",
        Setting(
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
        ),
    )
    yield "anomaly mode", Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly)
    yield "flush denormals", Setting(_flushes_denormals, torch.set_flush_denormal)
    yield "torch function modes", Setting(torch._C._len_torch_function_stack)
    yield "torch dispatch modes", Setting(torch._C._len_torch_dispatch_stack)


def _flushes_denormals() -> bool:
    import torch

    # The smallest normal float64 is 2.2e-308; half of it is flushed to zero or it is not.
    with torch.no_grad():
        return bool((torch.tensor([2.3e-308], dtype=torch.float64) * 0.5 == 0).item())


def _torch_backends() -> Iterator[tuple[str, Setting]]:
    import torch

    def attribute(owner: Any, name: str) -> Setting:
        return Setting(lambda: getattr(owner, name), lambda v: setattr(owner, name, v))

    backends = torch.backends
    yield (
        "float32 matmul precision",
        Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    )
    for name in ("enabled", "benchmark", "deterministic", "allow_tf32", "benchmark_limit"):
        yield f"torch.backends.cudnn.{name}", attribute(backends.cudnn, name)
    for name in (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ):
        yield f"torch.backends.cuda.matmul.{name}", attribute(backends.cuda.matmul, name)
    yield "torch.backends.mkldnn.enabled", _mkldnn_enabled()
    for backend in ("cuda", "cudnn", "mkldnn"):
        for part in ("matmul", "conv", "rnn"):
            owner = getattr(getattr(backends, backend), part, None)
            if hasattr(owner, "fp32_precision"):
                yield f"torch.backends.{backend}.{part}.fp32_precision", _fp32_precision(owner)
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        read = getattr(backends.cuda, f"{kind}_sdp_enabled", None)
        write = getattr(backends.cuda, f"enable_{kind}_sdp", None)
        if read is not None:
            yield f"{kind} attention", Setting(read, write)


def _fp32_precision(owner: Any) -> Setting:
    """Not set (``none``) means what ``ieee`` means: setting it back leaves the second."""

    def read() -> str:
        value: str = owner.fp32_precision
        return "ieee" if value == "none" else value

    return Setting(read, lambda value: setattr(owner, "fp32_precision", value))


def _mkldnn_enabled() -> Setting:
    import torch

    return Setting(
        lambda: torch._C._get_mkldnn_enabled(), lambda v: torch._C._set_mkldnn_enabled(v)
    )


def _torch_functions() -> Iterator[tuple[str, Setting]]:
    """Functions and methods that a fix could have replaced and forgotten."""
    import torch
    from torch.utils.data import DataLoader

    functional = torch.nn.functional
    for label, owner in (
        ("torch", torch),
        ("torch.nn.functional", functional),
        ("torch.Tensor", torch.Tensor),
        ("torch.nn.Module", torch.nn.Module),
        ("torch.optim.Optimizer", torch.optim.Optimizer),
        ("DataLoader", DataLoader),
    ):
        yield f"functions of {label}", _namespace(owner)


def _namespace(owner: Any) -> Setting:
    def read() -> _Functions:
        return _Functions(
            (name, value)
            for name, value in vars(owner).items()
            if name not in _COMPILER_FUNCTIONS and (callable(value) or isinstance(value, _WRAPPERS))
        )

    def write(wanted: Mapping[str, Any]) -> None:
        for name, value in wanted.items():
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)

    return Setting(read, write)


class _Functions(dict[str, Any]):
    """Equal if every name in both is the same object: libraries add functions as they load."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return all(self[name] is other[name] for name in self.keys() & other.keys())


def _module_hooks() -> Iterator[tuple[str, Setting]]:
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers

    for home in (modules, optimizers):
        for name in sorted(vars(home)):
            if name.startswith("_global_") and isinstance(getattr(home, name), dict):
                yield f"global hooks {name}", _table(home, name)


def _table(home: Any, name: str) -> Setting:
    def write(wanted: dict[Any, Any]) -> None:
        table = getattr(home, name)
        table.clear()
        table.update(wanted)

    return Setting(lambda: dict(getattr(home, name)), write)


def _compiler_config(module: str) -> Iterator[tuple[str, Setting]]:
    config = sys.modules[module]
    names = getattr(config, "_config", {})
    for name in sorted(names):
        if name.rpartition(".")[2] in _NOT_SETTINGS:
            continue
        yield (
            f"{module}.{name}",
            Setting(partial(_by_path, config, name), partial(setattr, config, name)),
        )


def _by_path(config: Any, name: str) -> Any:
    value = getattr(config, name)
    # A list that is changed in place would be equal to itself.
    return value.copy() if isinstance(value, (list, dict, set)) else value
