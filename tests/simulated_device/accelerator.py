"""The device as a program meets it: a dispatch mode that sees its ops, and what only a device does.

``with Accelerator(...) as gpu:`` makes every op on CPU tensors one of the device, but for those on
tensors that ``gpu.on_host`` marked and those of a data loader.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.devices.backend import DriverCalls
from gobrrr.observe import source_lines
from gobrrr.observe.leaf_ops import leaf_op_mode, name_of
from simulated_device.hostility import HONEST, Hostility
from simulated_device.kernels import NVIDIA, Kernel, Op, Operand, Table, Vendor
from simulated_device.machine import AUTOGRAD, BESIDE, MAIN, Event, HostCosts, Machine
from simulated_device.traces import inputs_of

# To the program the device's own code is a library; programs and tests stand beside it.
LIBRARY = {
    str(Path(__file__).with_name(f"{name}.py"))
    for name in ("accelerator", "backend", "frames", "hostility", "kernels", "machine", "traces")
}
_NO_KERNEL = ("aten::empty", "aten::new_empty", "aten::detach", "aten::set_", "aten::resize_")
_LOADER = "enumerate(DataLoader)"
# A collective as an op of the program: below autograd, like ``c10d::allreduce_``.
_OPS = torch.library.Library("simulated_device", "DEF")
_OPS.define("all_reduce_(Tensor(a!) x) -> Tensor(a!)")
_OPS.impl("all_reduce_", lambda x: x, "CPU")


class Graph:
    """Kernels that one launch runs, back to back."""

    def __init__(self, gpu: Accelerator, kernels: tuple[tuple[str, str, int], ...]) -> None:
        self._gpu = gpu
        self._kernels = kernels

    def replay(self) -> None:
        """Launch them. Nothing is computed: results of a graph stay where they are."""
        gpu = self._gpu
        for call in gpu.before_replays:
            call()
        machine = gpu.machine
        machine.advance(gpu.costs.python)
        start_ns = machine.now_ns
        machine.stall()
        machine.advance(machine.recorded(gpu.costs.launch, call=True), "launch")
        call = machine.call(gpu.vendor.call_named("GraphLaunch"), start_ns, MAIN, None)
        for node, (op, name, ns) in enumerate(self._kernels):
            machine.run(name, ns, op, call, gap_ns=machine.hostile.node_gap_ns if node else None)
        for replayed in gpu.after_replays:
            replayed(self)


class Accelerator:
    """One simulated device. ``table`` gives the kernels of ops; else the vendor's rates do."""

    def __init__(
        self,
        vendor: Vendor = NVIDIA,
        costs: HostCosts | None = None,
        table: Table = lambda op: None,
        hostile: Hostility = HONEST,
    ) -> None:
        self.vendor = vendor
        self.costs = costs or HostCosts()
        self.machine = Machine(vendor, self.costs, hostile)
        self.table = table
        self.limit_bytes = vendor.memory_bytes
        self._mode: Any = None
        self._node: tuple[Any, str, int, int, int] | None = None
        self._host: dict[int, Any] = {}
        self._loading = 0
        self._fused: list[tuple[str, int]] = []
        self._captured: list[tuple[str, str, int]] | None = None
        self._stack = contextlib.ExitStack()
        self._live: dict[int, tuple[Any, int]] = {}
        self.peak_bytes = 0
        self.driver_calls = DriverCalls(0, 0)
        self.used = False
        self.before_replays: list[Callable[[], None]] = []
        self.after_replays: list[Callable[[Graph], None]] = []
        self._op_ns: int | None = None
        self._call_ns: int | None = None
        self._sequence = 0

    # ---- the device in a process

    def __enter__(self) -> Accelerator:
        self._mode = leaf_op_mode(self._visit)
        self._stack.callback(self._restore, source_lines.is_user_file)
        theirs = source_lines.is_user_file
        source_lines.is_user_file = lambda path: path not in LIBRARY and theirs(path)
        ranges = torch.autograd.profiler.record_function
        enters, leaves = ranges.__enter__, ranges.__exit__
        self._stack.callback(setattr, ranges, "__enter__", enters)
        self._stack.callback(setattr, ranges, "__exit__", leaves)
        ranges.__enter__ = lambda it: (self._range_opens(it), enters(it))[1]
        ranges.__exit__ = lambda it, *raised: (self._range_closes(it), leaves(it, *raised))[1]
        for asked in (torch.cuda, torch.cuda.graphs):
            self._stack.callback(
                setattr, asked, "is_current_stream_capturing", asked.is_current_stream_capturing
            )
            asked.is_current_stream_capturing = lambda: self._captured is not None
        self._mode.__enter__()
        self._sequence = torch._C._autograd._get_sequence_nr()
        return self

    def __exit__(self, *raised: object) -> None:
        self._mode.__exit__(*raised)
        self._stack.close()
        # References that are left at the end of the process each print what they cannot do then.
        self._live.clear()

    @staticmethod
    def _restore(theirs: Callable[[str], bool]) -> None:
        source_lines.is_user_file = theirs

    def _range_opens(self, it: Any) -> None:
        self.machine.advance(self.machine.recorded(0))
        it.simulated_ns = self.machine.now_ns
        self._loading += it.name.startswith(_LOADER)
        self.machine.loading = self._loading > 0

    def _range_closes(self, it: Any) -> None:
        self._loading -= it.name.startswith(_LOADER)
        self.machine.loading = self._loading > 0
        self._close_node()
        start_ns = getattr(it, "simulated_ns", self.machine.now_ns)
        self.machine.host_event("user_annotation", it.name, start_ns)

    # ---- ops

    def _visit(self, func: Any, args: Any, kwargs: Any) -> Any:
        machine, costs = self.machine, self.costs
        name = name_of(func)
        tensors = _tensors((args, kwargs))
        if self._loading or (tensors and all(self._is_host(t) for t in tensors)):
            return self._on_host(name, func, args, kwargs)
        if tensors and any(self._is_host(t) and t.dim() for t in tensors):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 and cpu!"
            )
        self.used = True
        thread = self._thread()
        numbered = self._numbered(thread)
        if thread == AUTOGRAD:
            machine.advance(costs.engine, "dispatch")
        else:
            machine.advance(costs.python)
        external, start_ns = machine.new_op(), machine.now_ns
        before = {t.untyped_storage()._cdata for t in tensors}
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        op = Op(name, tuple(map(_operand, tensors)), tuple(map(_operand, outputs)))
        self._allocate(outputs, before)
        if name == "aten::_local_scalar_dense":
            self._read_back(external, thread)
        elif _is_view(func) or name.startswith(_NO_KERNEL):
            machine.advance(machine.recorded(costs.view), "dispatch")
        else:
            wanted_ns = costs.dispatch if self._op_ns is None else self._op_ns
            machine.advance(machine.recorded(wanted_ns), "dispatch")
            for kernel in self.table(op) or self.vendor.kernels_of(op):
                self._launch(kernel, name, external, thread)
            machine.advance(costs.returning, "dispatch")
        if not self._fused:
            machine.host_event(
                "cpu_op", name, start_ns, thread,
                **{"External id": external, **numbered, **inputs_of(func, args, kwargs)},
            )  # fmt: skip
        return result

    def _launch(self, kernel: Kernel, op: str, external: int, thread: int) -> None:
        if self._captured is not None:
            self._captured.append((op, kernel.name, kernel.ns))
        elif not self._fused:
            self.machine.launch(
                kernel.name, kernel.ns, op=op, thread=thread, external=external,
                call_ns=self._call_ns,
            )  # fmt: skip

    def _read_back(self, external: int, thread: int) -> None:
        """``.item()``: a copy of one element, and a wait for it."""
        self.refuse_while_capturing()
        machine = self.machine
        machine.advance(machine.recorded(self.costs.dispatch), "dispatch")
        machine.launch(
            "Memcpy DtoH (Device -> Pageable)", 1000, op="aten::_local_scalar_dense",
            thread=thread, external=external, call="MemcpyAsync", cat="gpu_memcpy", bytes=4,
        )  # fmt: skip
        machine.wait(
            "StreamSynchronize", streams=(machine.stream,), thread=thread, external=external
        )

    def _on_host(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        external, start_ns = self.machine.new_op(), self.machine.now_ns
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self.on_host(tensor)
        self.machine.advance(self.machine.recorded(self.costs.dispatch), "dispatch")
        self.machine.host_event(
            "cpu_op", name, start_ns,
            **{"External id": external, **inputs_of(func, args, kwargs)},
        )  # fmt: skip
        return result

    def _numbered(self, thread: int) -> dict[str, int]:
        """Autograd's number of the next node as the op began, which by now has made its own."""
        number, self._sequence = self._sequence, torch._C._autograd._get_sequence_nr()
        if thread != MAIN or not torch.is_grad_enabled():
            return {}
        return {"Sequence number": number, "Fwd thread id": 0}

    def _thread(self) -> int:
        """Where the op runs; keeps the range of autograd's node around the ops that it calls."""
        node = torch._C._current_autograd_node()
        if node is None:
            self._close_node()
            return BESIDE if self.machine.beside else MAIN
        if self._node is None or self._node[0] is not node:
            self._close_node()
            external = self.machine.new_op()
            number = int(node._sequence_nr())
            self._node = (node, node.name(), number, self.machine.now_ns, external)
        return AUTOGRAD

    def _close_node(self) -> None:
        if self._node is None:
            return
        _, name, number, start_ns, external = self._node
        self._node = None
        self.machine.host_event(
            "cpu_op", f"autograd::engine::evaluate_function: {name}", start_ns, AUTOGRAD,
            **{"External id": external, "Sequence number": number,
               "Fwd thread id": 1},
        )  # fmt: skip

    # ---- memory

    def _allocate(self, outputs: list[Any], before: set[int]) -> None:
        known = len(self._live)
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in before and storage._cdata not in self._live:
                self._live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        if len(self._live) == known:
            return
        held = self.held_bytes()
        self.peak_bytes = max(self.peak_bytes, held)
        if held > self.limit_bytes:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {held - self.limit_bytes} bytes."
            )

    def held_bytes(self) -> int:
        """Bytes of the tensors that ops made and that live."""
        for key in [key for key, (ref, _) in self._live.items() if ref.expired()]:
            del self._live[key]
        return sum(size for _, size in self._live.values())

    # ---- what a program does with a device

    def on_host(self, tensor: Any) -> Any:
        """Mark a tensor as one of the host; returns it."""
        self._host[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def _is_host(self, tensor: Any) -> bool:
        return tensor.untyped_storage()._cdata in self._host

    def python(self, ns: int) -> None:
        """A loop of plain Python."""
        self.machine.advance(ns)

    @contextlib.contextmanager
    def taking(self, *, dispatch: int | None = None, launch: int | None = None) -> Iterator[None]:
        """Ops of the block take so long on the host: before their launch call, and in it."""
        self._op_ns, self._call_ns = dispatch, launch
        try:
            yield
        finally:
            self._op_ns = self._call_ns = None

    def synchronise(self, extra_ns: int = 0) -> None:
        """Wait for all streams; the call takes ``extra_ns`` longer than that."""
        self.refuse_while_capturing()
        machine = self.machine
        start_ns = machine.now_ns
        free_ns = max(machine.free_ns.values(), default=0)
        machine.advance(machine.recorded(self.costs.synchronise, call=True), "synchronisation")
        machine.hold(max(machine.now_ns, free_ns) + extra_ns)
        machine.call(self.vendor.call_named("DeviceSynchronize"), start_ns, MAIN, None)

    def to_device(self, tensor: Any, ns: int, *, pinned: bool = True) -> Any:
        """Copy a tensor of the host, which takes ``ns``; from pageable memory the host waits."""
        machine = self.machine
        machine.advance(self.costs.python)
        external, start_ns = machine.new_op(), machine.now_ns
        self._mode.active = False
        copied = torch.ops.aten._to_copy(tensor)
        self._mode.active = True
        self._allocate([copied], set())
        machine.advance(machine.recorded(self.costs.dispatch), "dispatch")
        where = "Pinned" if pinned else "Pageable"
        machine.launch(
            f"Memcpy HtoD ({where} -> Device)", ns, op="aten::_to_copy", external=external,
            call="MemcpyAsync", cat="gpu_memcpy", bytes=tensor.nbytes,
        )  # fmt: skip
        if not pinned:
            machine.wait("StreamSynchronize", streams=(machine.stream,), external=external)
        machine.host_event(
            "cpu_op", "aten::_to_copy", start_ns,
            **{"External id": external, **inputs_of(None, (tensor,), {})},
        )  # fmt: skip
        return copied

    @contextlib.contextmanager
    def stream(self, number: int, *, waits: bool = True) -> Iterator[None]:
        """Put what the block launches on another stream, which first ``waits`` for this one."""
        machine = self.machine
        outer = machine.stream
        if waits:
            machine.stream_waits(machine.record_event(), number)
        machine.stream = number
        try:
            yield
        finally:
            machine.stream = outer

    def all_reduce(self, tensor: Any, ns: int) -> Event:
        """Start a collective on its own stream; the event is its end."""
        machine = self.machine
        machine.advance(self.costs.python)
        call_external, call_ns = machine.new_op(), machine.now_ns
        self._mode.active = False
        torch.ops.simulated_device.all_reduce_(tensor)
        self._mode.active = True
        half = self.costs.dispatch // 2
        machine.advance(machine.recorded(half), "dispatch")
        external, start_ns = machine.new_op(), machine.now_ns
        machine.advance(machine.recorded(self.costs.dispatch - half), "dispatch")
        stream = self.vendor.collective_stream
        machine.stream_waits(machine.record_event(), stream)
        machine.launch(
            self.vendor.collective, ns, op="record_param_comms", external=external, stream=stream
        )
        machine.host_event(
            "cpu_op", "record_param_comms", start_ns,
            **{"External id": external, "Collective name": "allreduce",
               "In msg nelems": tensor.numel(), "Out msg nelems": tensor.numel(), "dtype": "Float",
               "Group size": 2, "Process Group Name": "0"},
        )  # fmt: skip
        machine.host_event(
            "cpu_op", "simulated_device::all_reduce_", call_ns,
            **{"External id": call_external, **inputs_of(None, (tensor,), {})},
        )  # fmt: skip
        return Event(machine.free_ns[stream])

    def wait_for(self, event: Event) -> None:
        """What comes next on the current stream waits for the event; the host does not."""
        self.machine.stream_waits(event)

    @contextlib.contextmanager
    def fused(self, name: str, ns: int) -> Iterator[None]:
        """What the block computes is one kernel of generated code."""
        machine = self.machine
        self._fused.append((name, ns))
        machine_now, did = machine.now_ns, len(machine.did)
        try:
            yield
        finally:
            self._fused.pop()
        # Its ops were no calls of the host's.
        machine.now_ns = machine_now
        del machine.did[did:]
        machine.advance(self.costs.python)
        start_ns = machine.now_ns
        machine.advance(machine.recorded(self.costs.dispatch), "dispatch")
        external = machine.new_op()
        machine.launch(name, ns, op=name, external=external, call="LaunchKernel")
        # Both begin and end at once: what encloses comes first.
        machine.host_event("cpu_op", "Torch-Compiled Region: 0/0", start_ns)
        machine.host_event("cpu_op", name, start_ns, **{"External id": external})

    def capture(self, function: Callable[[], Any]) -> Graph:
        """Run a function once and keep its kernels as a graph."""
        self._captured = []
        try:
            function()
            return Graph(self, tuple(self._captured))
        finally:
            self._captured = None

    def around_replays(self, *, after: Callable[[Graph], None]) -> Callable[[], None]:
        """Calls back after each replay until what it returns is called, as CUDA's graphs do."""
        self.after_replays.append(after)
        return lambda: self.after_replays.remove(after)

    def refuse_while_capturing(self) -> None:
        """Waits and events end a capture, as CUDA says it."""
        if self._captured is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """What the block does is done by another thread of the program, on another stream."""
        machine = self.machine
        now_ns, machine.beside = machine.now_ns, True
        try:
            with self.stream(self.vendor.collective_stream + 2, waits=False):
                yield
        finally:
            machine.now_ns, machine.beside = now_ns, False

    def retry_allocation(self, ns: int) -> None:
        """The allocator gives its blocks back and asks anew: it waits, frees, and allocates."""
        machine = self.machine
        self.driver_calls = DriverCalls(*(count + 1 for count in self.driver_calls))
        self.synchronise()
        for call in ("Free", "Malloc"):
            start_ns = machine.now_ns
            machine.advance(machine.recorded(ns // 2, call=True), "allocation")
            machine.call(self.vendor.call_named(call), start_ns, MAIN, None)

    def memory_stats(self) -> dict[str, int]:
        """Of the allocator, by PyTorch's names."""
        retries, allocations = self.driver_calls
        return {"num_alloc_retries": retries, "num_device_alloc": allocations}


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _operand(tensor: Any) -> Operand:
    return tuple(tensor.shape), tensor.element_size(), tuple(tensor.stride())


def _is_view(func: Any) -> bool:
    returns = getattr(func, "_schema", None) and func._schema.returns
    return bool(returns) and all(
        item.alias_info is not None and not item.alias_info.is_write for item in returns
    )
