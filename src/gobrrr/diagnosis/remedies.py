"""What helps a step, in words: by the leaves that hold its time, and by what else is known of it.

One clause for each leaf; what it names is what this program can still do: not what it does already,
what its device has not, or what was tried here without a gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gobrrr.attribution.leaves import LEAVES
from gobrrr.devices.backend import ALLOCATOR_RETRIES
from gobrrr.diagnosis.advice import FUSION
from gobrrr.diagnosis.fix_schema import FAILED, SAME, SLOWER
from gobrrr.diagnosis.pipelines import shorter_waits
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.roofline.operator_limits import LIMITS
from gobrrr.timeline.names import (
    COMPILED_REGION,
    COMPILED_REGIONS,
    MOSTLY_GRAPHS,
    NO_LINES,
    share_of_graphs,
    short_source,
)
from gobrrr.timeline.quantities import count, multiple, percent

# A part with less than this share of its level gets no advice of its own; at most so many do.
LEAST_SIDE, MOST_PARTS = 0.2, 2
# A line that holds less than this share of its cause is not where to look.
LEAST_OF_CAUSE = 0.05
# Another dtype's products are worth naming from this ratio of rates.
_FASTER_DTYPE = 1.2
# Clocks above those of a data sheet exceed its rates by no more.
_CLOCKS = 1.25
# An optimizer with this share of all ops is where ops are saved first.
_MANY_OPS = 0.2
_GPUS = ("cuda", "hip")
_WORKERS, _NO_WORKERS = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
# The cause by which workers are of no use (``gobrrr.causes.loading.workers_in_memory``).
_IN_MEMORY = "workers_for_memory"


@dataclass(frozen=True, slots=True)
class _Option:
    """Something to do; ``fixes`` are the names under which it may have been tried or ruled out."""

    words: str
    fixes: tuple[str, ...] = ()


def remedy_of(diagnosis: Diagnosis, level: str) -> str:
    """One sentence on what helps a level, by the parts that most of it is; empty if it is nothing.

    Args:
        diagnosis: with its findings, as far as there are any.
        level: ``compute``, ``memory``, ``overhead`` or ``unmodelled``.
    """
    parts = parts_of(diagnosis, level)
    whole = sum(parts.values())
    largest = sorted((name for name in parts if parts[name] > 0), key=lambda name: -parts[name])
    chosen = [
        name
        for name in largest[:MOST_PARTS]
        if parts[name] >= LEAST_SIDE * whole or name == largest[0]
    ]
    clauses = dict(_CLAUSES)
    if "overhead.dispatch" in chosen:
        # What needs fewer ops is said there.
        clauses["overhead.python"] = _less_python
    return _sentence(clauses[name](diagnosis) for name in chosen)


def remedy_of_part(diagnosis: Diagnosis, leaf: str) -> str:
    """One sentence on what helps a single leaf, such as ``overhead.data_loading``."""
    return _sentence([_CLAUSES[_TOGETHER.get(leaf, leaf)](diagnosis)])


def _sentence(clauses: Iterable[str]) -> str:
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def parts_of(diagnosis: Diagnosis, level: str) -> Mapping[str, float]:
    """Seconds of a level by what helps: a leaf, or leaves that the same helps."""
    found: dict[str, float] = {}
    for leaf in LEAVES:
        if leaf.partition(".")[0] == level:
            part = _TOGETHER.get(leaf, leaf)
            found[part] = found.get(part, 0.0) + diagnosis.leaves.get(leaf, 0.0)
    return found


def line_of(diagnosis: Diagnosis, cause: str, time_s: float) -> tuple[str, float] | None:
    """The user's line that most of a cause's ``time_s`` seconds are at, and its share of them."""
    rows = [
        row
        for row in diagnosis.idle
        if row.cause == cause and row.source and row.source not in NO_LINES
    ]
    if not rows or time_s <= 0:
        return None
    largest = max(rows, key=lambda row: row.time_s)
    share = largest.time_s / time_s
    return (largest.source or "", share) if share >= LEAST_OF_CAUSE else None


def is_compiled(diagnosis: Diagnosis) -> bool:
    """Whether the program compiles: all of the diagnosed step, a part of it, or what it gave up."""
    if diagnosis.counters.get(COMPILED_REGIONS) or diagnosis.counters.get("compiled_graphs"):
        return True
    timeline = diagnosis.timeline
    if timeline is None:
        return False
    return any(COMPILED_REGION in name for name in timeline.names)


def without_gain(diagnosis: Diagnosis) -> frozenset[str]:
    """Names of fixes that were ruled out, or tried and did not make the step faster."""
    lost = {
        finding.fix
        for finding in diagnosis.findings
        if finding.verification is not None
        and finding.verification.verdict in (SAME, SLOWER, FAILED)
    }
    return frozenset(lost | set(diagnosis.fixes.ruled_out if diagnosis.fixes is not None else ()))


def _open(diagnosis: Diagnosis, *options: _Option | None) -> list[str]:
    """Those of the options that are still open."""
    lost = without_gain(diagnosis)
    return [
        option.words
        for option in options
        if option is not None and not (option.fixes and lost.issuperset(option.fixes))
    ]


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _at(diagnosis: Diagnosis, cause: str) -> str:
    """Where a cause is, if one line stands out; else nothing."""
    found = line_of(diagnosis, cause, diagnosis.leaves.get(f"overhead.{cause}", 0.0))
    return f" at {short_source(found[0])}" if found is not None else ""


# Compute


def _less_arithmetic(diagnosis: Diagnosis) -> str:
    options = _open(
        diagnosis,
        _Option(_fewer_of(diagnosis)),
        _faster_dtype(diagnosis),
        _Option("a faster device"),
    )
    return f"at the ceiling, less or cheaper work helps ({', '.join(options)})"


def _fewer_of(diagnosis: Diagnosis) -> str:
    """FLOPs, unless something else decides for most of what is at the ceiling."""
    spent: dict[str, float] = {}
    for row in diagnosis.ops:
        if row.regime == "compute" and row.unit is not None:
            what = row.unit if row.unit in LIMITS else "FLOPs"
            spent[what] = spent.get(what, 0.0) + (row.roof_s or 0.0)
    return f"fewer {max(spent, key=lambda what: spent[what]) if spent else 'FLOPs'}"


def _faster_dtype(diagnosis: Diagnosis) -> _Option | None:
    """The dtype whose products are fastest here, where products are what takes the time."""
    leaves, now = diagnosis.leaves, diagnosis.mfu_dtype
    if now is None or leaves["compute.matrix.roof"] < leaves["compute.vector.roof"]:
        return None
    rates = {
        row.name.removeprefix("matrix."): row.value
        for row in diagnosis.device.ceilings
        if row.name in (f"matrix.{now}", "matrix.bfloat16", "matrix.float16", "matrix.tf32")
    }
    if _in_tf32(diagnosis):
        rates.pop("tf32", None)
    if wider := _wider_dtype(diagnosis):
        return _Option(wider)
    if now not in rates:
        return _Option("a dtype that is faster here", _LOWER)
    best = max(rates, key=lambda name: rates[name])
    if rates[best] < _FASTER_DTYPE * rates[now]:
        return None
    # A recording does not say what was allowed, and not all kernels have it in their names.
    maybe = " if it is not on" if best == "tf32" and diagnosis.source.get("kind") == "trace" else ""
    words = f"{best}{maybe}, at {multiple(rates[best] / rates[now])} the peak rate"
    return _Option(words, _LOWER)


def _in_tf32(diagnosis: Diagnosis) -> bool:
    """Whether float32 products run in TF32: some say so, or are faster than float32 can be."""
    rates = {row.name: row.value for row in diagnosis.device.ceilings}
    most = max(rates.get("matrix.float32", 0.0), rates.get("vector.float32", 0.0))
    return any(
        row.dtype == "tf32"
        or (
            row.dtype == "float32"
            and row.unit == "matrix"
            and most > 0
            and (row.flops_per_s or 0.0) > _CLOCKS * most
        )
        for row in diagnosis.ops
    )


_LOWER = ("bf16_autocast", "fp16_autocast", "bf16_storage", "bf16_matmul", "tf32")


_LARGER = (
    "its kernels are too small to come near a ceiling (latency): fewer and larger ones help, by a "
    "larger batch or by fusing"
)
# A kernel of a GPU that takes less, at less of its roof, waits for latencies.
_SHORT_S, _FAR_BELOW = 50e-6, 0.05


def _too_small(diagnosis: Diagnosis, level: str) -> bool:
    """Whether most of a level's time on a GPU is in kernels that no other kernel would speed up."""
    if diagnosis.device.kind == "cpu":
        return False
    spent = {False: 0.0, True: 0.0}
    for row in diagnosis.ops:
        if row.regime == level and row.count and row.roof_fraction is not None:
            small = row.kernel_s < _SHORT_S * row.count and row.roof_fraction < _FAR_BELOW
            spent[small] += row.kernel_s
    return spent[True] > spent[False]


