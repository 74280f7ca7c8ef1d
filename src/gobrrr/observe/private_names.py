"""What recording needs of PyTorch that is not public: looked for before a step is recorded."""

from __future__ import annotations

from importlib import import_module

# Where each is used: ``op_recorder``, ``dispatch_stack``, ``leaf_ops``.
FOR_RECORDING = (
    "torch._C._autograd._get_sequence_nr",
    "torch._C._current_autograd_node",
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    "torch._C._get_dispatch_stack_at",
    "torch._C._len_torch_dispatch_stack",
    "torch._ops.OpOverload",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._python_dispatch._pop_mode",
    "torch.utils._python_dispatch._push_mode",
)


def lacking(names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Those of the names (``FOR_RECORDING``) that the installed PyTorch does not have.

    >>> lacking(("os.path.join", "os.path.joined", "os.path.to.join"))
    ('os.path.joined', 'os.path.to.join')
    """
    return tuple(name for name in names or FOR_RECORDING if not _exists(name))


def _exists(name: str) -> bool:
    home, _, own = name.rpartition(".")
    try:
        return hasattr(import_module(home), own)
    except ImportError:
        return False
