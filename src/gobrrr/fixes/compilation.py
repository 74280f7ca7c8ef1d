"""``torch.compile`` and its modes: fewer dispatches, no Python between ops, fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.attention import find_attention, fused_seconds
from gobrrr.fixes.channels_last import slow_in_nchw_s
from gobrrr.fixes.compiled_calls import ALL_LEFT, CallCost, Left, call_cost
from gobrrr.fixes.edits import BeforeLoop
from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.fixes.fix import (
    CODE,
    FIRST_STEP,
    MEMORY,
    NUMERICS,
    Considered,
    Effect,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.fusion import PRODUCTS_AS_LOOPS, find_groups, is_fusable, seconds_to_move
from gobrrr.fixes.programs import as_program
from gobrrr.fixes.scripts import before_first_call, compile_in_place, graphs_compiled
from gobrrr.timeline.quantities import si, time_text

# Share of what tuning may win: low, expected, high. Libraries that are near their best already are
# not beaten (layers of width 384 in training on a Zen 4 core became 0.0 to 0.2 slower).
_TUNED = (-0.5, 0.2, 1.0)
# Times the estimate of what compiled calls cost: low, expected, high saving.
_UNSURE = (1.6, 1.0, 0.6)
# Products that become generated loops take about what the library takes: low, expected, high.
_AS_LOOPS = (2.0, 1.2, 0.8)
_FILLS = ("aten::masked_fill", "aten::masked_fill_", "aten::where")
# Share of its roof that a generated kernel reaches: low, expected, high. Measured on the same
# machine over copy, cos, relu, gelu and 4M-element chains of 1 to 16 operations.
REACHED = (0.35, 0.6, 0.9)


@dataclass(frozen=True)
class Mode:
    """One way to call ``torch.compile``: its arguments, and how it differs from the default.

    ``left`` says what it leaves of the cost of calls. Its ``graphs`` are CUDA graphs; ``tuned`` is
    the share of what library kernels run below their roofs that tuning may win.
    """

    name: str
    title: str
    arguments: Mapping[str, Any]
    code: str
    rule_out: Callable[[Facts], str | None] = lambda facts: None
    left: Left = ALL_LEFT
    graphs: bool = False
    tuned: float = 0.0


def _not_on_cpu(facts: Facts) -> str | None:
    return None if facts.on_gpu else "on a CPU this mode is the default mode: it adds CUDA graphs"


def _not_on_gpu(facts: Facts) -> str | None:
    return "a setting of the CPU backend" if facts.on_gpu else None


def _inference_on_cpu(facts: Facts) -> str | None:
    return "weights that train cannot be frozen" if facts.trains else _not_on_gpu(facts)


MODES = (
    Mode("compile", "torch.compile", {}, "model = torch.compile(model)"),
    Mode(
        "compile_reduce_overhead", "torch.compile with CUDA graphs", {"mode": "reduce-overhead"},
        'model = torch.compile(model, mode="reduce-overhead")', _not_on_cpu, graphs=True,
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
    ),
)  # fmt: skip


def cannot_compile(facts: Facts) -> RuledOut | None:
    """Why nothing can be compiled here; ``None`` if it can."""
    if not facts.has_compiler:
        what = "Triton" if facts.on_gpu else "C++ compiler (g++ or clang++)"
        return RuledOut(f"no {what} on this machine: torch.compile has nothing to build with")
    if facts.compiled:
        return RuledOut("the program compiles already")
    return None


def compiled_overhead(facts: Facts, mode: Mode = MODES[0]) -> tuple[float, CallCost, int]:
    """Overhead of the step's compiled part: (seconds now, cost of compiled calls, ops)."""
    facts = _compiled_part(facts)
    part = [op for op in facts.ops if op.phase != "optimizer"]
    now_s = facts.leaf_s("overhead.python", "overhead.dispatch", "overhead.launch",
                         "overhead.kernel_fixed_cost")  # fmt: skip
    if facts.in_order:
        # The time before an op may be a wait for data, which is another leaf's.
        now_s = min(now_s, sum(op.host_s + op.fixed_s for op in part))
        if facts.trains and part:
            # ``zero_grad`` and the user's loop come before the first op: they stay.
            now_s = max(now_s - part[0].host_s, 0.0)
    libraries = [op for op in part if not is_fusable(op) and op.time_s > 0]
    groups = len(find_groups(facts))
    cost = call_cost(facts, libraries, _generated_calls(facts, groups), groups, mode.left)
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
        if op.phase == "optimizer" or not (generated or op.time_s > 0):
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
    now_s, cost, ops = compiled_overhead(facts, mode)
    # A CUDA graph is replayed in one call.
    after_s = cost.total_s * (0.2 if mode.graphs else 1.0)
    overhead = [now_s - unsure * after_s for unsure in _UNSURE]
    before_s, kernels, moved = _fused_kernels(facts)
    library_s = sum(op.below_s or 0.0 for op in facts.ops if not is_fusable(op))
    # The compiler knows attention written by hand, and lays images out channels-last: on a CPU
    # always (``decide_layout_opt`` in torch/_inductor/graph.py).
    known_s, unsure_s = _attention_s(facts)
    layout_s = slow_in_nchw_s(facts)
    tuned_s = mode.tuned * max(library_s - layout_s, 0.0)
    savings = [
        overhead[i] + before_s - kernels[i] + tuned_s * _TUNED[i]
        + known_s * (0.3, 0.9, 1.0)[i] + unsure_s * (0.0, 0.0, 1.0)[i]
        + layout_s * (0.5, 0.9, 1.0)[i]
        for i in range(3)
    ]  # fmt: skip
    because = (
        f"{ops} ops cost {time_text(now_s)} of Python and dispatch, compiled about "
        f"{time_text(after_s)} ({cost.sentence}); what can be fused moves {si(moved[0], 'B')} in "
        f"{time_text(before_s)}, fused {si(moved[1], 'B')} in about {time_text(kernels[1])}"
    )
    if known_s + layout_s > 0:
        because += (
            f"; attention and layouts that the compiler rewrites: {time_text(known_s + layout_s)}"
        )
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
    # Its elementwise part is counted with what is fused, and so is its backward pass.
    counted_s = sum(op.kernel_s for run in runs for op in run if is_fusable(op)) * 0.6
    saved_s = seconds[0] / 3.0 - seconds[1] / 3.5 if facts.trains else seconds[0] - seconds[1]
    return max(saved_s - counted_s, 0.0)


