"""A training step of two blocks in a root, written by hand: every position is known."""

from __future__ import annotations

from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import ModelFacts, OpGraph, Parameter, StepOp, StorageLife
from gobrrr.timeline.ops import OpCall, TensorSpec

# Numbers of storages.
ROOT_WEIGHT, A_WEIGHT, B_WEIGHT, ROOT_GRAD, A_GRAD, B_GRAD, A_OUT, B_OUT, A_STATE, B_STATE = range(
    10
)
ROWS, COLUMNS = 10, 1000
BYTES = ROWS * COLUMNS * 4  # 40 000 of each weight
ROOT_BYTES = 8 * 4  # of the root's own
OUT_BYTES = 5_000


def spec(storage: int, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> TensorSpec:
    return TensorSpec(shape, "float32", None, storage, "cuda:0", 0)


def op(name: str, module: str, phase: Phase, *storages: int, out: int | None = None) -> StepOp:
    outputs = () if out is None else (spec(out),)
    return StepOp(OpCall(f"aten::{name}", tuple(map(spec, storages)), outputs), module, "", phase)


OPS = (
    op("neg", "Net", Phase.FORWARD, ROOT_WEIGHT),  # 0: the root
    op("neg", "blocks.0", Phase.FORWARD, A_WEIGHT, out=A_OUT),  # 1
    op("neg", "blocks.1", Phase.FORWARD, B_WEIGHT, out=B_OUT),  # 2
    op("neg", "Net", Phase.BACKWARD, B_OUT),  # 3: the loss's own
    op("neg", "blocks.1", Phase.BACKWARD, B_WEIGHT, B_OUT, out=B_GRAD),  # 4: ready at 5
    op("neg", "blocks.0", Phase.BACKWARD, A_WEIGHT, A_OUT, out=A_GRAD),  # 5: ready at 6
    op("neg", "Net", Phase.BACKWARD, ROOT_WEIGHT, out=ROOT_GRAD),  # 6: ready at 7
    op("add_", "", Phase.OPTIMIZER, A_WEIGHT, A_GRAD, A_STATE),  # 7
    op("add_", "", Phase.OPTIMIZER, B_WEIGHT, B_GRAD, B_STATE),  # 8
)

LIVES = {
    ROOT_WEIGHT: StorageLife(ROOT_BYTES, -1, None),
    A_WEIGHT: StorageLife(BYTES, -1, None),
    B_WEIGHT: StorageLife(BYTES, -1, None),
    ROOT_GRAD: StorageLife(ROOT_BYTES, 6, None),
    A_GRAD: StorageLife(BYTES, 5, None),
    B_GRAD: StorageLife(BYTES, 4, None),
    A_OUT: StorageLife(OUT_BYTES, 1, 5),
    B_OUT: StorageLife(OUT_BYTES, 2, 4),
    A_STATE: StorageLife(BYTES, -1, None),
    B_STATE: StorageLife(BYTES, -1, None),
}


def parameter(name: str, unit: str, storage: int, gradient: int, ready: int) -> Parameter:
    root = storage == ROOT_WEIGHT
    shape = (8,) if root else (ROWS, COLUMNS)
    size = ROOT_BYTES if root else BYTES
    return Parameter(name, unit, storage, shape, "float32", size, gradient, ready)


FACTS = ModelFacts(
    parameters=(
        parameter("scale", "", ROOT_WEIGHT, ROOT_GRAD, 7),
        parameter("blocks.0.weight", "blocks.0", A_WEIGHT, A_GRAD, 6),
        parameter("blocks.1.weight", "blocks.1", B_WEIGHT, B_GRAD, 5),
    ),
    units=("blocks.0", "blocks.1"),
)

GRAPH = OpGraph(
    ops=OPS,
    kept=frozenset(),
    parameters=frozenset((ROOT_WEIGHT, A_WEIGHT, B_WEIGHT)),
    inputs=frozenset(),
    sizes_bytes={number: life.n_bytes for number, life in LIVES.items()},
    peak_memory_bytes=None,
    lives=LIVES,
    model=FACTS,
)
