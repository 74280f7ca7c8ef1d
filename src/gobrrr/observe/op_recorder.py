"""One step seen op by op below autograd: arguments, storages, module, source line, page faults.

A separate, untimed pass: a dispatch mode costs two to four times a step. Regions under
``torch.compile`` run eagerly while a dispatch mode is active, so the ops recorded are the
program's own, not those of the generated code. A higher-order operator (``flex_attention``,
``cond``) is one op. Ops on a tensor subclass are those that the subclass makes of them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from gobrrr.devices.backends import gpu_in_use
from gobrrr.measure.deferred_signals import came_from_handler
from gobrrr.measure.process_counters import minor_faults
from gobrrr.observe.data_calls import in_data_loader
from gobrrr.observe.dispatch_stack import enter_below, leave
from gobrrr.observe.leaf_ops import leaf_op_mode, name_of
from gobrrr.observe.op_arguments import (
    Signature,
    describe_arguments,
    describe_outputs,
    signature_of,
)
from gobrrr.observe.optimizer_hooks import around_optimizer_steps
from gobrrr.observe.padding_watch import PaddingWatch
from gobrrr.observe.private_names import lacking
from gobrrr.observe.program_facts import MadeFact
from gobrrr.observe.replacement import put_in_place
from gobrrr.observe.source_lines import blamed_line, is_user_file
from gobrrr.observe.subnormal_values import SubnormalWatch
from gobrrr.observe.tensor_making import watch_tensor_making
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.names import GRAPH_REPLAY
from gobrrr.timeline.ops import OpCall

# Nodes of autograd that one op may stand for; more come from ops of an unrecorded stretch.
_MOST_NODES_PER_OP = 4096


class _ThreadState(threading.local):
    """Where a thread is in the program."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.optimizers = 0
        # Of these, those of a class of the user's.
        self.own_optimizers = 0
        # Autograd numbers its nodes per thread.
        self.next_sequence = _sequence_number()
        self.nodes = 0


