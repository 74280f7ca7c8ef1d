"""Within it a program meets stand-ins on a device that is not here, and its operators arrive."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gobrrr.symbolic.capture_errors import capture_failure, quietly
from gobrrr.symbolic.compiled_regions import enters_flex_attention
from gobrrr.symbolic.exported_programs import exports_followed
from gobrrr.symbolic.graph_recorder import GraphRecorder
from gobrrr.symbolic.graph_storages import Storages
from gobrrr.symbolic.hidden_stand_ins import hidden
from gobrrr.symbolic.higher_order import run_plainly
from gobrrr.symbolic.ranks.process_groups import Ranks, as_first_rank
from gobrrr.symbolic.stand_ins import StandIns
from gobrrr.symbolic.step_threads import StepThreads, fake_mode_of
from gobrrr.symbolic.target.answers import (
    DeviceAnswers,
    Switch,
    answering,
    make_mode,
)
from gobrrr.symbolic.target.kernels import WHOLE, Abilities, composites_of, kernels_of
from gobrrr.symbolic.target.modules import modules_applied_plainly
from gobrrr.symbolic.target.programs import target_programs
from gobrrr.symbolic.tensor_subclasses import subclasses_kept
from gobrrr.symbolic.values.known_values import known_values_read
from gobrrr.symbolic.values.padded_sequences import sequences_padded

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


@contextlib.contextmanager
def capturing(
    target: CaptureTarget, options: CaptureOptions, tell: Callable[[int], None] | None = None
) -> Iterator[GraphRecorder]:
    """Until the block ends, what it runs is captured: see ``capture_op_graph``.

    The recorder keeps operators between its ``begin`` and ``end``.
    """
    import torch

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
            switch.of_step = True
            stack.callback(setattr, switch, "of_step", False)
            yield recorder
    except KeyboardInterrupt:
        # The step was woken while it waited for a thread that could not be captured.
        recorder.threads.check()
        raise
    finally:
        with switch.lock:
            storages.open = False
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
