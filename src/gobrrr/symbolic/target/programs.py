"""What a program holds of the target itself: its generators, its graphs, compiled packages.

A CUDA graph's work is recorded where it is captured, and stands in the step as often as it is
replayed. An AOTInductor package is code for one device: what it computes nobody sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gobrrr.devices.cuda.graphs import places_of_graphs
from gobrrr.symbolic.graph_recorder import GraphRecorder
from gobrrr.timeline.errors import CaptureError

GRAPH_LAUNCHES = (
    "the step replays a CUDA graph: its kernels are in the prediction, but the host's time is that "
    "of launching them one by one"
)


@contextlib.contextmanager
def target_programs(recorder: GraphRecorder, kind: str) -> Iterator[None]:
    """Until the block ends ``torch.Generator``, ``torch.cuda.CUDAGraph`` and packages are followed.

    ``kind``: PyTorch's type of the target.
    """
    import torch

    replaced: list[tuple[Any, str, Any]] = [
        (torch, "Generator", _generators(torch.device(kind, 0)))
    ]
    if kind == "cuda":
        instead: dict[str, Any] = {
            "CUDAGraph": _graphs(recorder), "graph": _Capture, "graph_pool_handle": lambda: (0, 0),
        }  # fmt: skip
        replaced += [(owner, name, instead[name]) for owner, name in places_of_graphs()]
    with contextlib.suppress(ImportError):
        from torch._inductor.package.package import AOTICompiledModel

        replaced.append((AOTICompiledModel, "__call__", _refuse_package))
    former = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(former):
            setattr(owner, name, value)


def _refuse_package(*_: Any, **__: Any) -> Any:
    raise CaptureError(
        "cannot predict an AOTInductor package: it holds compiled code whose operators are "
        "unknown; predict the model, or the exported program's module(), with compile"
    )


def _generators(target: Any) -> type:
    """``torch.Generator`` that makes one of the target without asking for it."""
    import torch

    true_class = torch.Generator

    class TargetGenerator(true_class):  # type: ignore[misc,valid-type]
        device = target

    class Kind(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            here = torch.device(device).type in ("cpu", "meta")
            return true_class() if here else TargetGenerator()

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, true_class)

    return Kind("Generator", (), {})


class _Capture:
    """``torch.cuda.graph``: what runs in the block is captured, not run."""

    def __init__(self, cuda_graph: Any, *_: Any, **__: Any) -> None:
        self.cuda_graph = cuda_graph

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin()

    def __exit__(self, *_: Any) -> None:
        self.cuda_graph.capture_end()


def _graphs(recorder: GraphRecorder) -> type:
    """``torch.cuda.CUDAGraph`` for stand-ins."""

    class FollowedGraph:
        """What was recorded while it was captured."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._ops: list[Any] = []
            self._started = (0, False)

        def capture_begin(self, *_: Any, **__: Any) -> None:
            self._started = len(recorder.graph), recorder.recording
            recorder.recording = True

        def capture_end(self) -> None:
            first, recorder.recording = self._started
            self._ops = recorder.graph[first:]
            del recorder.graph[first:]

        def replay(self) -> None:
            if recorder.recording:
                recorder.assume(GRAPH_LAUNCHES)
                recorder.graph.extend(self._ops)

        def reset(self) -> None:
            self._ops = []

        def instantiate(self) -> None:
            """Nothing more is to be done."""

        def pool(self) -> tuple[int, int]:
            return (0, 0)

        def enable_debug_mode(self) -> None:
            """There is no graph to look into."""

        def debug_dump(self, debug_path: str) -> None:
            """There is no graph to look into."""

    return FollowedGraph
