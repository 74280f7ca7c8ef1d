"""The operators that a step would run on another device, found without computing anything.

Stand-ins (fake tensors) have shapes, strides and dtypes but no memory, so a network of any size is
captured on a laptop: forward, backward and optimizer run as Python and autograd would have them
run, and a dispatch mode writes the operators down.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.capture.capture_errors import capture_failure, quietly, user_errors
from gobrrr.capture.compiled_regions import enters_flex_attention
from gobrrr.capture.exported_programs import exports_followed
from gobrrr.capture.graph_recorder import GraphRecorder
from gobrrr.capture.graph_storages import TARGET, Storages
from gobrrr.capture.hidden_stand_ins import hidden
from gobrrr.capture.higher_order import run_plainly
from gobrrr.capture.known_values import known_values_read
from gobrrr.capture.model_facts import GradientWatch, main_model
from gobrrr.capture.nested import map_tensors
from gobrrr.capture.no_ranks import without_ranks
from gobrrr.capture.padded_sequences import sequences_padded
from gobrrr.capture.process_groups import Ranks, as_first_rank
from gobrrr.capture.stand_ins import StandIns, Swap
from gobrrr.capture.step_threads import StepThreads, fake_mode_of
from gobrrr.capture.target_answers import (
    DeviceAnswers,
    Switch,
    answering,
    make_mode,
)
from gobrrr.capture.target_kernels import WHOLE, Abilities, composites_of, kernels_of
from gobrrr.capture.target_modules import modules_applied_plainly
from gobrrr.capture.target_programs import target_programs
from gobrrr.capture.tensor_parallel import divided, not_divisible
from gobrrr.capture.tensor_subclasses import subclasses_kept
from gobrrr.capture.workload import Workload, as_workload
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.graph import OpGraph, StorageLife, peak_of

Work = Workload | Callable[[], Any]

COMPILED_EAGERLY = (
    "what the program compiles with torch.compile is predicted as eager code; --compile predicts "
    "the compiled kernels"
)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How the step is to run.

    Attributes:
        autocast: ``"float16"`` or ``"bfloat16"``: the step under autocast; ``None``: as it is.
        inference_mode: under ``torch.inference_mode()``; of a training workload, its forward pass.
        channels_last: model and 4-d inputs in that memory format.
        size_hint: the size of results that depends on data; ``None``: such a result is an error.
        model: whether the graph is to hold what parallelism depends on (``OpGraph.model``).
        compiled: whether its ops are to be compiled: then it is not said that the program's own
            ``torch.compile`` has no effect.
        tensor_parallel: over how many devices each layer is divided.
        ranks: of the job whose first rank the program is to believe to be; 1: of none.
        ranks_per_host: of them on one host.
    """

    autocast: str | None = None
    inference_mode: bool = False
    channels_last: bool = False
    size_hint: int | None = None
    model: bool = False
    compiled: bool = False
    tensor_parallel: int = 1
    ranks: int = 1
    ranks_per_host: int = 1


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """The device that the step is to believe in; ``answers`` is ``None`` for a CPU."""

    answers: DeviceAnswers | None
    abilities: Abilities


