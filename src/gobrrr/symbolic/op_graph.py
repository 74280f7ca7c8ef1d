"""The operators that a step would run on another device, found without computing anything.

Stand-ins (fake tensors) have shapes, strides and dtypes but no memory, so a network of any size is
captured on a laptop: forward, backward and optimizer run as Python and autograd would have them
run, and a dispatch mode writes the operators down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gobrrr.symbolic.capture_errors import user_errors
from gobrrr.symbolic.capture_setting import COMPILED_EAGERLY as COMPILED_EAGERLY
from gobrrr.symbolic.capture_setting import CaptureOptions as CaptureOptions
from gobrrr.symbolic.capture_setting import CaptureTarget as CaptureTarget
from gobrrr.symbolic.capture_setting import capturing
from gobrrr.symbolic.graph_recorder import GraphRecorder
from gobrrr.symbolic.graph_storages import TARGET
from gobrrr.symbolic.model_facts import GradientWatch, main_model
from gobrrr.symbolic.ranks.tensor_parallel import divided, not_divisible
from gobrrr.symbolic.stand_ins import Swap
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.graph import OpGraph, StorageLife, peak_of
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.workload import Workload, as_workload

Work = Workload | Callable[[], Any]


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
    options = options or CaptureOptions()
    swap = division = None
    try:
        with capturing(target, options, tell) as recorder:
            with user_errors("setting up the step", recorder.guessed.keys):
                work = make()
            with recorder.switch.off():
                if options.tensor_parallel > 1:
                    division = divided(recorder, work, options.tensor_parallel)
                swap = Swap(recorder.stand_ins, work)
            graph = _capture(work, swap, recorder, target, options)
            if division is None:
                return graph
            degree = options.tensor_parallel
            return replace(graph, divided=degree, undivided=division.undivided)
    except UserCodeError as error:
        if division is None:
            raise
        raise not_divisible(options.tensor_parallel, error, division) from error
    finally:
        if swap is not None:
            swap.restore()
        if division is not None:
            division.undo()


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
    given = work.model if isinstance(work, Workload) else None
    watch = gradient_watch(given, swap.modules, recorder) if options.model else None
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
    say_threads(recorder, running)
    if isinstance(work, Workload) and work.trains and options.inference_mode:
        recorder.guessed["in inference mode only the workload's forward pass is predicted: no "
                         "loss, no backward pass, no optimizer"] += 1  # fmt: skip
    # The results of the step are alive until here.
    found = graph_of(recorder, (*swap.modules, *recorder.modules), swap.optimizers, watch)
    del result
    return found


def gradient_watch(
    given: Any, modules: Sequence[Any], recorder: GraphRecorder
) -> GradientWatch | None:
    """What notes the facts of the model; ``given`` is it if it is a module (``main_model``)."""
    ranks = recorder.ranks
    if ranks is not None and ranks.wrapped.wrapping is not None:
        own = ranks.wrapped
        own.check()
        return GradientWatch(
            recorder, own.module, own.units, own.whole, own.stored, lambda: own.silent
        )
    model = main_model(given, modules)
    return None if model is None else GradientWatch(recorder, model)


def say_threads(recorder: GraphRecorder, running: int) -> None:
    """Say of the step's own threads what is assumed; ``running`` of them have outlived it."""
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


def graph_of(
    recorder: GraphRecorder,
    modules: Iterable[Any],
    optimizers: Iterable[Any],
    watch: GradientWatch | None,
) -> OpGraph:
    """The graph of what has been recorded; ``modules`` and ``optimizers`` own the parameters."""
    storages, ranks = recorder.storages, recorder.ranks
    facts = None if watch is None else watch.facts()
    with recorder.switch.off():
        each = {id(m): m for m in modules}.values()
        parameters = [p for m in each for p in m._parameters.values() if p is not None]
        for optimizer in optimizers:
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
        model=facts,
        wrapping=None if ranks is None else ranks.wrapped.wrapping,
    )