class OpRecorder:
    """Records between ``start`` and ``stop``, which may be called from different frames.

    Both belong in the same thread. ``roots`` names modules known beforehand; others are named
    from the outermost one called. Without ``on_devices`` no device is asked what runs on it.
    """

    def __init__(self, roots: Mapping[str, Any] | None = None, *, on_devices: bool = True) -> None:
        self._on_devices = on_devices
        self._ops: list[StepOp] = []
        self._names: dict[int, str] = {}
        # Named modules, so that no other one gets the id of one that is gone.
        self._named: list[Any] = []
        # Path -> class of every module that was named.
        self.classes: dict[str, str] = {}
        self._roots = 0
        for prefix, module in (roots or {}).items():
            self._name_tree(module, prefix)
        self._parameters: dict[int, str] = {}
        self._forward_of: dict[int, tuple[str, str]] = {}
        self._undo: list[Callable[[], None]] = []
        self._mode: Any = None
        # Steps of optimizers that have begun; what one calls in its own is no other update.
        self.updates = 0
        # Op -> why it could not be described: a defect of gobrrr, which the program does not feel.
        self.failures: dict[str, str] = {}
        # Tensors made of Python's objects.
        self.made: list[MadeFact] = []
        self.padding = PaddingWatch()
        self.subnormal = SubnormalWatch()

    @property
    def ops(self) -> list[StepOp]:
        """What has been recorded so far, in order."""
        return self._ops

    def __enter__(self) -> OpRecorder:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin recording in this thread and the autograd threads that it waits for.

        Raises NotImplementedError where this PyTorch lacks what that needs.
        """
        if missing := lacking():
            raise NotImplementedError(f"this PyTorch has no {', '.join(missing)}")
        self._here = _ThreadState()
        self._mode = self._make_mode()
        enter_below(self._mode)
        self._track_modules()
        self._track_optimizers()
        self._track_graphs()
        if self._on_devices:
            self._undo.append(watch_tensor_making(self.made))

    def _make_mode(self) -> Any:
        return leaf_op_mode(self._record)

    def stop(self) -> list[StepOp]:
        """End recording and leave no hook behind; returns the ops in order.

        From another thread than ``start``'s the mode can only be made inactive.
        """
        if self._mode is not None:
            self._mode.active = False
            leave(self._mode)
            self._mode = None
        while self._undo:
            self._undo.pop()()
        self._names.clear()
        self._named.clear()
        self._parameters.clear()
        self._forward_of.clear()
        return self._ops

    # Modules and optimizers

    def name_of(self, module: Any) -> str | None:
        """The name of a module that has been called, as ops carry it."""
        return self._names.get(id(module))

    def _name_tree(self, root: Any, prefix: str = "") -> None:
        title = type(root).__name__
        # A second root (a loss module, a discriminator) is told apart by its class name.
        lead = prefix or (title if self._roots else "")
        self._roots += 1
        for name, module in root.named_modules():
            path = f"{lead}.{name}" if lead and name else name or lead or title
            self._names.setdefault(id(module), path)
            self.classes.setdefault(self._names[id(module)], type(module).__name__)
            self._named.append(module)

    def _track_modules(self) -> None:
        # The class's call rather than global hooks: those change how every module runs its
        # forward, and unbalance when one raises.
        import torch

        module_class = torch.nn.Module
        original = module_class.__call__
        is_compiling = torch.compiler.is_compiling

        def tracked_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._mode is None:
                return original(module, *args, **kwargs)
            stack = self._here.modules
            if not stack and self._on_devices:
                self.padding.look(args, kwargs, sys._getframe(1))
            name = self._names.get(id(module))
            if name is None:
                try:
                    # Inside another, which keeps it where PyTorch does not look (a list): all of
                    # its class have one name.
                    if not stack:
                        self._name_tree(module)
                    elif next(module.parameters(), None) is not None:
                        self._name_tree(module, f"{stack[-1]}.{type(module).__name__}")
                except Exception as error:  # a class of the user's may do anything when asked
                    self.failed(f"the names of {type(module).__name__}", error)
                name = self._names.get(id(module), stack[-1] if stack else type(module).__name__)
            stack.append(name)
            try:
                return original(module, *args, **kwargs)
            finally:
                stack.pop()

        self._undo.append(put_in_place(module_class, "__call__", tracked_call))

    def _track_optimizers(self) -> None:
        import torch

        def enters(*_: Any) -> None:
            self._here.optimizers += 1

        def steps(optimizer: Any, *_: Any) -> None:
            self.updates += not self._here.optimizers
            self._here.own_optimizers += _is_users(optimizer)
            enters()

        def leaves(*_: Any) -> None:
            self._here.optimizers = max(0, self._here.optimizers - 1)

        def stepped(optimizer: Any, *_: Any) -> None:
            self._here.own_optimizers = max(0, self._here.own_optimizers - _is_users(optimizer))
            leaves()

        # A model clears the gradients that an optimizer of its parameters would.
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._undo.append(
                put_in_place(owner, "zero_grad", _around(owner.zero_grad, enters, leaves))
            )
        self._undo.append(around_optimizer_steps(before=steps, after=stepped))

    def _track_graphs(self) -> None:
        # Of stand-ins none runs, and the target's kind of device is pretended.
        backend = gpu_in_use() if self._on_devices else None
        if backend is not None:
            self._undo.append(backend.watch_graphs(self._graph_replays))

    def _graph_replays(self) -> None:
        # What is in it was recorded by nobody: its kernels are those of this one op.
        if self._mode is not None:
            self.add(OpCall(GRAPH_REPLAY), self.place(sys._getframe(1)), 0)

    # Ops

    def place(self, frame: Any) -> tuple[str, str, Phase]:
        """Module, source line and phase of the op being dispatched."""
        here = self._here
        source = blamed_line(frame) or ""
        module = here.modules[-1] if here.modules else ""
        node = _autograd_node()
        if node is None:
            if here.modules:
                phase = Phase.FORWARD
            elif here.optimizers:
                phase = Phase.OPTIMIZER
            elif in_data_loader():
                phase = Phase.LOADING
            else:
                phase = Phase.FORWARD if grad_enabled() else Phase.OTHER
        else:
            phase = Phase.BACKWARD
            # With a module on the stack: a forward computed again (activation checkpointing).
            if not here.modules:
                module, caused = self._forward_of.get(_node_sequence(node), ("", ""))
                module = module or self._module_of_gradient(node)
                source = caused or source
        # Autograd makes an op's node before it calls the op.
        sequence = _sequence_number()
        here.nodes = 0
        if sequence != here.next_sequence:
            first = max(here.next_sequence, sequence - _MOST_NODES_PER_OP)
            for number in range(first, sequence):
                self._forward_of[number] = (module, source)
            here.next_sequence = sequence
            here.nodes = sequence - first
        return module, source, phase

    def _module_of_gradient(self, node: Any) -> str:
        # AccumulateGrad has no forward op: its parameter says where it belongs.
        variable = getattr(node, "variable", None)
        if variable is None:
            return ""
        if not self._parameters:
            for module in self._named:
                for parameter in module.parameters(recurse=False):
                    self._parameters.setdefault(id(parameter), self._names[id(module)])
        return self._parameters.get(id(variable), "")

    def failed(self, name: str, error: Exception) -> None:
        """Keep that an op could not be described; what is none of ours goes on to the program."""
        if came_from_handler(error):
            raise error
        self.failures.setdefault(name, f"{type(error).__name__}: {error}")

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        signature = _signature_of(func, args, kwargs)
        try:
            place = self.place(sys._getframe(2))
            described = describe_arguments(signature, args, kwargs)
        except Exception as error:  # ours, not the program's, which runs on
            self.failed(signature.name, error)
            return func(*args, **kwargs)
        clock = time.perf_counter_ns
        before = minor_faults()
        start_ns = clock()
        result = func(*args, **kwargs)
        end_ns = clock()
        faults = minor_faults() - before
        try:
            outputs = describe_outputs(result)
            if self._on_devices:
                self.subnormal.look(signature.name, place[1], args, result)
        except Exception as error:
            self.failed(signature.name, error)
            outputs = None
        call = OpCall(signature.name, described, outputs, signature.overload)
        read = result if isinstance(result, (bool, int, float, complex)) else None
        self.add(call, place, faults, start_ns, end_ns, read)
        return result

    def add(
        self,
        call: OpCall,
        place: tuple[str, str, Phase],
        page_faults: int,
        start_ns: int = 0,
        end_ns: int = 0,
        read: bool | int | float | complex | None = None,
    ) -> None:
        """Keep one op."""
        thread, nodes = threading.get_native_id(), self._here.nodes
        records = place[2] is Phase.BACKWARD and grad_enabled()
        by_library = place[2] is Phase.OPTIMIZER and not self._here.own_optimizers
        self._ops.append(
            StepOp(
                call, *place, thread, page_faults, nodes, start_ns, end_ns, read=read,
                by_library=by_library and read is not None, records=records,
            )
        )  # fmt: skip


def _is_users(optimizer: Any) -> bool:
    """Whether the class of an optimizer is in a file of the user's, or in none."""
    home = sys.modules.get(type(optimizer).__module__)
    path = getattr(home, "__file__", None)
    return path is None or is_user_file(path)


def _around(original: Any, enters: Callable[[], None], leaves: Callable[[], None]) -> Any:
    """The function between two others."""

    def call(*args: Any, **kwargs: Any) -> Any:
        enters()
        try:
            return original(*args, **kwargs)
        finally:
            leaves()

    return call


def _signature_of(func: Any, args: Any, kwargs: Any) -> Signature:
    if hasattr(func, "_schema"):
        return signature_of(func)
    # A higher-order operator has no schema: what it was given, in order.
    return Signature(
        name_of(func), "", tuple((name, None) for name in (*("",) * len(args), *kwargs))
    )


def _sequence_number() -> int:
    import torch

    return int(torch._C._autograd._get_sequence_nr())


def _node_sequence(node: Any) -> int:
    return int(node._sequence_nr())


def _autograd_node() -> Any:
    import torch

    return torch._C._current_autograd_node()


def grad_enabled() -> bool:
    """Whether autograd records what runs now."""
    import torch

    return bool(torch.is_grad_enabled())
