"""CUDA graphs, and HIP's: kernels that were recorded once, which one launch runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# As many as PyTorch's own example runs before it captures:
# https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
_WARM_UPS = 3


def captured(call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """What replays a call's kernels, and the call's result, which each replay fills anew.

    Raises RuntimeError where the call does what no graph can hold.
    """
    import torch

    from gobrrr.devices.cuda.backend import Cuda

    # What libraries set up at their first call may not be part of a graph.
    streams = Cuda().streams()
    assert streams is not None
    with streams.beside():
        for _ in range(_WARM_UPS):
            call()
    streams.join()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph.replay, result


def places_of_graphs() -> tuple[tuple[Any, str], ...]:
    """(module, name) of all that programs make graphs with, wherever PyTorch keeps it."""
    import torch

    home = getattr(torch.cuda, "graphs", None)
    if home is None:
        return ()
    names = ("CUDAGraph", "graph_pool_handle", "graph")
    return tuple((module, name) for module in (torch.cuda, home) for name in names)


def around_replays(
    *, before: Callable[[], None] = lambda: None, after: Callable[[Any], None] = lambda graph: None
) -> Callable[[], None]:
    """Calls back around each replay of a graph in this process; returns what ends that.

    ``after`` is given the graph, once its kernels are in the queue.
    """
    import torch

    kind = torch.cuda.CUDAGraph
    original = kind.replay

    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        result = original(self, *args, **kwargs)
        after(self)
        return result

    kind.replay = replay

    def undo() -> None:
        nonlocal before, after
        # What somebody wrapped around it in between stays, and finds it inactive.
        before, after = (lambda: None), (lambda graph: None)
        if kind.replay is replay:
            kind.replay = original

    return undo