def _other_kernels(diagnosis: Diagnosis) -> str:
    if _too_small(diagnosis, "compute"):
        return _LARGER
    words = "below the ceiling, another kernel, layout, library or shape helps"
    wider = _wider_dtype(diagnosis)
    return f"{words}, and so does {wider}" if wider else words


def _wider_dtype(diagnosis: Diagnosis) -> str:
    """float32, where a processor without instructions for the products' 16-bit dtype has it faster.

    Empty elsewhere.
    """
    leaves, now = diagnosis.leaves, diagnosis.mfu_dtype
    of_products = leaves["compute.matrix.roof"] + leaves["compute.matrix.below"]
    of_others = leaves["compute.vector.roof"] + leaves["compute.vector.below"]
    if now not in ("bfloat16", "float16") or of_products < of_others:
        return ""
    rates = {row.name: row.value for row in diagnosis.device.ceilings}
    narrow, wide = rates.get(f"matrix.{now}"), rates.get("matrix.float32")
    if not narrow or not wide or wide < _FASTER_DTYPE * narrow:
        return ""
    return f"float32, whose products run at {multiple(wide / narrow)} the rate of {now} here"


# Memory


def _fewer_bytes(diagnosis: Diagnosis) -> str:
    options = _open(
        diagnosis,
        _fusing(diagnosis),
        _Option("smaller dtypes", _LOWER),
        _Option("reusing buffers", ("in_place",)),
    )
    how = f" ({', '.join(options)})" if options else ""
    return f"at the ceiling, moving fewer bytes helps{how}"


