"""Debugging modes that are on in every step: anomaly detection, a profiler, deterministic ops."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import lines_saying
from gobrrr.diagnosis.facts import LEAST_SAVING, Facts, OpFact, lines_of
from gobrrr.timeline.quantities import count, percent, time_text

# A mode that is on at fewer notes is meant for some steps: a schedule, a context manager.
_LEFT_ON = 0.9
_FEWEST_NOTES = 5
# Anomaly detection looks for NaN in each gradient with these, and keeps where each node was made:
# a traceback of Python's, formatted, takes about so long.
_CHECKS = frozenset(("aten::isnan", "aten::_is_any_true", "aten::any"))
_TRACEBACK_S = 30e-6
# An open profiler keeps two events of each op, with its inputs several times as much.
_EVENT_S, _EVENT_MOST_S = 1e-6, 10e-6
# Fresh memory, which deterministic mode fills.
_EMPTY = ("aten::empty", "aten::new_empty")
# Ops that have another kernel on a GPU in deterministic mode.
_ORDERED = frozenset(
    f"aten::{name}"
    for name in ("index_add_", "index_add", "_index_put_impl_", "index_put_", "index_put",
                 "scatter_add_", "scatter_add", "scatter_reduce", "scatter_reduce_", "scatter",
                 "scatter_", "gather_backward", "index_copy_", "cumsum", "put_", "bincount",
                 "embedding_dense_backward", "convolution_backward", "convolution",
                 "cudnn_convolution", "max_pool2d_with_indices_backward",
                 "upsample_bilinear2d_backward", "repeat_interleave")
)  # fmt: skip


def _on(facts: Facts, mode: str) -> str | None:
    """When a mode was on, in words; ``None``: it was not left on."""
    program = facts.program
    if program is None:
        return None
    if program.notes_taken < _FEWEST_NOTES:
        return "when the measured steps had ended" if program.flags.get(mode) else None
    share = program.modes.get(mode, 0.0)
    return f"at {percent(share)} of the moments that were looked at" if share >= _LEFT_ON else None


def _where(facts: Facts, words: tuple[str, ...], ops: list[OpFact]) -> tuple[str, ...]:
    """Where a mode is set, and the lines that it costs most at."""
    lines = (*lines_saying(facts, *words), *lines_of(ops))
    return tuple(dict.fromkeys(lines))[:3]


def _anomaly(facts: Facts) -> Found | None:
    on = _on(facts, "anomaly")
    if on is None:
        return None
    checks = [op for op in facts.ops if op.name in _CHECKS and op.phase == "backward"]
    checks_s = sum(op.time_s + op.host_s for op in checks)
    host_s = facts.leaf_s("overhead.python", "overhead.dispatch", "overhead.autograd")
    traced_s = min(_TRACEBACK_S * (facts.autograd_nodes or 0), host_s)
    return saves(
        f"anomaly detection is on {on}: it looks "
        f"for NaN in each gradient ({count(len(checks))} ops, {time_text(checks_s)} a step) and "
        f"keeps a traceback of each node ({count(facts.autograd_nodes)} of them, about "
        f"{time_text(traced_s)})",
        _where(
            facts,
            ("set_detect_anomaly(", "detect_anomaly(", "detect_anomaly="),
            [op for op in facts.ops if op.phase == "backward"],
        ),
        0.5 * checks_s, checks_s + traced_s, checks_s + max(traced_s, host_s),
    )  # fmt: skip


def _profiler(facts: Facts) -> Found | None:
    on = _on(facts, "autograd_profiler")
    if on is None:
        return None
    ops = sum(op.count for op in facts.ops)
    host_s = facts.leaf_s("overhead")
    return saves(
        f"a profiler of the program's own is open {on}: "
        f"it keeps events of each of {count(round(ops))} ops a step, "
        f"{time_text(ops * _EVENT_S)} or more, and all of them in memory",
        _where(facts, ("profile(", "emit_nvtx(", "emit_itt(", "profiler="), []),
        0.0, min(2 * ops * _EVENT_S, host_s), min(ops * _EVENT_MOST_S, host_s),
    )  # fmt: skip


def _fills_s(op: OpFact, bytes_per_s: float) -> float:
    """What filling fresh memory takes, within what the op takes where that is known."""
    written = sum(spec.unique_bytes or 0 for spec in op.call.outputs or ())
    taken_s = op.time_s + op.host_s
    return min(written / bytes_per_s, taken_s) if taken_s > 0 else written / bytes_per_s


def _deterministic(facts: Facts) -> Found | None:
    on, rate = _on(facts, "deterministic"), facts.dram_bytes_per_s
    if on is None or not rate:
        return None
    # On a CPU these take as long in either mode (torch 2.13: measured alike).
    ordered = [op for op in facts.ops if op.name in _ORDERED] if facts.on_gpu else []
    below_s = sum(op.below_s or 0.0 for op in ordered)
    fills = facts.program is None or facts.program.flags.get("fill_uninitialized_memory", True)
    filled = [op for op in facts.ops if op.name.startswith(_EMPTY)] if fills else []
    fill_s = sum(_fills_s(op, rate) for op in filled)
    if below_s + fill_s < LEAST_SAVING * facts.step_s:
        return None
    told = []
    if filled:
        told.append(f"{count(len(filled))} tensors are filled with NaN before they are written, "
                    f"{time_text(fill_s)} a step")  # fmt: skip
    if ordered:
        names = ", ".join(dict.fromkeys(op.name.removeprefix("aten::") for op in ordered))
        told.append(f"{count(len(ordered))} ops have another kernel ({names}), {time_text(below_s)}"
                    " above what their bytes and FLOPs take")  # fmt: skip
    most = sorted((*filled, *ordered), key=lambda op: -op.time_s)
    return saves(
        f"deterministic algorithms are on {on}: "
        f"{'; '.join(told)}",
        _where(facts, ("use_deterministic_algorithms(", "deterministic="), most),
        0.5 * fill_s, fill_s + 0.3 * below_s, fill_s + below_s,
    )  # fmt: skip


DETECT_ANOMALY = Cause(
    name="detect_anomaly",
    title="anomaly detection is left on (torch.autograd.set_detect_anomaly)",
    words=("set_detect_anomaly", "detect_anomaly", "anomaly mode slow"),
    find=_anomaly,
    remedy="torch.autograd.set_detect_anomaly(False); turn it on for the steps that are debugged",
    warns=True,
)
PROFILER_LEFT_ON = Cause(
    name="profiler_left_on",
    title="a profiler is left on around all steps (torch.autograd.profiler)",
    words=("torch.autograd.profiler.profile", "torch.profiler schedule", "emit_nvtx",
           "profiler overhead"),
    find=_profiler,
    remedy="profile a few steps: torch.profiler.schedule(wait, warmup, active, repeat=1), or "
    "enabled=False",
    warns=True,
)  # fmt: skip
DETERMINISTIC_MODE = Cause(
    name="deterministic_mode",
    title="deterministic algorithms are left on (torch.use_deterministic_algorithms)",
    words=("use_deterministic_algorithms", "cudnn.deterministic", "deterministic slow",
           "fill_uninitialized_memory"),
    find=_deterministic,
    remedy="torch.use_deterministic_algorithms(False); or, if order matters and fresh memory does "
    "not, torch.utils.deterministic.fill_uninitialized_memory = False",
)  # fmt: skip
