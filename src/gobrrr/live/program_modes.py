"""Modes that the program may be in where gobrrr does work of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def outside_the_program() -> Iterator[None]:
    """No mode of the program's sees what is called; no random state of the processor comes of it.

    Its dispatch and function modes, its autocast, its modes of autograd and its warnings' filters
    are off meanwhile.
    """
    import torch
    from torch.utils import _python_dispatch

    without_modes = getattr(_python_dispatch, "_disable_current_modes", None)
    with ExitStack() as stack:
        if without_modes is not None:
            stack.enter_context(without_modes())
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        # From torch 2.6 on.
        accelerators = getattr(torch, "accelerator", None)
        current = None if accelerators is None else accelerators.current_accelerator()
        for kind in ("cpu",) if current is None else ("cpu", current.type):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
