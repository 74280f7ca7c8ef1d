"""One step seen op by op below autograd: arguments, storages, module, source line, page faults.

A separate, untimed pass: a dispatch mode costs two to four times a step. Regions under
``torch.compile`` run eagerly while a dispatch mode is active, so the ops recorded are the
program's own, not those of the generated code.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gobrrr.capture.process_counters import minor_faults
from gobrrr.capture.source_lines import user_line
from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# Markers of the profiler, not operators of the program.
_IGNORED_NAMESPACES = ("profiler", "prims_profiler")


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """One op of the step.

    Attributes:
        call: the operator with its arguments (schema order) and outputs.
        module: path of the innermost module in its root, ``blocks.0.attn``; the root's class name
            for ops of the root itself; ``""`` outside modules. For a backward op: the module whose
            forward caused it.
        source: ``train.py:88 in get_batch``, the user's line; for a backward op, of the forward.
        phase: forward, backward, optimizer or other.
        thread: the operating system's identifier.
        page_faults: minor faults of the process while the op ran.
    """

    call: OpCall
    module: str
    source: str
    phase: Phase
    thread: int
    page_faults: int = 0


class OpRecorder:
    """Records between ``start`` and ``stop``, which may be called from different frames.

    ``roots`` names modules known beforehand; others are named from the outermost one called.
    """

    def __init__(self, roots: Mapping[str, Any] | None = None) -> None:
        self._ops: list[RecordedOp] = []
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._roots = 0
        for prefix, module in (roots or {}).items():
            self._name_tree(module, prefix)
        self._parameters: dict[int, str] = {}
        self._local = threading.local()
        self._forward_of: dict[int, tuple[str, str]] = {}
        self._in_optimizer = False
        self._undo: list[Any] = []
        self._mode: Any = None

    def __enter__(self) -> OpRecorder:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin recording in this thread and the autograd threads it starts."""
        self._next_sequence = _sequence_number()
        self._track_modules()
        self._track_optimizers()
        self._mode = _make_mode(self)
        self._mode.__enter__()

    def stop(self) -> list[RecordedOp]:
        """End recording; leaves no hook behind."""
        if self._mode is not None:
            self._mode.active = False
            self._mode.__exit__(None, None, None)
            self._mode = None
        for undo in self._undo:
            undo()
        self._undo.clear()
        return self._ops

    # Modules and optimizers

    def _name_tree(self, root: Any, prefix: str = "") -> None:
        title = type(root).__name__
        # A second root (a loss module, a discriminator) is told apart by its class name.
        lead = prefix or (f"{title}." if self._roots else "")
        self._roots += 1
        for name, module in root.named_modules():
            self._names.setdefault(module, (lead + name) if name else prefix or title)

    def _track_modules(self) -> None:
        import torch

        module_class = torch.nn.Module
        original = module_class.__call__
        is_compiling = torch.compiler.is_compiling

        def tracked_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(module, *args, **kwargs)
            stack = self._stack()
            name = self._names.get(module)
            if name is None:
                if not stack:
                    self._name_tree(module)
                name = self._names.get(module, stack[-1] if stack else type(module).__name__)
            stack.append(name)
            try:
                return original(module, *args, **kwargs)
            finally:
                stack.pop()

        module_class.__call__ = tracked_call

        def undo() -> None:
            module_class.__call__ = original

        self._undo.append(undo)

    def _track_optimizers(self) -> None:
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        def enters(*_: Any) -> None:
            self._in_optimizer = True

        def leaves(*_: Any) -> None:
            self._in_optimizer = False

        self._undo.append(register_optimizer_step_pre_hook(enters).remove)
        self._undo.append(register_optimizer_step_post_hook(leaves).remove)

    def _stack(self) -> list[str]:
        stack: list[str] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    # Ops

    def place(self, frame: Any) -> tuple[str, str, Phase]:
        """Module, source line and phase of the op being dispatched."""
        stack = self._stack()
        node = _autograd_node()
        if node is not None:
            if stack:
                # Recomputation of a forward (activation checkpointing) inside the backward.
                return stack[-1], user_line(frame) or "", Phase.BACKWARD
            module, source = self._forward_of.get(_node_sequence(node), ("", ""))
            if not module:
                module = self._module_of_gradient(node)
            return module, source or user_line(frame) or "", Phase.BACKWARD
        source = user_line(frame) or ""
        module = stack[-1] if stack else ""
        sequence = _sequence_number()
        for number in range(self._next_sequence, min(sequence, self._next_sequence + 64)):
            self._forward_of[number] = (module, source)
        self._next_sequence = max(sequence, self._next_sequence)
        if self._in_optimizer:
            return "", source, Phase.OPTIMIZER
        forward = bool(stack) or _grad_enabled()
        return module, source, Phase.FORWARD if forward else Phase.OTHER

    def _module_of_gradient(self, node: Any) -> str:
        # AccumulateGrad has no forward op: its parameter says where it belongs.
        variable = getattr(node, "variable", None)
        if variable is None:
            return ""
        if not self._parameters:
            for module, name in list(self._names.items()):
                for parameter in module.parameters(recurse=False):
                    self._parameters.setdefault(id(parameter), name)
        return self._parameters.get(id(variable), "")

    def add(self, op: RecordedOp) -> None:
        """Keep one op."""
        self._ops.append(op)


def _make_mode(recorder: OpRecorder) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class RecordingMode(TorchDispatchMode):  # type: ignore[misc]
        active = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            schema = func._schema
            name: str = schema.name
            if not self.active or name.partition("::")[0] in _IGNORED_NAMESPACES:
                return func(*args, **kwargs)
            module, source, phase = recorder.place(sys._getframe(1))
            described = describe_arguments(schema, args, kwargs)
            before = minor_faults()
            result = func(*args, **kwargs)
            faults = minor_faults() - before
            call = OpCall(name, described, _outputs(result), schema.overload_name)
            recorder.add(RecordedOp(call, module, source, phase, threading.get_native_id(), faults))
            return result

    return RecordingMode()


def describe_arguments(schema: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Arg, ...]:
    """Arguments in the schema's order, defaults filled in, tensors as ``TensorSpec``."""
    described = []
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            value = argument.default_value
        described.append(describe_value(value))
    return tuple(described)


def describe_value(value: Any) -> Arg:
    """One argument as plain data; what has no plain form (a generator) is ``None``."""
    import torch

    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(describe_value(item) for item in value)
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    return None


def describe_tensor(tensor: Any) -> TensorSpec:
    """Shape, dtype, strides, storage and device of a tensor (no strides for sparse layouts)."""
    import torch

    strides = storage = offset = None
    if tensor.layout is torch.strided:
        strides = tuple(int(s) for s in tensor.stride())
        offset = int(tensor.storage_offset())
        try:
            storage = tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError):
            storage = None
    return TensorSpec(
        shape=tuple(int(n) for n in tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        strides=strides,
        storage=storage,
        device=str(tensor.device),
        offset=offset,
    )


def _outputs(result: Any) -> tuple[TensorSpec, ...]:
    import torch

    if isinstance(result, torch.Tensor):
        return (describe_tensor(result),)
    if isinstance(result, (list, tuple)):
        return tuple(spec for item in result for spec in _outputs(item))
    return ()


def _sequence_number() -> int:
    import torch

    return int(torch._C._autograd._get_sequence_nr())


def _node_sequence(node: Any) -> int:
    return int(node._sequence_nr())


def _autograd_node() -> Any:
    import torch

    return torch._C._current_autograd_node()


def _grad_enabled() -> bool:
    import torch

    return bool(torch.is_grad_enabled())
