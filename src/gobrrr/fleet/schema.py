"""The tables of a fleet folder: what each column is, in which unit.

Times ending in ``_s`` are seconds, ``_ns`` integer nanoseconds on the trace's own clock. Every
table also has ``run`` and ``rank``, which stand in its path (``steps/run=R/rank=3/NAME.parquet``),
but for ``files``, where they are columns. Nothing else of a trace is kept: no environment, no
metadata, no address, no value of an argument.
"""

from __future__ import annotations

import pyarrow as pa

from gobrrr.attribution.leaves import LEAVES

# Raised whenever a table changes, or what its numbers mean: older folders are made again.
FORMAT_VERSION = 2


def leaf_column(leaf: str) -> str:
    """``compute.matrix.roof`` -> ``compute_matrix_roof_s``."""
    return leaf.replace(".", "_") + "_s"


LEAF_COLUMNS: tuple[str, ...] = tuple(leaf_column(leaf) for leaf in LEAVES)
_SECONDS = pa.float64()
_WORDS = pa.string()

# One row for each step of a rank; leaves are null where only their means are known (processors).
STEPS = pa.schema(
    [
        ("host", _WORDS), ("step", pa.int32()), ("name", _WORDS),
        ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("s", _SECONDS),
        ("compute_s", _SECONDS), ("memory_s", _SECONDS), ("overhead_s", _SECONDS),
        *((name, _SECONDS) for name in LEAF_COLUMNS),
    ]
)  # fmt: skip
# Ops by shapes, module and phase; times, counts, FLOPs and bytes are per step.
OPS = pa.schema(
    [
        ("host", _WORDS), ("op", _WORDS), ("shapes", _WORDS), ("dtypes", _WORDS),
        ("module", _WORDS), ("phase", _WORDS), ("class", _WORDS), ("regime", _WORDS),
        ("count", pa.float64()), ("s", _SECONDS), ("roof_s", _SECONDS),
        ("flops", pa.float64()), ("bytes", pa.float64()),
    ]
)  # fmt: skip
# Overhead by step and cause; of a processor's recording the mean stands in every step.
IDLE = pa.schema([("host", _WORDS), ("step", pa.int32()), ("cause", _WORDS), ("s", _SECONDS)])
# The same by line of the program, per step.
LINES = pa.schema(
    [("host", _WORDS), ("cause", _WORDS), ("source", _WORDS), ("detail", _WORDS), ("s", _SECONDS)]
)
# One row for each call. ``step`` is null outside the steps; ``exposed_from_ns`` and
# ``exposed_to_ns`` are the stretches in which nothing else ran.
COLLECTIVES = pa.schema(
    [
        ("host", _WORDS), ("step", pa.int32()), ("call", pa.int32()), ("name", _WORDS),
        ("group", _WORDS), ("group_size", pa.int32()), ("sequence", pa.int64()),
        ("bytes", pa.int64()), ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("s", _SECONDS),
        ("exposed_s", _SECONDS), ("exposed_from_ns", pa.list_(pa.int64())),
        ("exposed_to_ns", pa.list_(pa.int64())),
    ]
)  # fmt: skip
# One row: the means of its steps.
MEANS = pa.schema(
    [
        ("host", _WORDS), ("device", _WORDS), ("world_size", pa.int32()), ("steps", pa.int32()),
        ("s", _SECONDS), ("on_device", pa.bool_()),
        *((name, _SECONDS) for name in LEAF_COLUMNS),
    ]
)  # fmt: skip

# What a trace is mapped to.
MAPPED: dict[str, pa.Schema] = {
    "steps": STEPS,
    "ops": OPS,
    "idle": IDLE,
    "lines": LINES,
    "collectives": COLLECTIVES,
    "means": MEANS,
}

# What the merge adds, a file for each run: waiting of each call, and of each rank per step
# (``caused_s``: how long each other rank waits for it, the mean).
WAITS = pa.schema(
    [("rank", pa.int64()), ("call", pa.int32()), ("wait_s", _SECONDS), ("last_rank", pa.int64())]
)
PACES = pa.schema(
    [("rank", pa.int64()), ("wait_s", _SECONDS), ("caused_s", _SECONDS), ("busier_s", _SECONDS)]
)
MERGED: dict[str, pa.Schema] = {"waits": WAITS, "paces": PACES}

# One row for each file that was looked at: read (``error`` is null) or not.
FILES = pa.schema(
    [
        ("path", pa.string()), ("run", pa.string()), ("rank", pa.int64()), ("host", pa.string()),
        ("error", pa.string()), ("size_bytes", pa.int64()), ("version", pa.string()),
        ("key", pa.string()), ("stem", pa.string()), ("world_size", pa.int32()),
        ("recorded_ns", pa.int64()), ("events", pa.int64()), ("read_s", _SECONDS),
        ("cpu_s", _SECONDS),
        ("worker_bytes", pa.int64()), ("notices", pa.list_(pa.string())),
        ("retry", pa.bool_()),
    ]
)  # fmt: skip
