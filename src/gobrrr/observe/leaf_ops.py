"""A dispatch mode that sees each leaf operator of a program once, below autograd.

Not seen: composites (what they call is), what a tensor subclass is asked for (what it makes of it
is), markers of the profiler, and calls that exist under dispatch modes only. A higher-order
operator (``flex_attention``, ``cond``) is one op.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any

from gobrrr.timeline.nested import nested_tensors

# Markers of the profiler, and questions to a tensor: no operators of the program.
_IGNORED_NAMESPACES = ("profiler", "prims_profiler", "prim")

# (operator, args, kwargs) -> what the operator returned.
Visit = Callable[[Any, Any, Any], Any]


class _Kind(IntEnum):
    LEAF = 0
    COMPOSITE = 1
    MARKER = 2
    HIGHER_ORDER = 3


_KINDS: dict[Any, _Kind] = {}


def leaf_op_mode(visit: Visit) -> Any:
    """A mode that hands each leaf operator to ``visit``, which calls it.

    ``mode.active = False`` ends it in threads that still hold it.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    not_overridden = torch.Tensor.__torch_dispatch__

    class LeafOpMode(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True
        active = True

        # Compiled code stays compiled: without these, Dynamo would mark its frames to be skipped,
        # for good. (Older versions of torch ask the second question only.)
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def is_infra_mode(cls) -> bool:
            return not hasattr(TorchDispatchMode, "ignore_compile_internals")

        # Dynamo's frame hook is live while compiled code runs: it must not compile the recorder.
        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not self.active:
                return func(*args, **kwargs)
            kind = _KINDS.get(func)
            if kind is None:
                kind = _KINDS[func] = _kind_of(func)
            if types and kind is not _Kind.HIGHER_ORDER:
                if all(kind.__torch_dispatch__ is not_overridden for kind in types):
                    # Autograd saving an output: a ``detach`` that exists under dispatch modes only.
                    return func(*args, **kwargs)
                if FakeTensor not in types:
                    # A tensor subclass: what it dispatches to comes back here.
                    return NotImplemented
            if kind is _Kind.COMPOSITE:
                # Without autograd (inference mode) composites arrive whole, and so they do where
                # an argument is nested.
                key = composite_key()
                if func.name() in _nested_kernels() and _any_is_nested(args, kwargs):
                    key = _nested_kernels()[func.name()]
                if key is not None:
                    with self, views_tracked(func):
                        return func._op_dk(key, *args, **kwargs)
            if kind is _Kind.MARKER:
                return func(*args, **kwargs)
            return visit(func, args, kwargs)

    return LeafOpMode()


@lru_cache(maxsize=1)
def _nested_kernels() -> dict[str, Any]:
    """Composites with a kernel of their own for nested tensors of the strided layout.

    The key of that kernel where it calls other operators, ``None`` where the composite is a leaf:
    its usual kernel asks for sizes, which such a tensor does not have.
    """
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    found: dict[str, Any] = {}
    for name in torch._C._dispatch_get_all_op_names():
        if any(has_kernel(name, f"NestedTensor{kind}") for kind in ("CPU", "CUDA", "XPU")):
            found[name] = None
        elif has_kernel(name, "CompositeImplicitAutogradNestedTensor"):
            found[name] = torch._C.DispatchKey.CompositeImplicitAutogradNestedTensor
    return found


def _any_is_nested(args: Any, kwargs: Any) -> bool:
    return any(tensor.is_nested for tensor in nested_tensors((args, kwargs)))


def _kind_of(func: Any) -> _Kind:
    from torch._ops import OpOverload

    if not isinstance(func, OpOverload):
        return _Kind.HIGHER_ORDER
    if func.namespace in _IGNORED_NAMESPACES:
        return _Kind.MARKER
    return _Kind.COMPOSITE if only_calls_others(func) else _Kind.LEAF


def name_of(func: Any) -> str:
    """``aten::mm``, ``higher_order::cond``."""
    from torch._ops import OpOverload

    if isinstance(func, OpOverload):
        return str(func._schema.name)
    return f"higher_order::{func.name()}"


_COMPOSITES: dict[Any, bool] = {}


def only_calls_others(func: Any) -> bool:
    """Whether the op's only kernel is the composite one, for CPUs and GPUs alike."""
    known = _COMPOSITES.get(func)
    if known is None:
        import torch

        name = func.name()
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        # A kernel of a backend's own comes before the composite one.
        known = _COMPOSITES[func] = (
            hasattr(func, "_op_dk")
            # Questions about shapes (``aten::sym_size``) are no operators of the dispatcher: asked
            # for their kernels it raises, where a tensor's size is asked from C++ uncatchably.
            and torch._C._dispatch_has_kernel(name)
            and has_kernel(name, "CompositeImplicitAutograd")
            and not any(has_kernel(name, key) for key in ("CPU", "CUDA", "XPU", "MPS"))
        )
    return known


def composite_key() -> Any:
    """The key under which ``OpOverload._op_dk`` calls a composite's own kernel."""
    import torch

    return torch._C.DispatchKey.CompositeImplicitAutograd


def views_tracked(func: Any) -> Any:
    """A block in which a composite's views know what they are views of, as in inference mode.

    A dispatch mode runs below the key that makes views. Composites that a mode takes apart in
    inference mode would find that the transpose of a weight requires no gradient, and choose other
    kernels: a linear layer of a non-contiguous input copies it and runs one product if it does, one
    product for each matrix of the batch if it does not (``should_fold``, ``LinearAlgebra.cpp``).
    """
    import torch

    # Outside inference mode composites that arrive whole come from kernels that run below that key;
    # those with a kernel for it (``chunk``) make views of what is returned here.
    if not torch.is_inference_mode_enabled() or _makes_views(func):
        return contextlib.nullcontext()
    return torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)


@lru_cache(maxsize=4096)
def _makes_views(func: Any) -> bool:
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"))
