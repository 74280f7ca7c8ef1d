"""Global settings: every kind that a fix may touch is seen, named and put back."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gobrrr.verification.settings import changed, read_settings, write_settings

pytestmark = pytest.mark.torch


def _variable() -> None:
    os.environ["GOBRRR_TEST_LEAK"] = "1"


def _autocast() -> None:
    import torch

    torch.set_autocast_enabled("cpu", True)


def _default_dtype() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def _precision() -> None:
    import torch

    torch.set_float32_matmul_precision("medium")


def _grad_mode() -> None:
    import torch

    torch._C._set_grad_enabled(False)


def _threads() -> None:
    import torch

    torch.set_num_threads(torch.get_num_threads() + 1)


def _deterministic() -> None:
    import torch

    torch.use_deterministic_algorithms(True)


def _function() -> None:
    import torch

    torch.nn.functional.gelu = torch.nn.functional.relu


def _method() -> None:
    import torch

    original = torch.nn.Module.__call__
    torch.nn.Module.__call__ = lambda self, *args: original(self, *args)


def _hook() -> None:
    from torch.nn.modules.module import register_module_forward_hook

    register_module_forward_hook(lambda module, args, output: None)


def _device() -> None:
    import torch

    torch.set_default_device("meta")


def _sdpa() -> None:
    import torch

    torch.backends.cuda.enable_flash_sdp(False)


def _inductor() -> None:
    import torch._inductor.config as config

    config.cpp_wrapper = not config.cpp_wrapper


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (_variable, "environment variable GOBRRR_TEST_LEAK"),
        (_autocast, "autocast on cpu"),
        (_default_dtype, "default dtype"),
        (_precision, "float32 matmul precision"),
        (_grad_mode, "grad mode"),
        (_threads, "number of threads"),
        (_deterministic, "deterministic algorithms"),
        (_function, "functions of torch.nn.functional"),
        (_method, "functions of torch.nn.Module"),
        (_hook, "global hooks _global_forward_hooks"),
        (_device, "default device"),
        (_sdpa, "flash attention"),
        (_inductor, "torch._inductor.config.cpp_wrapper"),
    ],
)
def test_a_leak_is_named_and_put_back(leak: Callable[[], None], name: str) -> None:
    import torch._inductor.config  # noqa: F401

    before = read_settings()
    try:
        leak()
        leaks = changed(before, read_settings())
        assert name in leaks
    finally:
        refused = write_settings(before, changed(before, read_settings()))
    assert refused == ()
    assert changed(before, read_settings()) == ()


def test_nothing_done_changes_nothing() -> None:
    assert changed(read_settings(), read_settings()) == ()


def test_compiling_changes_no_setting() -> None:
    import torch
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    before = read_settings()
    layer = torch.nn.Linear(2, 2)
    # Without generated code: the frontend and the partitioner are what touches global state.
    torch.compile(layer, backend="aot_eager")(torch.ones(1, 2)).sum().backward()
    assert changed(before, read_settings()) == ()


def test_a_setting_that_cannot_be_written_is_said() -> None:
    import torch

    before = read_settings()
    with torch.inference_mode():
        leaks = changed(before, read_settings())
        assert "inference mode" in leaks
        assert "inference mode" in write_settings(before, leaks)