def _fusing(diagnosis: Diagnosis) -> _Option | None:
    """Fusion, with what the findings say that it saves; nothing to fuse, nothing said."""
    saved_s = sum(
        finding.prediction.high_s
        for finding in diagnosis.findings
        if finding.fix == FUSION and finding.prediction is not None
    )
    if saved_s <= 0 or not diagnosis.accounted_s:
        return None
    most = percent(min(saved_s / diagnosis.accounted_s, 1.0))
    return _Option(
        f"fusing ops that pass data on through memory, up to {most} of the step", ("compile",)
    )


def _other_passes(diagnosis: Diagnosis) -> str:
    if _too_small(diagnosis, "memory"):
        return _LARGER
    fused = ", or fusing ops," if _open(diagnosis, _fusing(diagnosis)) else ""
    return f"below the ceiling, another kernel or layout{fused} helps"


def _used_again(diagnosis: Diagnosis) -> str:
    options = _open(
        diagnosis,
        _Option("updates in place, out=", ("in_place",)),
        _Option("an allocator that keeps its pages", ("glibc_tunables", "jemalloc", "tcmalloc")),
    )
    how = f" ({_listed(options)})" if options else ""
    return f"reusing memory{how} avoids page faults at every step"


def _hidden_communication(diagnosis: Diagnosis) -> str:
    return shorter_waits(diagnosis) or (
        "overlapping or reducing communication helps: overlap with compute, other bucket sizes, "
        "smaller gradients or activations, a faster link"
    )


def _hidden_copies(diagnosis: Diagnosis) -> str:
    options = _open(
        diagnosis,
        _Option("data that stay on the device"),
        _Option("pinned memory with non_blocking=True", ("pinned_memory",)),
        _Option("a prefetched batch"),
    )
    return f"fewer or overlapped copies help: {_listed(options)}"


# Overhead


def _fewer_ops(diagnosis: Diagnosis, *, launched: bool = True) -> list[str]:
    """``launched``: what launches the same kernels for less helps too."""
    graph = diagnosis.device.kind in _GPUS and launched
    # A step that is one already has nothing to win by another.
    graph = graph and share_of_graphs(diagnosis.counters) < MOSTLY_GRAPHS
    compiled = is_compiled(diagnosis)
    return _open(
        diagnosis,
        None if compiled else _Option("torch.compile", ("compile",)),
        _fused_optimizer(diagnosis),
        _Option("a CUDA graph", ("cuda_graph", "compile_reduce_overhead")) if graph else None,
        _Option("a larger batch", ("larger_batch",)),
    )


def _fused_optimizer(diagnosis: Diagnosis) -> _Option | None:
    """A fused optimizer, where there is one and much of what is dispatched is the optimizer's."""
    ops = [row for row in diagnosis.ops if row.phase == "optimizer"]
    every, its = sum(row.count for row in diagnosis.ops), sum(row.count for row in ops)
    if diagnosis.step.fused_optimizer is False or any("_fused_" in row.name for row in ops):
        return None
    if its < max(_MANY_OPS * every, 2.0):
        return None
    words = f"a fused optimizer (it has {count(its)} of the {count(every)} ops)"
    return _Option(words, ("fused_optimizer",))


def _dispatch(diagnosis: Diagnosis) -> str:
    options = _fewer_ops(diagnosis)
    how = f": {_listed(options)}" if options else ""
    return f"fewer ops, or more work for each, help{how}"


