"""What torch.compile met so far in this process: graph breaks and recompilations."""

from __future__ import annotations

import sys


def compiler_counters() -> dict[str, float]:
    """Graph breaks, compiled graphs and recompilations since the process started.

    From ``torch._dynamo.utils.counters``; zeros while the compiler was never loaded, and no entry
    where a version of torch keeps no such count.
    """
    loaded = sys.modules.get("torch._dynamo.utils")
    if loaded is None:
        return {"graph_breaks": 0.0, "compiled_graphs": 0.0, "recompilations": 0.0}
    counters = getattr(loaded, "counters", None)
    if counters is None:
        return {}
    found = {
        "graph_breaks": float(sum(counters["graph_break"].values())),
        "compiled_graphs": graphs_compiled(),
    }
    guards = getattr(loaded, "guard_failures", None)
    if guards is not None:
        # "0/1: tensor 'x' rank mismatch ...": each compiled version that failed was replaced once,
        # and fails again, with its number, whenever a later one is.
        versions = ({failure.partition(":")[0] for failure in each} for each in guards.values())
        found["recompilations"] = float(sum(len(failed) for failed in versions))
    return found


def graphs_compiled() -> float:
    """Graphs that Dynamo has compiled in this process; zero where it keeps no such count."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return 0.0 if counters is None else float(counters["stats"]["unique_graphs"])


def counted_since(before: dict[str, float]) -> dict[str, float]:
    """Growth of each counter since ``before``."""
    return {name: value - before.get(name, 0.0) for name, value in compiler_counters().items()}
