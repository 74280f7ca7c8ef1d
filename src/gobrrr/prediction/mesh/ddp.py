"""A step under ``DistributedDataParallel``: gradients reduced in buckets, behind the backward pass.

As torch's reducer does it (torch/csrc/distributed/c10d/reducer.cpp): gradients are copied into
buckets of 25 MiB, the first of 1 MiB, in the order in which they become ready; a bucket is reduced
as soon as it and all before it are full, in the process group's own stream; at the end of the
backward pass the stream that computes waits for all, and copies them back, unless gradients are
views of their buckets. Where it looks for unused parameters, buckets are those of the parameters in
the order of the model, the last one first, and which were used is reduced as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gobrrr.prediction.mesh.ops import COMPUTE, GROUP, Builder, MeshOps, end_of_backward
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, Parameter, Wrapping
from gobrrr.timeline.ops import TensorSpec

# torch/nn/parallel/distributed.py: ``bucket_cap_mb``; ``dist._DEFAULT_FIRST_BUCKET_BYTES``.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


def buckets_of(
    parameters: Iterable[Parameter], first: int = FIRST_BUCKET_BYTES, cap: int = BUCKET_BYTES
) -> list[list[Parameter]]:
    """Parameters by bucket, each closed once it is as large as its limit.

    Buckets hold one dtype each (``compute_bucket_assignment_by_size``); ``first``, ``cap``: limits
    of the first bucket and of the others, in bytes.
    """
    found: list[list[Parameter]] = []
    filling: dict[str, list[Parameter]] = {}
    closed: dict[str, int] = {}
    for parameter in parameters:
        bucket = filling.setdefault(parameter.dtype, [])
        bucket.append(parameter)
        limit = cap if closed.get(parameter.dtype) else first
        if sum(each.n_bytes for each in bucket) >= limit:
            found.append(filling.pop(parameter.dtype))
            closed[parameter.dtype] = 1
    return [*found, *(bucket for bucket in filling.values() if bucket)]


def buckets_under(wrapping: Wrapping, facts: ModelFacts) -> list[list[Parameter]]:
    """The buckets that a wrapper makes, in the order in which they are reduced.

    Raises:
        InputError: the step trains nothing.
    """
    first, cap = FIRST_BUCKET_BYTES, BUCKET_BYTES
    if wrapping.bucket_bytes is not None:
        first = cap = wrapping.bucket_bytes
    ready = reduced_parameters(facts)
    if not wrapping.finds_unused:
        return buckets_of(ready, first, cap)
    place = {each.storage: at for at, each in enumerate(facts.parameters)}
    found = buckets_of([each for each in facts.parameters if each.ready is not None], first, cap)
    found.sort(key=lambda bucket: min(place[each.storage] for each in bucket))
    return found[::-1]


def reduced_parameters(facts: ModelFacts) -> list[Parameter]:
    """Those with a gradient, in the order in which it is ready.

    Raises:
        InputError: there is none.
    """
    trained = [each for each in facts.parameters if each.ready is not None]
    if not trained:
        raise InputError(
            "the step computes no gradients of the model, so there is nothing to reduce and --mesh "
            "dp=N has no effect"
        )
    return sorted(trained, key=lambda each: each.ready or 0)


def data_parallel(
    graph: OpGraph, facts: ModelFacts, ranks: Sequence[int], wrapping: Wrapping | None = None
) -> MeshOps:
    """The step of one of ``ranks`` under DDP; ``wrapping``: as the program itself has asked for it.

    Raises:
        InputError: the step trains nothing, or reduces gradients in several backward passes.
    """
    if wrapping is not None and facts.passes > 1:
        raise InputError(
            f"the step reduces its gradients in {facts.passes} backward passes, and only a step of "
            "one can be predicted: run all but the last under no_sync()"
        )
    own = wrapping or Wrapping("ddp", tuple(ranks))
    parameters = reduced_parameters(facts)
    buckets = buckets_under(own, facts)
    build = Builder(graph)
    end = max(end_of_backward(graph.ops), parameters[-1].ready or 0)
    ready_at: dict[int, list[Parameter]] = {}
    for each in parameters:
        ready_at.setdefault(each.ready or 0, []).append(each)
    bucket_of = {each.storage: at for at, bucket in enumerate(buckets) for each in bucket}
    missing = [len(bucket) for bucket in buckets]
    views: dict[int, TensorSpec] = {}
    holds = [build.buffer(_elements(bucket), bucket[0].dtype) for bucket in buckets]
    reduced = 0

    def became_ready(each: Parameter) -> None:
        nonlocal reduced
        at = bucket_of[each.storage]
        view = views[each.storage] = build.buffer(_elements([each]), each.dtype, holds[at].storage)
        if not own.bucket_views or is_new(graph, each):
            build.copy([view], [_gradient(build, each)], COMPUTE, Phase.BACKWARD, _module(each))
        missing[at] -= 1
        while reduced < len(buckets) and not missing[reduced]:
            build.order.wait_stream(GROUP, COMPUTE)
            size = sum(parameter.n_bytes for parameter in buckets[reduced])
            call = CollectiveCall("all_reduce", size, "dp", tuple(ranks))
            # It is said of the module whose gradient filled the bucket.
            build.collective(call, holds[reduced], GROUP, Phase.BACKWARD, _module(each))
            reduced += 1
            if own.finds_unused and reduced == len(buckets):
                used = build.buffer(len(facts.parameters), "int32")
                call = CollectiveCall("all_reduce", 4 * len(facts.parameters), "dp", tuple(ranks))
                build.collective(call, used, GROUP, Phase.BACKWARD, _module(each))

    for size in facts.buffer_bytes if own.broadcasts else ():
        # ``broadcast_buffers``: before each forward pass the first rank's, waited for.
        call = CollectiveCall("broadcast", size, "dp", tuple(ranks))
        build.collective(call, build.buffer(size, "uint8"), COMPUTE, Phase.FORWARD)
    for at in range(len(graph.ops) + 1):
        for each in ready_at.get(at, ()):
            became_ready(each)
        if at == end:
            build.order.wait_stream(COMPUTE, GROUP)
            for each in parameters if not own.bucket_views else ():
                gradient = _gradient(build, each)
                build.copy(
                    [gradient], [views[each.storage]], COMPUTE, Phase.BACKWARD, _module(each)
                )
        if at < len(graph.ops):
            build.keep(at)
    return build.done()


def is_new(graph: OpGraph, parameter: Parameter) -> bool:
    """Whether the step makes the gradient, rather than adding to that of the step before."""
    life = None if parameter.gradient is None else graph.lives.get(parameter.gradient)
    return life is None or life.born >= 0


def bucket_bytes(facts: ModelFacts) -> int:
    """Memory of all buckets."""
    return sum(each.n_bytes for each in facts.parameters if each.ready is not None)


def _elements(parameters: Iterable[Parameter]) -> int:
    total = 0
    for each in parameters:
        elements = 1
        for size in each.shape:
            elements *= size
        total += elements
    return total


def _gradient(build: Builder, parameter: Parameter) -> TensorSpec:
    return build.buffer(_elements([parameter]), parameter.dtype, parameter.gradient)


def _module(parameter: Parameter) -> str:
    return parameter.name.rpartition(".")[0]
