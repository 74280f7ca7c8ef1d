"""The dispatch mode that writes a captured step down as a graph of operators."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gobrrr.observe.leaf_ops import composite_key, only_calls_others, views_tracked
from gobrrr.observe.op_arguments import any_packed, describe_value, short_name, signature_of
from gobrrr.observe.op_recorder import OpRecorder, grad_enabled
from gobrrr.observe.sparse_gradients import (
    coalesced,
    makes_sparse,
    parts_of,
    products_in_order,
    sparse_result,
)
from gobrrr.symbolic.capture_budget import CaptureBudget
from gobrrr.symbolic.capture_errors import note_operator
from gobrrr.symbolic.graph_storages import HOST, TARGET, Storages
from gobrrr.symbolic.ranks.process_groups import NAMESPACES, Ranks
from gobrrr.symbolic.result_cache import ResultCache
from gobrrr.symbolic.stand_ins import StandIns, forget, value_of
from gobrrr.symbolic.step_threads import StepThreads
from gobrrr.symbolic.target.answers import Switch
from gobrrr.symbolic.tensor_subclasses import is_wrapper_class
from gobrrr.symbolic.values.assumed_values import in_words
from gobrrr.symbolic.values.conditions import Conditions
from gobrrr.symbolic.values.data_questions import OFFSETS, offsets_asked, result_asked, value_asked
from gobrrr.symbolic.values.followed_values import (
    assume_choice,
    collect,
    follow_condition,
    follow_small,
    follow_uniform,
    takes_blank,
)
from gobrrr.symbolic.values.grouped_products import has_grouped_kernel, multiply_group_by_group
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import CaptureError
from gobrrr.timeline.graph import CollectiveCall, StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.timeline.streams import StreamOrder

# Marks of the profiler and questions of torch's own C++ code, not operators of the program.
_QUERIES = frozenset({"profiler", "prims_profiler", "prim"})
OPS_BETWEEN_TELLING = 500


class GraphRecorder(OpRecorder):
    """Records operators of stand-ins; ``recording`` says whether they are kept."""

    def __init__(
        self,
        stand_ins: StandIns,
        storages: Storages,
        switch: Switch,
        threads: StepThreads,
        *,
        device: str,
        size_hint: int | None,
        capability: tuple[int, int] | None = None,
        function_mode: Callable[[], Any] | None = None,
        composites: Mapping[str, Any] | None = None,
        whole: frozenset[str] = frozenset(),
        tell: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(on_devices=False)
        self.stand_ins = stand_ins
        stand_ins.decided_by = self.decided_by
        self.storages = storages
        self.switch = switch
        self.device = device
        self.size_hint = size_hint
        self.capability = capability
        self.function_mode = function_mode
        # Inference mode passes the dispatcher's entries of autograd by: what composites that choose
        # their kernel by device do on the target, and operators that have a kernel there.
        self.composites = {f"aten::{name}": kernel for name, kernel in (composites or {}).items()}
        self.whole = whole
        self.tell = tell
        self.graph: list[StepOp] = []
        self._sizes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.recording = False
        self.optimizer_stepped = False
        self.guessed: Counter[str] = Counter()
        self._guessed_for_good: set[str] = set()
        self.conditions = Conditions(size_hint)
        self.results = ResultCache(stand_ins.fake_mode)
        self.budget = CaptureBudget()
        self.threads = threads
        self.ranks: Ranks | None = None
        threads.modes = self._modes_of_thread

    def begin(self) -> None:
        """Keep what comes from here on; what exists now existed before the step."""
        self.graph.clear()
        self.guessed.clear()
        self.guessed.update(self._guessed_for_good)
        self.storages.start_over()
        if self.ranks is not None:
            self.ranks.order = StreamOrder(self.graph)
        self.optimizer_stepped, self.updates = False, 0
        self.recording = True

    def end(self) -> None:
        """Keep nothing more."""
        self.recording = False

    @property
    def modules(self) -> list[Any]:
        """All modules seen."""
        return list(self._named)

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's own code is running."""
        return self._here.optimizers > 0

    def _make_mode(self) -> Any:
        return _make_graph_mode(self)

    @contextlib.contextmanager
    def _modes_of_thread(self) -> Iterator[None]:
        """What a thread of the step enters, so that its operators are kept too."""
        with contextlib.ExitStack() as stack:
            if self.function_mode is not None:
                stack.enter_context(self.function_mode())
            stack.enter_context(_make_graph_mode(self, self.stand_ins.fake_mode))
            self.switch.of_step = True
            stack.callback(setattr, self.switch, "of_step", False)
            yield

    def keep(
        self, name: str, overload: str, args: tuple[Arg, ...], outputs: Any, place: Any
    ) -> None:
        """Write one operator down, unless nothing is being recorded."""
        if not self.recording:
            return
        module, source, phase = place
        updates = phase is Phase.OPTIMIZER
        self.optimizer_stepped |= updates
        call, update = OpCall(name, args, outputs, overload), self.updates if updates else 0
        records = phase is Phase.BACKWARD and grad_enabled()
        self._put(StepOp(call, module, source, phase, update=update, records=records))
        if self.tell is not None and not len(self.graph) % OPS_BETWEEN_TELLING:
            self.tell(len(self.graph))

    def keep_collective(
        self, call: CollectiveCall, tensor: Any, place: Any, stream: int = 0
    ) -> None:
        """Write down what is asked of other ranks, with the tensor that it is about."""
        if self.recording:
            module, source, phase = place
            spec = self.spec(tensor)
            op = OpCall(f"c10d::{call.kind}", (spec,), None if spec is None else (spec,))
            self._put(StepOp(op, module, source, phase, stream=stream, collective=call))

    def _put(self, op: StepOp) -> None:
        (self.graph.append if self.ranks is None else self.ranks.order.put)(op)

    def describe(self, value: Any) -> Arg:
        """As ``describe_value``, with the numbers of storages and the devices of the target.

        A sparse tensor is a tuple of its layout and the dense ones that it holds, its values last.
        """
        import torch

        if isinstance(value, torch.Tensor):
            parts = () if value.layout is torch.strided else parts_of(value)
            return (short_name(value.layout), *map(self.spec, parts)) if parts else self.spec(value)
        if isinstance(value, (list, tuple)):
            return tuple([self.describe(item) for item in value])
        return describe_value(value)

    def spec(self, tensor: Any) -> TensorSpec | None:
        """A stand-in as plain data; ``None`` for layouts without strides."""
        import torch

        number = self.storages.number(tensor)
        if number is None or tensor.layout is not torch.strided:
            return None
        # A step has few shapes and strides: one object for all that are equal.
        shape, strides = tuple(tensor.shape), tensor.stride()
        return TensorSpec(
            self._sizes.setdefault(shape, shape),
            short_name(tensor.dtype),
            self._sizes.setdefault(strides, strides),
            number,
            "cpu" if self.storages.on_host(number) else self.device,
            tensor.storage_offset(),
        )

    def has_grouped_kernel(self, tensor: Any) -> bool:
        """Whether the target multiplies groups of such tensors in one kernel (a CPU does)."""
        return self.capability is None or has_grouped_kernel(
            self.capability, short_name(tensor.dtype)
        )

    def assume(self, sentence: str) -> None:
        """Say with the result what was not known."""
        self.guessed[sentence] += 1

    def assume_for_good(self, sentence: str) -> None:
        """As ``assume``, of what was done while the program was set up too."""
        self._guessed_for_good.add(sentence)
        self.assume(sentence)

    def decided_by(self, assumption: str | None, *, rows: bool = False) -> None:
        """It is said what the program goes on by; ``rows``: that tells which rows go where."""
        if assumption is not None:
            self.assume(in_words(assumption, self.guessed, rows=rows))

    def place_outputs(self, found: list[Any], inputs: list[Any], made: bool) -> None:
        """Results lie where the arguments do; what an optimizer makes as a counter, on the host.

        ``made``: the operator makes a tensor from plain values.
        """
        if self.in_optimizer and made and all(t.numel() == 1 for t in found):
            for tensor in found:
                self.storages.put(tensor, HOST)
            return
        self.storages.place_results(found, inputs)