def capture_op_graph(
    make: Callable[[], Any],
    target: CaptureTarget,
    options: CaptureOptions | None = None,
    tell: Callable[[int], None] | None = None,
) -> OpGraph:
    """The graph of one step in its steady state, optimizer state in place.

    ``make`` returns what ``gobrrr.diagnose`` takes; it runs inside the capture, so that what it
    builds takes no memory. Tensors made before (on the CPU or the meta device) are replaced by
    stand-ins while the capture runs, and put back. ``tell`` is called now and then with the number
    of operators so far.

    Raises:
        InputError: an operator cannot be captured, or a shape depends on data.
        UserCodeError: the program raised.
    """
    import torch

    options = options or CaptureOptions()
    storages, switch = Storages(), Switch(threading.RLock())
    threads = StepThreads(capture_failure)
    fake_mode = fake_mode_of(threads)
    stand_ins = StandIns(fake_mode, storages)
    device = "cpu" if target.answers is None else f"{target.answers.type}:0"
    function_mode = None
    if target.answers is not None:
        function_mode = functools.partial(make_mode, target.answers, stand_ins, switch)
    on_host = target.answers is None
    recorder = GraphRecorder(
        stand_ins,
        storages,
        switch,
        threads,
        device=device,
        size_hint=options.size_hint,
        function_mode=function_mode,
        capability=None if target.answers is None else target.answers.capability,
        composites={} if on_host else composites_of(target.abilities),
        whole=frozenset() if on_host else WHOLE,
        tell=tell,
    )
    state = torch.get_rng_state()
    swap = division = None
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(quietly())
            stack.enter_context(_eagerly(None if options.compiled else recorder.assume))
            stack.enter_context(hidden())
            stack.enter_context(modules_applied_plainly())
            stack.enter_context(known_values_read(stand_ins))
            stack.enter_context(run_plainly(recorder.assume, compiled=options.compiled))
            stack.enter_context(sequences_padded(recorder.assume))
            stack.enter_context(exports_followed(recorder.assume_for_good))
            if target.answers is not None:
                stack.enter_context(kernels_of(target.abilities))
                stack.enter_context(answering(target.answers, storages, switch))
                stack.enter_context(target_programs(recorder, target.answers.type))
            stack.enter_context(subclasses_kept(lambda: switch.on))
            stack.enter_context(fake_mode)
            if function_mode is not None:
                stack.enter_context(function_mode())
            stack.enter_context(recorder)
            stack.enter_context(threads.followed())
            if options.ranks > 1:
                recorder.ranks = Ranks(options.ranks, options.ranks_per_host)
                stack.enter_context(as_first_rank(recorder, recorder.ranks))
            else:
                stack.enter_context(without_ranks())
            switch.of_step = True
            stack.callback(setattr, switch, "of_step", False)
            with user_errors("setting up the step", recorder.guessed.keys):
                work = make()
            with switch.off():
                if options.tensor_parallel > 1:
                    division = divided(recorder, work, options.tensor_parallel)
                swap = Swap(stand_ins, work)
            graph = _capture(work, swap, recorder, target, options)
            if division is None:
                return graph
            degree = options.tensor_parallel
            return replace(graph, divided=degree, undivided=division.undivided)
    except UserCodeError as error:
        if division is None:
            raise
        raise not_divisible(options.tensor_parallel, error, division) from error
    except KeyboardInterrupt:
        # The step was woken while it waited for a thread that could not be captured.
        recorder.threads.check()
        raise
    finally:
        with switch.lock:
            storages.open = False
        if swap is not None:
            swap.restore()
        if division is not None:
            division.undo()
        torch.set_rng_state(state)


def _by_operators() -> bool:
    """Whether it is PyTorch that compiles: the body of a ``while_loop`` in an eager program."""
    frame: Any = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("torch._dynamo"):
        frame = frame.f_back
    return frame is not None and "_higher_order_ops" in str(frame.f_globals.get("__name__"))


@contextlib.contextmanager
def _eagerly(assume: Callable[[str], None] | None) -> Iterator[None]:
    """Functions under ``torch.compile`` run as they were written; ``assume`` is told of it."""
    import torch

    with torch.compiler.set_stance("force_eager"):
        from torch._dynamo import eval_frame, trace_rules

        # Dynamo's table of torch's functions is made when it is first asked, and kept: it is not
        # to hold what stands in their place during the capture.
        make_table = getattr(trace_rules, "get_torch_obj_rule_map", None)
        if make_table is not None:
            make_table()
        original = getattr(eval_frame, "_callback_from_stance", None)
        if original is None or assume is None:
            # In a version of PyTorch that goes another way it is not said.
            yield
            return

        def callback(given: Any) -> Any:
            # None and False: what stands outside compiled functions.
            if given not in (None, False) and not _by_operators() and not enters_flex_attention():
                assume(COMPILED_EAGERLY)
            return original(given)

        eval_frame._callback_from_stance = callback
        try:
            yield
        finally:
            eval_frame._callback_from_stance = original


def _capture(
    made: Any,
    swap: Swap,
    recorder: GraphRecorder,
    target: CaptureTarget,
    options: CaptureOptions,
) -> OpGraph:
    work = as_workload(made)
    stand_ins, storages = recorder.stand_ins, recorder.storages
    if isinstance(work, Workload):
        place = None if storages.names_target else TARGET
        with recorder.switch.off():
            work = replace(
                work,
                inputs=stand_ins.everywhere(work.inputs, place),
                targets=stand_ins.everywhere(work.targets, place),
            )
    if options.channels_last:
        work = _channels_last(work)
    step = _step(work, target, options)
    watch = _watch(work, swap, recorder) if options.model else None
    with user_errors("the step", recorder.guessed.keys):
        # Only a backward pass tells which gradients are sparse: such a step runs twice, as below.
        sparse = any(getattr(module, "sparse", False) is True for module in swap.modules)
        trains = isinstance(work, Workload) and work.trains and not options.inference_mode
        if isinstance(work, Workload) and trains and not sparse:
            _prime(work.optimizer)
            recorder.begin()
            result = step()
        else:
            recorder.begin()
            result = step()
            if recorder.optimizer_stepped:
                # The first step makes the optimizer's state; the second is like all that follow.
                del result
                recorder.begin()
                result = step()
        running = recorder.threads.running()
        recorder.threads.check()
    recorder.end()
    _say_threads(recorder, running)
    if isinstance(work, Workload) and work.trains and options.inference_mode:
        recorder.guessed["in inference mode only the workload's forward pass is predicted: no "
                         "loss, no backward pass, no optimizer"] += 1  # fmt: skip
    facts = None if watch is None else watch.facts()
    wrapping = None if recorder.ranks is None else recorder.ranks.wrapped.wrapping
    return replace(_graph(recorder, swap, work, result), model=facts, wrapping=wrapping)