def _fewer_kernels(diagnosis: Diagnosis) -> str:
    options = _fewer_ops(diagnosis, launched=False)
    how = f" ({_listed(options)})" if options else ""
    return f"fewer kernels help{how}, while a faster host does not: these were queued long before"


def _less_python(diagnosis: Diagnosis) -> str:
    return f"less Python{_at(diagnosis, 'python')} helps"


def _python(diagnosis: Diagnosis) -> str:
    options = _fewer_ops(diagnosis)
    also = f", and so does what needs fewer ops: {_listed(options)}" if options else ""
    return _less_python(diagnosis) + also


def _asleep(diagnosis: Diagnosis) -> str:
    return (
        f"what the thread waits for{_at(diagnosis, 'asleep')} has to be ready sooner, or be "
        "requested ahead of time by another thread"
    )


def _synchronisation(diagnosis: Diagnosis) -> str:
    return (
        "fewer synchronisations help (.item(), print, copies to the host)"
        f"{_at(diagnosis, 'synchronisation')}"
    )


def _data_loading(diagnosis: Diagnosis) -> str:
    where = _at(diagnosis, "data_loading")
    loaders = {row.detail or "" for row in diagnosis.idle if row.cause == "data_loading"}
    if any(_WORKERS in name for name in loaders):
        # The line is the one that waits for them.
        if any(finding.fix == _IN_MEMORY for finding in diagnosis.findings):
            return "no workers (num_workers=0) help, or one index for a whole batch"
        return (
            "the loader's workers do not keep up: less work for each batch helps (a cheaper "
            "__getitem__, data kept ready in memory), or more workers where processors are free"
        )
    cheaper = f"a cheaper __getitem__{where}, data kept ready in memory"
    beside = "DataLoader(num_workers=...) to prepare batches beside the step"
    if not any(_NO_WORKERS in name for name in loaders):
        beside = "preparing batches beside the step, in workers or ahead of it"
    options = _open(diagnosis, _Option(beside, ("loader_workers",)), _Option(cheaper))
    return f"producing batches faster helps: {', '.join(options)}"


def _allocation(diagnosis: Diagnosis) -> str:
    if diagnosis.device.kind in _GPUS:
        # PyTorch's allocator keeps what it frees there: it asks the driver where no block fits.
        segments = "expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF"
        if diagnosis.counters.get(ALLOCATOR_RETRIES):
            return f"memory is nearly full: {segments} helps against fragments, or less memory"
        return (
            f"keeping memory from step to step saves calls of the driver: {segments}, sizes that "
            "stay the same, no empty_cache() in the loop"
        )
    return (
        "keeping memory from step to step saves calls into the allocator: buffers passed as out=, "
        "updates in place, an allocator that keeps freed memory"
    )


def _compilation(diagnosis: Diagnosis) -> str:
    return (
        "avoiding recompilation helps: what changes from step to step (shapes, Python numbers) "
        "causes it, unless marked dynamic or padded to a few sizes"
    )


def _garbage(diagnosis: Diagnosis) -> str:
    return (
        "collecting less often helps: gc.freeze() after the set-up, gc.disable() in the loop and "
        "gc.collect() between epochs"
    )


def _unexplained(diagnosis: Diagnosis) -> str:
    return "nothing that was recorded explains that time, so no remedy can be derived from it"


def _unmodelled(diagnosis: Diagnosis) -> str:
    return "no remedy can be derived for kernels without a work formula or a ceiling"


# Leaves that the same helps.
_TOGETHER = {
    "compute.matrix.roof": "compute.roof", "compute.vector.roof": "compute.roof",
    "compute.matrix.below": "compute.below", "compute.vector.below": "compute.below",
    "memory.network_wait": "memory.network",
    "overhead.launch": "overhead.dispatch", "overhead.kernel_fixed_cost": "overhead.dispatch",
}  # fmt: skip
_CLAUSES: dict[str, Callable[[Diagnosis], str]] = {
    "compute.roof": _less_arithmetic,
    "compute.below": _other_kernels,
    "compute.unmodelled": _unmodelled,
    "memory.device.roof": _fewer_bytes,
    "memory.device.below": _other_passes,
    "memory.page_faults": _used_again,
    "memory.copies": _hidden_copies,
    "memory.network": _hidden_communication,
    "memory.unmodelled": _unmodelled,
    "overhead.python": _python,
    "overhead.asleep": _asleep,
    "overhead.dispatch": _dispatch,
    "overhead.kernel_gap": _fewer_kernels,
    "overhead.synchronisation": _synchronisation,
    "overhead.data_loading": _data_loading,
    "overhead.allocation": _allocation,
    "overhead.compilation": _compilation,
    "overhead.garbage_collection": _garbage,
    "overhead.unexplained": _unexplained,
    "unmodelled": _unmodelled,
}
