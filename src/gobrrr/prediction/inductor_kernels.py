"""What Inductor really fuses: the kernels that it schedules when it compiles a callable here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.timeline.errors import InputError


@dataclass(frozen=True, slots=True)
class InductorKernel:
    """One kernel of the compiled code, or one call of a library.

    Attributes:
        ops: names of the operators whose work is in it, ``("cos", "sum")``, sorted.
        extern: whether it is a call of a library.
        bytes_moved: bytes that it reads and writes, by Inductor's own count; ``None`` if unknown.
        sources: the user's lines, where Inductor kept them.
    """

    ops: tuple[str, ...]
    extern: bool
    bytes_moved: int | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InductorResult:
    """All kernels of a compiled callable, and what kept Dynamo from seeing it whole.

    Attributes:
        kernels: in the order of the schedule, graph after graph.
        graphs: how many graphs were compiled (1 without a break).
        breaks: reasons of graph breaks, each once.
    """

    kernels: tuple[InductorKernel, ...]
    graphs: int
    breaks: tuple[str, ...]


def inductor_kernels(function: Callable[[], Any]) -> InductorResult:
    """Compile and run ``function`` once; what Inductor made of it.

    Compiling takes seconds to minutes. Caches are bypassed, because a graph that comes out of one
    is not scheduled.

    Raises:
        InputError: this PyTorch has no such hook, or cannot compile here.
    """
    import torch
    import torch._dynamo as dynamo
    import torch._inductor.config as config
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    if not hasattr(config, "_post_fusion_custom_pass"):
        raise InputError(
            f"torch {torch.__version__} does not show what Inductor fuses; 2.7 and later do"
        )
    found: list[InductorKernel] = []
    graphs = 0

    def look(nodes: list[Any]) -> list[Any]:
        nonlocal graphs
        graphs += 1
        found.extend(kernel for node in nodes if (kernel := _describe(node)) is not None)
        return nodes

    dynamo.reset()
    before = dict(counters["graph_break"])
    try:
        with fresh_cache(), config.patch(_post_fusion_custom_pass=look):
            torch.compile(function)()
    except Exception as error:
        reason = str(error).strip().splitlines()
        first = reason[0] if reason else ""
        raise InputError(f"torch.compile fails here: {type(error).__name__}: {first}") from error
    finally:
        dynamo.reset()
    after = counters["graph_break"]
    broke = [str(why).splitlines()[0] for why in after if after[why] > before.get(why, 0)]
    return InductorResult(tuple(found), graphs, tuple(dict.fromkeys(broke)))


def _describe(node: Any) -> InductorKernel | None:
    from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

    parts = [part for part in node.get_nodes() if not isinstance(part, NopKernelSchedulerNode)]
    if not parts:
        return None
    names: set[str] = set()
    lines: dict[str, None] = {}
    for part in parts:
        if part.node is None:
            continue
        for origin in part.node.get_origins():
            name = _operator(origin)
            if name:
                names.add(name)
            line = _line(origin)
            if line:
                lines[line] = None
    try:
        moved: int | None = int(node.get_read_write_buffers_sizes())
    except Exception:  # a buffer of unknown size, by whatever error this version has for it
        moved = None
    extern = any(isinstance(part, ExternKernelSchedulerNode) for part in parts)
    return InductorKernel(tuple(sorted(names)), extern, moved, tuple(lines))


def _operator(origin: Any) -> str:
    """``cos`` of the fx node of ``aten.cos.default``; ``""`` for placeholders and views."""
    if getattr(origin, "op", "") != "call_function":
        return ""
    packet = getattr(origin.target, "overloadpacket", None)
    return getattr(packet, "__name__", "") if packet is not None else ""


def _line(origin: Any) -> str:
    """``model.py:12``: the innermost line of the recorded stack."""
    trace = getattr(origin, "meta", {}).get("stack_trace") or ""
    found = ""
    for line in trace.splitlines():
        text = line.strip()
        if text.startswith('File "'):
            path, _, rest = text[6:].partition('", line ')
            number = rest.partition(",")[0]
            found = f"{path.rsplit('/', 1)[-1]}:{number}"
    return found
