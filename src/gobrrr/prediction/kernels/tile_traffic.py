"""What the tiles of a float32 product read from memory, where the cache forgets it between them.

Tiles that run at the same time read the same rows and columns of the inputs, and the second-level
cache reads each once from memory. Tiles of the next wave read them again, unless an input fits the
cache as a whole. In a deep product the tiles of a wave drift apart, and then even neighbours read
for themselves. An input whose fastest dimension is k is read 32 bytes of a row at a time (eight
steps of k in float32, a sector of the cache), each row in another page of the memory, far below
the bandwidth of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.kernels.coefficients import Coefficients

if TYPE_CHECKING:
    from gobrrr.prediction.kernels.products import Product

Float64 = NDArray[np.float64]

# Results that the tiles of one multiprocessor hold together in registers (64 k registers: half of
# them accumulators).
_RESIDENT_ELEMENTS = 128 * 128
# What takes at most this share of the cache stays in it; nothing is left of what takes this many
# times its size.
_STAYS, _GONE = 0.5, 3.0
# Waves of tiles that start together in effect, and over how many more that is lost; k at which
# tiles that started apart share nothing (products of a P4 in measured rows).
_TOGETHER, _APART, _LATE_DEPTH = 2.0, 6.0, 6_000.0
# How many steps of k lie between tiles that have drifted apart (the same products), and the bytes
# that a step reads of a row: a sector of the cache.
_STEPS_APART, _SECTOR = 6.0, 32.0


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of one product: their sides, and how many lie along its rows and columns.

    ``held``: blocks that a multiprocessor holds at once, 0 where that is not known.
    """

    rows: Float64
    columns: Float64
    down: Float64
    across: Float64
    held: Float64


def reread_seconds(
    product: Product, tiles: Tiling, units: int, cache_bytes: int, dram_bytes_per_s: float,
    c: Coefficients,
) -> Float64:  # fmt: skip
    """Seconds of memory traffic of a product with inputs of 4 bytes, by way to cut it.

    ``dram_bytes_per_s``: of a stream. 0 where all of it fits the cache: then the traffic is what
    comes cold.
    """
    m, n, k, batch = product.m, product.n, product.k, product.batch
    a_bytes, b_bytes = 4.0 * m * k, 4.0 * n * k
    missed = _missed((a_bytes + b_bytes + 4.0 * m * n) * batch, cache_bytes)
    if not missed:
        return np.zeros_like(tiles.rows)
    at_once = units * np.maximum(1.0, np.floor(_RESIDENT_ELEMENTS / (tiles.rows * tiles.columns)))
    count = tiles.down * tiles.across
    # Blocks are numbered along the result's columns first (the rows of cuBLAS, column-major).
    wide = np.minimum(np.minimum(at_once, count), tiles.across)
    tall = np.minimum(tiles.down, np.ceil(np.minimum(at_once, count) / tiles.across))
    waves = np.maximum(1.0, count / at_once)
    drift = np.full_like(waves, min(1.0, k / c.drift_depth))
    # Tiles of later waves start as others end, at other places in k. Neighbours in a row of tiles
    # start one after the other and still meet in the cache; those of a column, a row of tiles
    # apart, only if it holds the whole rows and columns of all that run together.
    together = (tall * tiles.rows + wide * tiles.columns) * (4.0 * k)
    late = c.stagger * np.clip((waves - _TOGETHER) / _APART, 0.0, 1.0)
    # Deep tiles lose each other sooner if they did not start together.
    drift = np.maximum(drift, late * min(1.0, k / _LATE_DEPTH) ** 3)
    late = late * _missed_all(together, cache_bytes)
    # Tiles that are some steps apart still share what the cache keeps for so long: few large blocks
    # read less in a step than many small ones.
    step = (tiles.rows + tiles.columns) * tiles.held * (units * _SECTOR)
    outrun = np.where(tiles.held > 0, _missed_all(_STEPS_APART * step, cache_bytes), 1.0)
    drift, late = drift * outrun, late * outrun
    # Rows of the result read a, columns b: by the tiles of a wave together, or each for itself.
    a_read = _drifted(waves * tall * tiles.rows, count * tiles.rows, drift) * (4.0 * k)
    b_read = _drifted(waves * wide * tiles.columns, count * tiles.columns, drift) * (4.0 * k)
    apart = np.maximum(waves * wide, tiles.across * tiles.down) * tiles.columns * (4.0 * k)
    b_read = b_read + late * np.maximum(0.0, apart - b_read)
    a_read = np.maximum(a_bytes, a_read)
    b_read = np.maximum(b_bytes, b_read)
    a_read = a_bytes + _missed(a_bytes, cache_bytes) * (a_read - a_bytes)
    b_read = b_bytes + _missed(b_bytes, cache_bytes) * (b_read - b_bytes)
    # Short rows lie several to a page, which is open for the next one.
    scattered = dram_bytes_per_s * min(1.0, c.scattered_fraction * (1.0 + c.page_depth / k))
    seconds: Float64 = (
        missed
        * batch
        * (
            a_read / (scattered if product.a_by_rows else dram_bytes_per_s)
            + b_read / (scattered if product.b_by_rows else dram_bytes_per_s)
            + 4.0 * m * n / dram_bytes_per_s
        )
    )
    return seconds


def _missed(size_bytes: float, cache_bytes: int) -> float:
    """Share of repeated reads that go to memory."""
    if not cache_bytes:
        return 1.0
    return min(1.0, max(0.0, (size_bytes / cache_bytes - _STAYS) / (_GONE - _STAYS)))


def _missed_all(size_bytes: Float64, cache_bytes: int) -> Float64:
    """``_missed`` for each way to cut a product."""
    if not cache_bytes:
        return np.ones_like(size_bytes)
    return np.clip((size_bytes / cache_bytes - _STAYS) / (_GONE - _STAYS), 0.0, 1.0)


def _drifted(together: Float64, alone: Float64, drift: Float64) -> Float64:
    return together + drift * np.maximum(0.0, alone - together)
