"""The kernel model's estimate of every kernel of the captured networks, one file per network.

Estimating is the slow part; errors and fits (``run.py``) are then sums over these rows.

    python -m benchmarks.prediction_timm.features --cache FOLDER [--most 3]
"""

from __future__ import annotations

import argparse
import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from benchmarks.prediction_timm.families import family_of
from benchmarks.prediction_timm.tables import Kernel, captures, load

from gobrrr.prediction.kernels.efficiency import passes_beside, shape_of_convolution
from gobrrr.prediction.kernels.kernel_model import coefficients_of, estimate_op
from gobrrr.prediction.kernels.passes import traffic_seconds
from gobrrr.prediction.kernels.target import TargetDevice, target_device
from gobrrr.timeline.ops import TensorSpec

DEVICE = "RTX-4090"


@dataclass(frozen=True)
class Row:
    """One distinct kernel: its kind, how often it runs, and its estimate in seconds.

    ``compute_s`` and ``traffic_s`` are the sides of the kernel itself, ``conversion_s`` and
    ``bias_s`` the passes beside a convolution, ``time_s`` the whole estimate. ``time_s`` is
    ``None`` where the model has none.
    """

    kind: str
    name: str
    count: int
    compute_s: float = 0.0
    traffic_s: float = 0.0
    conversion_s: float = 0.0
    bias_s: float = 0.0
    fixed_s: float = 0.0
    time_s: float | None = None


@dataclass(frozen=True)
class NetworkRows:
    """All rows of a network, eager and compiled."""

    name: str
    family: str
    batch: int
    eager: tuple[Row, ...]
    compiled: tuple[Row, ...]


def kind_of(kernel: Kernel) -> str:
    """What a fit may treat apart: the kind of contraction, or the way of walking memory."""
    name = kernel.call.name
    if name.startswith("triton_"):
        return "generated pointwise" if "triton_poi" in name else "generated reduction"
    if "attention" in name:
        return "attention"
    shape = shape_of_convolution(kernel.call)
    if shape is not None:
        if shape.depthwise:
            return "depthwise"
        if shape.groups > 1:
            return "grouped convolution"
        if shape.inputs <= 4:
            return "first convolution"
        return "pointwise convolution" if shape.taps == 1 else "convolution"
    if kernel.work is not None and kernel.work.matrix_flops:
        sizes = [n for t in kernel.call.tensors[-2:] for n in t.shape[-2:]]
        return "product" if all(n % 8 == 0 for n in sizes[1:]) else "unaligned product"
    if "norm" in name or "softmax" in name:
        return "normalisation"
    return "walk"


def row_of(kernel: Kernel, device: TargetDevice) -> Row:
    """The estimate of one kernel."""
    call, work = kernel.call, kernel.work
    found = None if work is None else estimate_op(call, work, device)
    if work is None or found is None:
        return Row("unknown", call.name, kernel.count)
    c = coefficients_of(device.sheet)
    beside = [traffic_seconds(p, device, c) or 0.0 for p in passes_beside(call, work, device)]
    has_bias = beside and len(call.args) > 2 and isinstance(call.args[2], TensorSpec)
    bias_s = beside.pop() if has_bias else 0.0
    return Row(
        kind_of(kernel),
        call.name,
        kernel.count,
        found.compute_s,
        found.traffic_s - sum(beside) - bias_s,
        sum(beside),
        bias_s,
        found.fixed_s + kernel.split * device.kernel_fixed_s,
        found.time_s + kernel.split * device.kernel_fixed_s,
    )


def rows_file(capture: Path) -> Path:
    """Where the rows of a captured network are kept."""
    return capture.with_suffix("").with_suffix(".rows")


def load_rows(cache: Path) -> list[NetworkRows]:
    """Rows of all networks that have them."""
    found = []
    for path in sorted(cache.glob("*.rows")):
        with path.open("rb") as file:
            name, family, batch, *ways = pickle.load(file)
        eager, compiled = (tuple(Row(*row) for row in way) for way in ways)
        found.append(NetworkRows(name, family, batch, eager, compiled))
    return found


def write_rows(cache: Path, most: int | None) -> Iterable[str]:
    """Estimate what has no rows yet, at most ``most`` networks of a family; yields their names."""
    device = target_device(DEVICE)
    seen: Counter[str] = Counter()
    for path in captures(cache):
        family = family_of(path.name.removesuffix(".pickle.gz"))
        seen[family] += 1
        kept = rows_file(path)
        if kept.exists() or (most is not None and seen[family] > most):
            continue
        network = load(path)
        rows = NetworkRows(
            network.name,
            network.family,
            network.batch,
            tuple(row_of(kernel, device) for kernel in network.eager),
            tuple(row_of(kernel, device) for kernel in network.compiled),
        )
        with kept.open("wb") as file:
            pickle.dump(astuple(rows), file)
        yield network.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--most", type=int, help="networks of a family, at most")
    parser.add_argument("--rebuild", action="store_true", help="estimate all anew")
    options = parser.parse_args()
    if options.rebuild:
        for path in options.cache.glob("*.rows"):
            path.unlink()
    for name in write_rows(options.cache, options.most):
        print(name, flush=True)


if __name__ == "__main__":
    main()