def _watch(work: Work, swap: Swap, recorder: GraphRecorder) -> GradientWatch | None:
    given = work.model if isinstance(work, Workload) else None
    ranks = recorder.ranks
    if ranks is not None and ranks.wrapped.wrapping is not None:
        own = ranks.wrapped
        own.check()
        return GradientWatch(
            recorder, own.module, own.units, own.whole, own.stored, lambda: own.silent
        )
    model = main_model(given, swap.modules)
    return None if model is None else GradientWatch(recorder, model)


def _say_threads(recorder: GraphRecorder, running: int) -> None:
    started = recorder.threads.count
    if started:
        threads = "a thread" if started == 1 else f"{started} threads"
        recorder.guessed[f"the step starts {threads} of its own: their operators are predicted as "
                         "one queue, in the order of their capture"] += 1  # fmt: skip
    if running:
        late = "one of them was" if running == 1 else f"{running} of them were"
        sentence = (
            f"the step does not wait for all of its threads: {late} still running when it ended; "
            "what they did later is not in the prediction"
        )
        recorder.guessed[sentence] += 1


def _step(work: Work, target: CaptureTarget, options: CaptureOptions) -> Callable[[], Any]:
    import torch

    run: Callable[[], Any] = work if not isinstance(work, Workload) else work.step
    if options.inference_mode and isinstance(work, Workload):
        run = work.forward
    kind = "cpu" if target.answers is None else target.answers.type

    def step() -> Any:
        with contextlib.ExitStack() as stack:
            if options.inference_mode:
                stack.enter_context(torch.inference_mode())
            if options.autocast is not None:
                dtype = getattr(torch, options.autocast)
                stack.enter_context(torch.autocast(kind, dtype=dtype))
            return run()

    return step


def _channels_last(work: Work) -> Work:
    import torch

    if not isinstance(work, Workload):
        raise InputError(
            "--channels-last needs the model: return (module, inputs) or a gobrrr.Workload "
            "instead of a callable"
        )
    layout = torch.channels_last
    if isinstance(work.model, torch.nn.Module):
        work.model.to(memory_format=layout)

    def convert(tensor: Any) -> Any:
        return tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor

    return replace(work, inputs=map_tensors(work.inputs, convert))


def _prime(optimizer: Any) -> None:
    """Give an optimizer the state that it has after its first step."""
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.grad for p in parameters]
    with torch.no_grad():
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        for parameter, grad in zip(parameters, before):
            parameter.grad = grad


def _graph(recorder: GraphRecorder, swap: Swap, work: Work, result: Any) -> OpGraph:
    storages = recorder.storages
    with recorder.switch.off():
        modules = {id(m): m for m in (*swap.modules, *recorder.modules)}.values()
        parameters = [p for m in modules for p in m._parameters.values() if p is not None]
        for optimizer in swap.optimizers:
            parameters += [p for group in optimizer.param_groups for p in group["params"]]
        numbers = {storages.number(p) for p in parameters}
    used = {
        spec.storage
        for op in recorder.graph
        for spec in (*op.call.tensors, *(op.call.outputs or ()))
        if spec.storage is not None
    }
    owned = frozenset(n for n in numbers if n is not None)
    before = {
        i for i, r in enumerate(storages.records) if r.born < 0 and (r.died is None or r.died >= 0)
    }
    kept = frozenset(storages.alive())
    lives = {
        i: StorageLife(r.bytes, r.born, r.died)
        for i, r in enumerate(storages.records)
        if (r.died is None or r.died >= 0) and not storages.on_host(i)
    }
    del result, work
    notices = tuple(
        f"{sentence[0].upper()}{sentence[1:]}." for sentence in sorted(recorder.guessed)
    )
    return OpGraph(
        ops=tuple(recorder.graph),
        kept=kept & used,
        parameters=owned & used,
        inputs=frozenset(before & used) - owned,
        sizes_bytes={i: storages.records[i].bytes for i in sorted(used)},
        peak_memory_bytes=peak_of(lives.values(), len(recorder.graph)),
        notices=notices,
        lives=lives,
    )