def _compiled_part(facts: Facts) -> Facts:
    """The facts as the compiler sees them: without what stays outside its graph."""
    ops = []
    written: set[int] = set()
    for op in facts.ops:
        stores = {storage for storage, _ in op.writes}
        # A gradient kept from an earlier step is added to outside the graph.
        kept = op.phase == "backward" and op.name == "aten::add_" and not stores & written
        written |= stores
        if kept and stores:
            continue
        ops.append(op)
    return replace(facts, ops=tuple(ops))


def _fused_kernels(facts: Facts) -> tuple[float, tuple[float, float, float], tuple[float, float]]:
    """Kernel seconds of fusable ops now; compiled (slow, expected, fast); bytes before, after."""
    before_s = 0.0
    after = [0.0, 0.0, 0.0]
    moved = [0.0, 0.0]
    for group in find_groups(_compiled_part(facts)):
        now_s = sum(op.kernel_s for op in group.ops)
        before_s += now_s
        moved[0] += group.bytes_before
        moved[1] += group.bytes_after
        memory_s = seconds_to_move(facts, group.bytes_after)
        if memory_s is None:
            after = [total + now_s for total in after]
            continue
        # An op bound by arithmetic takes its roof, fused or not.
        arithmetic_s = sum(_arithmetic_s(facts, op) for op in group.ops)
        faults_s = sum(op.page_faults_s for op in group.ops)
        if group.fresh_before:
            faults_s *= group.fresh_after / group.fresh_before
        roof_s = max(memory_s, arithmetic_s)
        loops_s = sum(op.kernel_s for op in group.ops if op.name in PRODUCTS_AS_LOOPS)
        for i, reached in enumerate(REACHED):
            after[i] += roof_s / reached + faults_s + _AS_LOOPS[i] * loops_s
    return before_s, (after[0], after[1], after[2]), (moved[0], moved[1])


def _arithmetic_s(facts: Facts, op: OpFact) -> float:
    rate = facts.rate("vector.float32")
    exponentials = facts.rate("vector.float32.exp")
    seconds = (op.vector_flops or 0.0) / rate if rate else 0.0
    if exponentials:
        seconds = max(seconds, op.special / exponentials)
    return seconds


def _as_written(arguments: Mapping[str, Any]) -> str:
    more = "".join(f", {name}={value!r}" for name, value in arguments.items())
    return f"{{model}} = torch.compile({{model}}{more})"


def _fix(mode: Mode) -> Fix:
    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        import torch

        program = as_program(work)
        changed = replace(program, model=torch.compile(program.model, **mode.arguments))
        if program.trains and program.loss is not None:
            changed = replace(changed, loss=torch.compile(program.loss, **mode.arguments))
        yield changed

    @contextmanager
    def in_script() -> Iterator[None]:
        with before_first_call(partial(compile_in_place, **mode.arguments)):
            yield

    return Fix(
        name=mode.name,
        title=mode.title,
        leaves=("overhead.python", "overhead.dispatch", "overhead.launch",
                "overhead.kernel_fixed_cost", "memory.device.below", "memory.device.roof",
                "memory.page_faults", "compute.vector.below"),
        may_change=(NUMERICS, MEMORY, FIRST_STEP),
        consider=lambda facts: consider_mode(mode, facts),
        snippet=mode.code,
        apply=apply,
        in_script=in_script,
        in_source=(BeforeLoop((_as_written(mode.arguments),)),),
        changes_made=graphs_compiled,
        effect=Effect(fuses=True),
        claims=(CODE,),
        variant_of="" if mode.name == "compile" else "compile",
    )  # fmt: skip


COMPILE_FIXES: tuple[Fix, ...] = tuple(_fix(mode) for mode in MODES)
