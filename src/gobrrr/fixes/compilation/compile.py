"""``torch.compile`` and its modes: fewer dispatches, no Python between ops, fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import LOADING, Facts, OpFact
from gobrrr.diagnosis.fusion.groups import Group, find_groups, is_fusable
from gobrrr.fixes.attention.attention import find_attention, fused_seconds
from gobrrr.fixes.channels_last import slow_in_nchw_s
from gobrrr.fixes.compilation.compiled_calls import ALL_LEFT, CallCost, Left, call_cost
from gobrrr.fixes.compilation.compiled_part import compiled_part, in_recurrent_layer, pieces
from gobrrr.fixes.compilation.cuda_graph import launched_by_graphs
from gobrrr.fixes.compilation.generated_kernels import generated_kernels
from gobrrr.fixes.device_constants import constant, unmeasured
from gobrrr.fixes.edits import BeforeLoop
from gobrrr.fixes.fix import (
    CODE,
    FIRST_STEP,
    MEMORY,
    NUMERICS,
    RANDOMNESS,
    Considered,
    Effect,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.patterns.unneeded_work import unread_ops
from gobrrr.fixes.programs import as_program
from gobrrr.fixes.scripts import before_first_call, compile_in_place
from gobrrr.fixes.spread import COMPILERS
from gobrrr.observe.compiler_counters import graphs_compiled
from gobrrr.timeline.names import KERNELS_COUNTED
from gobrrr.timeline.quantities import si, time_text
from gobrrr.timeline.workload import Workload

# Share of what tuning may win: low, expected, high. Libraries that are near their best already are
# not beaten (layers of width 384 in training on a Zen 4 core became 0.0 to 0.2 slower).
_TUNED = (-0.5, 0.2, 1.0)
# Times the estimate of what compiled calls cost: low, expected, high saving.
_UNSURE = (1.6, 1.0, 0.6)
_FILLS = ("aten::masked_fill", "aten::masked_fill_", "aten::where")


@dataclass(frozen=True)
class Mode:
    """One way to call ``torch.compile``: its arguments, and how it differs from the default.

    ``left`` says what it leaves of the cost of calls. Its ``graphs`` are CUDA graphs; ``tuned`` is
    the share of what library kernels run below their roofs that tuning may win; ``recurrent``
    whether it compiles recurrent layers, ``frozen`` whether with the weights' values in the code.
    """

    name: str
    title: str
    arguments: Mapping[str, Any]
    code: str
    rule_out: Callable[[Facts], str | None] = lambda facts: None
    left: Left = ALL_LEFT
    graphs: bool = False
    tuned: float = 0.0
    recurrent: bool = False
    frozen: bool = False


def _without_graphs_on_gpu(facts: Facts) -> str | None:
    if not facts.on_gpu:
        return "this mode only adds CUDA graphs to the default mode"
    already = launched_by_graphs(facts)
    return None if already is None else already.reason


def _not_on_gpu(facts: Facts) -> str | None:
    return "it applies to the CPU backend only" if facts.on_gpu else None


def _inference_on_cpu(facts: Facts) -> str | None:
    return "trained weights cannot be frozen" if facts.trains else _not_on_gpu(facts)


MODES = (
    Mode("compile", "torch.compile", {}, "model = torch.compile(model)"),
    Mode(
        "compile_reduce_overhead", "torch.compile with CUDA graphs", {"mode": "reduce-overhead"},
        'model = torch.compile(model, mode="reduce-overhead")', _without_graphs_on_gpu,
        graphs=True,
    ),
    Mode(
        "compile_max_autotune", "torch.compile, every kernel tuned", {"mode": "max-autotune"},
        'model = torch.compile(model, mode="max-autotune")', tuned=0.25,
    ),
    Mode(
        "compile_cpp_wrapper", "torch.compile with a C++ wrapper",
        {"options": {"cpp_wrapper": True}},
        'model = torch.compile(model, options={"cpp_wrapper": True})', _not_on_gpu,
        left=Left(python=False),
    ),
    Mode(
        "compile_freezing", "torch.compile with frozen weights", {"options": {"freezing": True}},
        'model = torch.compile(model, options={"freezing": True})', _inference_on_cpu, tuned=0.1,
        frozen=True,
    ),
)  # fmt: skip


def cannot_compile(facts: Facts) -> RuledOut | None:
    """Why nothing can be compiled here; ``None`` if it can."""
    if not facts.has_compiler:
        what = "Triton" if facts.on_gpu else "C++ compiler (g++ or clang++)"
        return RuledOut(f"no {what} on this machine: torch.compile cannot build kernels")
    if facts.compiled:
        return RuledOut(_compiled_already(facts))
    return None


def _compiled_already(facts: Facts) -> str:
    """Why nothing more is compiled, with what its compiler met."""
    again, breaks = (int(facts.counters.get(n, 0.0)) for n in ("recompilations", "graph_breaks"))
    met = [
        text
        for number, text in (
            (again, f"compiled anew {again} times (see TORCH_LOGS=recompiles)"),
            (breaks, f"{breaks} graph breaks (see TORCH_LOGS=graph_breaks)"),
        )
        if number
    ]
    met_too = f"; what it leaves: {', '.join(met)}" if met else ""
    return f"the program uses torch.compile already{met_too}"


def compiled_overhead(
    facts: Facts, groups: Sequence[Group], broken: int, mode: Mode = MODES[0]
) -> tuple[float, CallCost, int]:
    """Overhead of the compiled part: (seconds now, cost of compiled calls, ops).

    Args:
        facts: of the compiled part alone.
        groups: what its ops are fused into.
        broken: graphs that recurrent layers leave of the forward pass.
        mode: how it is compiled.
    """
    part = [op for op in facts.ops if op.phase not in ("optimizer", LOADING)]
    libraries = [op for op in part if not is_fusable(op) and op.time_s > 0]
    now_s = facts.leaf_s("overhead.python", "overhead.dispatch", "overhead.launch",
                         "overhead.kernel_fixed_cost")  # fmt: skip
    kernels = facts.counters.get(KERNELS_COUNTED, 0.0)
    if kernels > 0:
        # Of the gaps between queued kernels those go whose kernels go.
        others = sum(op.count for op in facts.ops if op.phase == "optimizer" and op.time_s > 0)
        left = len(groups) + sum(op.count for op in libraries) + others
        now_s += max(1.0 - left / kernels, 0.0) * facts.leaf_s("overhead.kernel_gap")
    if facts.in_order:
        # The time before an op may be a wait for data, which is another leaf's.
        now_s = min(now_s, sum(op.host_s + op.fixed_s for op in part))
        if facts.trains and part:
            # ``zero_grad`` and the user's loop come before the first op: they stay.
            now_s = max(now_s - part[0].host_s, 0.0)
    generated = _generated_calls(facts, len(groups))
    cost = call_cost(facts, libraries, generated, len(groups), mode.left, broken)
    return now_s, cost, int(sum(op.count for op in part))


def _generated_calls(facts: Facts, groups: int) -> int:
    """Calls of generated functions per step, which do these groups of fused ops."""
    if facts.on_gpu or not facts.in_order:
        return groups
    # The C++ backend puts everything between two library calls into one function
    # (``CppScheduling.flush`` in torch/_inductor/codegen/cpp.py).
    calls, before = 0, ("", False)
    for op in facts.ops:
        generated = is_fusable(op)
        if op.phase in ("optimizer", LOADING) or not (generated or op.time_s > 0):
            continue
        calls += generated and before != (op.phase, True)
        before = (op.phase, generated)
    return min(calls, groups)


def consider_mode(mode: Mode, facts: Facts) -> Considered:
    """What this way to compile will save, or why it is not tried."""
    ruled_out = cannot_compile(facts)
    if ruled_out is not None:
        return ruled_out
    reason = mode.rule_out(facts)
    if reason is not None:
        return RuledOut(reason)
    part = compiled_part(facts, recurrent=mode.recurrent)
    left_out = len(part.ops) < len(facts.ops) and not any(op.time_s > 0 for op in part.ops)
    if left_out and any(in_recurrent_layer(facts, op) for op in facts.ops):
        return RuledOut("all of its work is in recurrent layers, which torch.compile leaves alone")
    groups = find_groups(part)
    broken = 1 if mode.recurrent else pieces(facts)
    now_s, cost, ops = compiled_overhead(part, groups, broken, mode)
    # A CUDA graph is replayed in one call.
    after_s = cost.total_s * (0.2 if mode.graphs else 1.0)
    overhead = [now_s - unsure * after_s for unsure in _UNSURE]
    kernels = generated_kernels(part, groups)
    library_s = sum(op.below_s or 0.0 for op in part.ops if not is_fusable(op))
    # The compiler knows attention written by hand, and lays images out channels-last: on a CPU
    # always (``decide_layout_opt`` in torch/_inductor/graph.py).
    known_s, unsure_s = _attention_s(facts)
    # Pools become loops like other ops: they are among the generated kernels.
    layout_s = slow_in_nchw_s(facts, pools=False)
    tuned_s = mode.tuned * max(library_s - layout_s, 0.0)
    # What nobody reads is dropped; of what can be fused that is a part of the kernels.
    unread_s = sum(op.kernel_s for op in unread_ops(facts) or () if not is_fusable(op))
    savings = [
        overhead[i] + kernels.now_s - kernels.after_s[i] + tuned_s * _TUNED[i]
        + known_s * (0.3, 0.9, 1.0)[i] + unsure_s * (0.0, 0.0, 1.0)[i]
        + layout_s * (0.5, 0.9, 1.0)[i]
        + unread_s * (0.8, 0.95, 1.0)[i]
        for i in range(3)
    ]  # fmt: skip
    because = (
        f"{ops} ops cost {time_text(now_s)} of Python and dispatch, compiled about "
        f"{time_text(after_s)} ({cost.sentence}); fusible ops move "
        f"{si(kernels.bytes_now, 'B')} in {time_text(kernels.now_s)}, fused "
        f"{si(kernels.bytes_after, 'B')} in about {time_text(kernels.after_s[1])}"
    )
    if known_s + layout_s > 0:
        because += f"; it also rewrites attention and layouts: {time_text(known_s + layout_s)}"
    if unread_s > 0:
        because += f"; it drops results that nothing reads: {time_text(unread_s)}"
    because += unmeasured(constant("generated.reached", facts))
    return prospect_or_not(facts, savings[0], savings[1], savings[2], because)


def _attention_s(facts: Facts) -> tuple[float, float]:
    """Seconds to save where the compiler knows attention by hand, and where it may.

    A mask that is added is in its patterns; one that is filled in, only in the form that some
    models have (torch/_inductor/fx_passes/fuse_attention.py).
    """
    runs = find_attention(facts)
    filled = [run for run in runs if any(op.name in _FILLS for op in run)]
    known = [run for run in runs if run not in filled]
    return _rewritten_s(facts, known), _rewritten_s(facts, filled)


def _rewritten_s(facts: Facts, runs: list[tuple[OpFact, ...]]) -> float:
    seconds = fused_seconds(facts, runs) if runs else None
    if seconds is None:
        return 0.0
    now_s, after_s = seconds
    # Its elementwise part is counted with what is fused.
    counted_s = sum(op.kernel_s for run in runs for op in run if is_fusable(op)) * 0.6
    if facts.trains:
        counted_s *= 2.0
    return max(now_s - after_s - counted_s, 0.0)


def _in_source(arguments: Mapping[str, Any], *, frozen: bool) -> BeforeLoop:
    """What ``compile_in_place`` does, as it is written into a script.

    Names of parameters, the model's class and its parts stay as they are for the rest of it, which
    they would not in ``model = torch.compile(model)``.
    """
    named = [f"{name}={value!r}" for name, value in arguments.items()]
    # Bound here: the name may stand for another model by the time that this one is called.
    run = "lambda *args, _call={model}._call_impl, **kwargs: _call(*args, **kwargs)"
    by_hand = f"{{model}}._compiled_call_impl = torch.compile({', '.join([run, *named])})"
    return BeforeLoop(
        (f"{{model}}.compile({', '.join(named)})",),
        (f"{by_hand}  # {{model}}.compile() passes torch.nn's own forward over",),
        frozen=frozen,
    )


def _fix(mode: Mode) -> Fix:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        import torch

        program = as_program(work)
        # The loss stays as it is, as in the snippet: as a graph of its own it would pay for a call
        # (15 % of a small encoder's training step, benchmarks/compile_by_fix).
        yield replace(program, model=torch.compile(program.model, **mode.arguments))

    @contextmanager
    def in_script() -> Iterator[None]:
        with before_first_call(partial(compile_in_place, **mode.arguments)):
            yield

    return Fix(
        name=mode.name,
        title=mode.title,
        leaves=("overhead.python", "overhead.dispatch", "overhead.launch",
                "overhead.kernel_fixed_cost", "overhead.kernel_gap", "memory.device.below",
                "memory.device.roof", "memory.page_faults", "compute.vector.below"),
        may_change=(NUMERICS, MEMORY, FIRST_STEP, RANDOMNESS),
        consider=lambda facts: consider_mode(mode, facts),
        snippet=mode.code,
        apply=apply,
        in_script=in_script,
        in_source=(_in_source(mode.arguments, frozen=mode.frozen),),
        changes_made=graphs_compiled,
        effect=Effect(fuses=True),
        claims=(CODE,),
        judged_with=COMPILERS,
        variant_of="" if mode.name == "compile" else "compile",
    )  # fmt: skip


COMPILE_FIXES: tuple[Fix, ...] = tuple(_fix(mode) for mode in MODES)
