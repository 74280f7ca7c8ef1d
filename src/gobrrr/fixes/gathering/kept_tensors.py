"""What becomes of a step's tensors: which of them outlive it, and which the host reads."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE
from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.gathering.seen_modules import modules_of_step, storages_of, tensors_of
from gobrrr.fixes.patterns.dataflow import changes_argument, moves_to_memory
from gobrrr.observe.op_arguments import describe_tensor
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.observe.replacement import put_in_place
from gobrrr.timeline.ops import OpCall, TensorSpec

# Methods of a tensor that give all of it to the host: as Python numbers, as an array, as bytes, as
# text. (``.item()`` is an op.)
_READS = frozenset(
    ("tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage",
     "__repr__", "__format__")
)  # fmt: skip
# Buffers beyond this (caches of keys and values) are not taken for fixed: room for a second copy of
# them may not be there.
_MOST_COPIED_BYTES = 256 << 20
# Containers in containers that a step's result is looked through.
_DEEPEST = 4
# How many ops had run before, and the tensor that the host read, or (false) that a backward pass
# begins at: of its graph every op is needed, even where no op reads its result.
_Read = tuple[int, TensorSpec, bool]


@dataclass
class _Reads:
    """What was read, in order; ``known``: and nothing that could not be followed."""

    known: bool = True
    found: deque[_Read] = field(default_factory=deque)


def with_kept_tensors(facts: Facts, step: Callable[[], Any]) -> Facts:
    """Facts with what outlives a step, what the host reads, and which buffers do change.

    The step runs once more, under a recorder. The first two stay unknown if it runs other ops than
    before. Raises what the step raises.
    """
    modules = modules_of_step(facts, facts.workload) if facts.workload is not None else []
    buffers = _copies(modules)
    with OpRecorder() as recorder, _watching_reads(recorder) as seen:
        result = step()
    # What changes memory outside of torch (an array on it, a library) is seen by its effect alone.
    fixed = facts.fixed_storages - storages_of(_changed(buffers))
    if modules:
        # A tensor in the place of another is another one in the next step too.
        fixed &= storages_of(tensor for module in modules for tensor in tensors_of(module))
    facts = replace(facts, fixed_storages=fixed)
    calls = [op.call for op in recorder.ops]
    if [call.name for call in calls] != [op.name for op in facts.ops] or not seen.known:
        return facts
    reads = seen.found
    owner: dict[int | None, int] = {}
    kept: list[tuple[int, TensorSpec]] = []
    read: list[tuple[int, int | None]] = []
    for place, call in enumerate((*calls, None)):
        while reads and reads[0][0] == place:
            _, spec, by_host = reads.popleft()
            maker = owner.get(spec.storage)
            if by_host:
                read.append((place, maker))
            if maker is not None:
                kept.append((maker, spec))
        if call is not None:
            owner.update(dict.fromkeys(_written(call), place))
    # Memory of what lives is no other's: who made it last, made what is in it.
    kept += [(owner[spec.storage], spec) for spec in _alive(owner)]
    kept += _read_for(result, recorder)
    del result
    return replace(facts, returned=tuple(kept), host_reads=tuple(read))


def _read_for(result: Any, recorder: OpRecorder) -> list[tuple[int, TensorSpec]]:
    """The reads of single values that the step's result is made of, with what each read.

    All of them where it holds what none of them gave (a number, a text, an object): it may have
    been made of them.
    """
    values = list(_values_in(result, 0))
    reads = [
        (place, op.call.tensors[0], op.read)
        for place, op in enumerate(recorder.ops)
        if op.call.name == READ_OF_ONE_VALUE and op.call.tensors
    ]
    given = {value for *_, value in reads}
    every = any(not isinstance(value, Real) or value not in given for value in values)
    return [(place, spec) for place, spec, value in reads if every or value in values]


def _values_in(value: Any, depth: int) -> Iterator[Any]:
    """What nested containers hold beside tensors, truths and nothing."""
    import torch

    if value is None or isinstance(value, (bool, torch.Tensor)):
        return
    if isinstance(value, (Mapping, list, tuple)) and depth < _DEEPEST:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _values_in(item, depth + 1)
    elif is_dataclass(value) and depth < _DEEPEST:
        yield from _values_in([getattr(value, each.name, None) for each in fields(value)], depth)
    else:
        yield value


def _copies(modules: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Buffers, each with a copy; ``None`` of those that are too large for one."""
    import torch

    found = []
    left = _MOST_COPIED_BYTES
    for module in modules:
        for buffer in module.buffers():
            if buffer.layout == torch.strided and buffer.device.type != "meta":
                left -= buffer.numel() * buffer.itemsize
                found.append((buffer, buffer.clone() if left >= 0 else None))
    return found


def _changed(tensors: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Those that have changed, or may have."""
    import torch

    return [now for now, before in tensors if before is None or not torch.equal(now, before)]


def _written(call: OpCall) -> list[int]:
    """The storages that an op fills or changes; a view does neither."""
    if moves_to_memory(call):
        return []
    given = {spec.storage for spec in call.tensors}
    changing = changes_argument(call)
    return [
        spec.storage
        for spec in call.outputs or (call.tensors[:1] if changing else ())
        if spec.storage is not None and (changing or spec.storage not in given)
    ]


@contextmanager
def _watching_reads(recorder: OpRecorder) -> Iterator[_Reads]:
    import torch
    from torch.overrides import TorchFunctionMode

    reads = _Reads()

    def add(tensor: Any, *, by_host: bool) -> None:
        spec = describe_tensor(tensor)
        if spec is not None:
            reads.found.append((len(recorder.ops), spec, by_host))
        elif not by_host:
            reads.known = False

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__name__", "") in _READS:
                for one in args[:1]:
                    if isinstance(one, torch.Tensor):
                        add(one, by_host=True)
            return func(*args, **(kwargs or {}))

    home, name = torch.autograd, "_engine_run_backward"
    original = getattr(home, name, None)
    # Without it, where backward passes begin is unknown: so is it then whether there was one.
    reads.known = original is not None

    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        for root in roots:
            if isinstance(root, torch.Tensor):
                add(root, by_host=False)
            else:
                # An edge of the graph: whose result it belongs to is unknown.
                reads.known = False
        assert original is not None
        return original(roots, *args, **kwargs)

    undo = None if original is None else put_in_place(home, name, run_backward)
    try:
        # The backward pass of a GPU would run in a thread that no mode watches.
        with torch.autograd.set_multithreading_enabled(False), Watch():
            yield reads
    finally:
        if undo is not None:
            undo()


def _alive(storages: Collection[int | None]) -> list[TensorSpec]:
    """The living tensors that lie in one of these storages."""
    import torch

    gc.collect()
    # Of each object only the type is read: a proxy's ``__class__`` may warn or raise.
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    # A view keeps what it is a view of alive, for autograd: that nobody else may hold.
    viewed = {id(t._base): t for t in tensors if t._base is not None}
    bases = [t for t in tensors if id(t) in viewed]
    del viewed
    held: set[int] = set()
    wanted = set(map(id, bases))
    ours = {id(tensors), id(bases)}
    for holder in gc.get_referrers(*bases) if bases else ():
        if id(holder) not in ours:
            held |= wanted & set(map(id, gc.get_referents(holder)))
    kept = [t for t in tensors if id(t) not in wanted or id(t) in held]
    described = map(describe_tensor, kept)
    return [spec for spec in described if spec is not None and spec.storage in storages]