def _make_graph_mode(recorder: GraphRecorder, fake_mode: Any = None) -> Any:
    """The mode; in a thread other than the capture's it enters ``fake_mode`` for each operator."""
    import torch
    from torch._ops import OpOverload
    from torch._subclasses import fake_tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    asks_value = aten._local_scalar_dense.default
    unscale = aten._amp_foreach_non_finite_check_and_unscale_.default
    sparse_products = products_in_order()
    grouped = {getattr(getattr(aten, "_grouped_mm", None), "default", None)}
    asks_device, meta = torch.ops.prim.device.default, torch.device("meta")
    storages, switch = recorder.storages, recorder.switch
    run = recorder.results.run

    class GraphMode(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True
        active = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not self.active or not storages.open:
                return func(*args, **kwargs)
            if any(map(is_wrapper_class, types)):
                # Its class says what is done to the tensors that it holds: these come next.
                return NotImplemented
            with switch.lock, fake_mode or contextlib.nullcontext():
                recorder.threads.check()
                return self._dispatch(func, args, kwargs, sys._getframe(1))

        def _dispatch(self, func: Any, args: Any, kwargs: Any, frame: Any) -> Any:
            recorder.budget.spend(lambda: recorder.place(frame)[1])
            is_operator = isinstance(func, OpOverload)
            if is_operator and func.namespace in _QUERIES:
                if func is asks_device and type(args[0]) is fake_tensor.FakeTensor:
                    # Autograd asks it of each gradient; the mode would answer the same.
                    busy = args[0].fake_mode.in_kernel_invocation
                    return meta if busy else args[0].fake_device
                return func(*args, **kwargs)
            own = recorder.composites.get(func.name()) if is_operator else None
            if own is not None or (
                is_operator and func.name() not in recorder.whole and only_calls_others(func)
            ):
                # Without autograd (inference mode) composites arrive whole.
                with self, views_tracked(func):
                    if own is not None:
                        return own(*args, **kwargs)
                    return func._op_dk(composite_key(), *args, **kwargs)
            if func in grouped and not recorder.has_grouped_kernel(args[0]):
                with self:
                    return multiply_group_by_group(storages, *args, **kwargs)
            if func in sparse_products and recorder.device != "cpu":
                with self:
                    args = coalesced(args)
            with switch.off():
                if not is_operator:
                    return self._higher_order(func, args, kwargs, frame)
                return self._operator(func, args, kwargs, frame)

        def _operator(self, func: Any, args: Any, kwargs: Any, frame: Any) -> Any:
            inputs: list[Any] = []
            args = recorder.stand_ins.within(args, inputs)
            if recorder.ranks is not None and func.namespace in NAMESPACES:
                return recorder.ranks.called(recorder, func, args, kwargs, inputs)
            if recorder.device != "cpu" and any_packed(args):
                raise CaptureError(
                    f"{func.name()} takes weights that were packed for a CPU library, for which "
                    "other devices have no kernels: predict the model before it was quantised, or "
                    "for --device cpu"
                )
            device = kwargs.get("device")
            named = isinstance(device, torch.device) and device.type not in ("cpu", "meta")
            if named:
                # Made inside a function of torch's own, where the function mode does not see it.
                kwargs = {**kwargs, "device": torch.device("cpu")}
            if kwargs:
                kwargs = {
                    key: recorder.stand_ins.within(value, inputs) for key, value in kwargs.items()
                }
            signature = signature_of(func)
            place = recorder.place(frame)
            described: tuple[Arg, ...] = ()
            if recorder.recording:
                given = [recorder.describe(value) for value in args]
                for name, default in signature.arguments[len(args) :]:
                    given.append(recorder.describe(kwargs[name]) if name in kwargs else default)
                if signature.name in OFFSETS:
                    offsets_at = OFFSETS[signature.name]
                    offsets = args[offsets_at] if offsets_at < len(args) else kwargs.get("offs")
                    given[offsets_at] = offsets_asked(recorder, offsets, place[1])
                described = tuple(given)
                # An implicit copy that autograd makes under dispatch modes alone.
                if func is aten.detach.default and place[2] is Phase.FORWARD:
                    return _run(func, args, kwargs, inputs, frame, place[1])
                storages.now = len(recorder.graph)
            if func is asks_value:
                recorder.keep(signature.name, signature.overload, described, (), place)
                return value_asked(recorder, args[0], place[1], frame)
            result = _run(func, args, kwargs, inputs, frame, place[1])
            assume_choice(recorder.size_hint, func, args, kwargs, result, place[1])
            found: list[Any] = []
            collect(result, found)
            recorder.place_outputs(found, inputs, not inputs or func is aten.lift_fresh.default)
            for tensor in found if named else ():
                storages.put(tensor, TARGET)
            if recorder.recording:
                dense = (part for tensor in found for part in parts_of(tensor) or (tensor,))
                outputs = [recorder.spec(tensor) for tensor in dense]
                whole = None if None in outputs else tuple(outputs)
                recorder.keep(signature.name, signature.overload, described, whole, place)
            return result

        def _higher_order(self, func: Any, args: Any, kwargs: Any, frame: Any) -> Any:
            inputs: list[Any] = []
            args = recorder.stand_ins.within(args, inputs)
            place = recorder.place(frame)
            described = tuple(recorder.describe(value) for value in (*args, *kwargs.values()))
            storages.now = len(recorder.graph) if recorder.recording else storages.now
            result = func(*args, **kwargs)
            found: list[Any] = []
            collect(result, found)
            recorder.place_outputs(found, inputs, False)
            outputs = tuple(recorder.spec(tensor) for tensor in found)
            recorder.keep(f"higher_order::{func.name()}", "", described, outputs, place)
            return result

    def _run(func: Any, args: Any, kwargs: Any, inputs: list[Any], frame: Any, source: str) -> Any:
        blank = takes_blank(func)
        values = [value_of(tensor, blank=blank) for tensor in inputs]
        known = all(value is not None for value in values)
        try:
            result = None
            if makes_sparse(func) or any(t.layout is torch.sparse_coo for t in inputs):
                told = recorder.assume_for_good
                result = sparse_result(func, args, kwargs, recorder.size_hint, told)
            if result is None:
                result = run(func, args, kwargs, inputs)
        except (
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.DataDependentOutputException,
        ) as error:
            return result_asked(recorder, func, args, kwargs, known, error, frame, source)
        except fake_tensor.UnsupportedOperatorException as error:
            raise CaptureError(
                f"{func} cannot be captured without running it: it has no fake implementation "
                "(torch.library.register_fake gives it one)"
            ) from error
        except Exception as error:
            note_operator(error, func)
            raise
        followed = (
            (known and follow_small(func, args, kwargs, result, recorder.size_hint, source))
            or follow_uniform(func, args, kwargs, result)
            or follow_condition(func, args, kwargs, result)
        )
        if not followed and func._schema.is_mutable and func is not unscale:
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    written: list[Any] = []
                    value = args[index] if index < len(args) else kwargs.get(argument.name)
                    collect(value, written)
                    for tensor in written:
                        forget(tensor)
        return result

    return GraphMode()
