"""Matrix products as the tiles that a GPU cuts them into.

A product of m x k by k x n is cut into tiles of the result; each multiprocessor computes tiles one
after the other, so the time is that of the one with most tiles (wave quantisation), and a tile
that hangs over the edge costs as much as a whole one (tile quantisation): NVIDIA, "Matrix
Multiplication Background User's Guide",
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/. Where tiles
are few, k is cut as well and the parts are added up (split-k).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.passes import cache_bytes_per_s, dram_bytes_per_s, reach
from gobrrr.prediction.kernels.power import (
    energy_of_tiles,
    product_clock_share,
    vector_product_clock_shares,
)
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.kernels.tile_traffic import Tiling, reread_seconds
from gobrrr.timeline.ops import ITEM_SIZE_BYTES, VALUES_IN_ELEMENT
from gobrrr.work.traffic import arithmetic_dtype

Float64 = NDArray[np.float64]

# Rows and columns of the result per tile, as cuBLAS, CUTLASS, hipBLASLt and cuDNN offer them.
TILES: tuple[tuple[int, int], ...] = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
    (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (16, 64), (64, 16), (16, 16),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
# Steps of k that a tile's inner loop takes, on the matrix unit and in float32 on the vector path
# (a sector of 32 bytes).
STEP, VECTOR_STEP = 32, 8
# What a multiprocessor takes from the second-level cache, and the share of it that all of them
# get at once (5.5 to 9.7 TB/s are measured on Hopper of 16.7).
_PORT_BYTES_PER_CLOCK = 64
_PORT_SHARE = 0.5
# Rows from which a product with much traffic may be taken in two bands of rows, and how much
# longer a band takes than a product of its size.
_LEAST_BANDED, _BAND_LOSS = 64, 1.1
# Tiles that pad a product so little more than the best are alike to cuBLAS (87 % of the choices of
# a P4 in measured rows follow).
_PADDED = 1.01


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of products.

    Attributes:
        m, n, k: of each.
        batch: how many.
        dtype: of the inputs; ``tf32`` for float32 inputs multiplied in TF32.
        cold_bytes: bytes that come from memory or go there, of all of them.
        aligned: whether rows start on 16 bytes, as the fast loads of the matrix path need.
        fraction: of the rate of a plain product (a convolution gathers its rows, ...).
        a_by_rows, b_by_rows: whether k is the fastest dimension of the m x k input, of the k x n
            one.
        whole_depth: whether its kernels never divide k.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    cold_bytes: float
    aligned: bool = True
    fraction: float = 1.0
    a_by_rows: bool = False
    b_by_rows: bool = False
    whole_depth: bool = False


@dataclass(frozen=True, slots=True)
class TiledTime:
    """The best way found to compute a product.

    ``seconds`` without the fixed cost of its ``kernels``: 2 where one adds up the parts of a
    split k. ``compute_s``, ``memory_s``: the sides of ``seconds``.
    """

    seconds: float
    kernels: int
    tile: tuple[int, int]
    split: int
    waves: int
    compute_s: float
    memory_s: float


def tile_bytes_per_s(device: TargetDevice, cache_bytes_per_s_: float) -> float:
    """Bandwidth at which tiles get their inputs: 64 bytes per clock and multiprocessor.

    An approximation: the A100's cache gives 5120 bytes per clock to 108 multiprocessors (Ampere
    white paper), 47 each. The last-level cache's own rate where no clock is known.
    """
    sheet = device.sheet
    if sheet is None or sheet.clock_hz is None or not device.multiprocessors:
        return cache_bytes_per_s_
    ports = _PORT_BYTES_PER_CLOCK * sheet.clock_hz.value * device.multiprocessors
    return max(cache_bytes_per_s_, _PORT_SHARE * ports)


def uses_matrix_unit(dtype: str, device: TargetDevice) -> bool:
    """Whether products of this dtype run on a matrix unit of their own."""
    matrix = device.ceilings.matrix_flops_per_s(dtype)
    vector = device.ceilings.vector_flops_per_s(dtype if dtype != "tf32" else "float32")
    return matrix is not None and (vector is None or matrix > 1.01 * vector)


def _vector_product(
    product: Product, device: TargetDevice, c: Coefficients, flops: float, dram: float, cache: float
) -> TiledTime:
    """A matrix with a vector (gemv): no tiles; threads sum rows on the vector path."""
    vector = device.ceilings.vector_flops_per_s(arithmetic_dtype(product.dtype))
    rate = vector if vector is not None else device.ceilings.matrix_flops_per_s(product.dtype)
    compute_s = flops / (rate * c.float32_fraction) if rate else 0.0
    item = item_bytes(product.dtype)
    matrix = max(product.m, product.n) * product.k * product.batch * item
    # A warp of 32 threads for each result, four warps to a block.
    programs = max(product.m, product.n) * product.batch / 4
    share = reach(max(programs, 1.0), device, c)
    memory_s = max(product.cold_bytes / dram, matrix / cache) / share
    seconds = max(compute_s, memory_s) + c.trip_s
    return TiledTime(seconds, 1, (0, 0), 1, 1, compute_s, memory_s)


def time_of_product(
    product: Product, device: TargetDevice, c: Coefficients, rate_flops_per_s: float
) -> TiledTime | None:
    """Expected time of the product; ``None`` where a bandwidth is missing.

    ``rate_flops_per_s``: the peak of the path it takes. A product in float32 with much traffic
    takes little longer than its upper and its lower half one after the other (``_BAND_LOSS``):
    blocks that run together read neighbouring rows, and the cache has to hold what these need.
    Where the library chooses the tile (``_as_chosen``) that is only said of bands with the same.
    """
    found = _as_a_whole(product, device, c, rate_flops_per_s)
    if (
        found is None or 4 * found.memory_s <= found.compute_s or product.batch > 1
        or product.m < _LEAST_BANDED or uses_matrix_unit(product.dtype, device)
    ):  # fmt: skip
        return found
    rows = ceil(product.m / 2)
    band = replace(product, m=rows, cold_bytes=product.cold_bytes * rows / product.m)
    half = time_of_product(band, device, c, rate_flops_per_s)
    other = half is not None and half.tile != found.tile and bool(c.vector_tile_blocks)
    if half is None or other or 2 * _BAND_LOSS * half.seconds >= found.seconds:
        return found
    return replace(
        found,
        seconds=2 * _BAND_LOSS * half.seconds,
        memory_s=min(found.memory_s, 2 * _BAND_LOSS * half.memory_s),
    )


def _as_a_whole(
    product: Product, device: TargetDevice, c: Coefficients, rate_flops_per_s: float
) -> TiledTime | None:
    """The best over tiles and splits of k.

    Per tile: 2 rows x columns x k FLOPs at the multiprocessor's share of the rate, and (rows +
    columns) x k inputs from the cache, whichever takes longer; the whole at least its cold bytes
    at the memory's bandwidth.
    """
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if dram is None or cache is None:
        return None
    on_matrix = uses_matrix_unit(product.dtype, device)
    fraction = (c.matrix_fraction if on_matrix else c.float32_fraction) * product.fraction
    units = device.multiprocessors
    on_vector = not on_matrix and product.dtype == "float32"
    if not on_vector or not units:
        fraction *= product_clock_share(
            device, c, product.dtype, rate_flops_per_s * fraction, on_matrix
        )
    if not product.aligned:
        fraction *= c.unaligned_fraction if on_matrix else c.float32_unaligned_fraction
    if c.product_dram_fraction is not None:
        dram *= c.product_dram_fraction / c.dram_fraction
    flops = 2.0 * product.m * product.n * product.k * product.batch
    if not units:
        compute_s, memory_s = flops / (rate_flops_per_s * fraction), product.cold_bytes / dram
        return TiledTime(max(compute_s, memory_s), 1, (0, 0), 1, 1, compute_s, memory_s)
    if min(product.m, product.n) == 1:
        return _vector_product(product, device, c, flops, dram, cache)
    full = c.tile_elements if on_matrix else c.vector_tile_elements
    options = _options(product, units, full, on_vector, c)
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    per_unit = rate_flops_per_s * fraction / units
    # A tile reads a row and a column of its inputs for each step of k: the smaller, the more often.
    tile_edge, fill_s, turn_s = c.tile_edge, c.tile_fill_s, c.tile_turn_s
    if on_vector:
        tile_edge = tile_edge if c.vector_tile_edge is None else c.vector_tile_edge
        fill_s = fill_s if c.vector_tile_fill_s is None else c.vector_tile_fill_s
        turn_s = 0.0
        # Results that the cache cannot hold are written when their tile is done.
        results = 4.0 * product.m * product.n * product.batch - device.cache_bytes / 2
        fill_s += c.write_exposed * max(0.0, results) / dram
    edge = 1.0 + tile_edge * (1.0 / options.rows + 1.0 / options.columns)
    arithmetic: Float64 = 2 * options.multiply_adds * edge / per_unit
    if on_vector:
        arithmetic /= np.where(options.split > 1, c.vector_split_fraction, 1.0)
    # Each column of tiles reads all rows, each row of tiles all columns.
    item = item_bytes(product.dtype)
    reread = options.across * product.m + options.down * product.n
    inputs = reread * (product.k * product.batch * item)
    # Only the matrix unit's tiles are loaded by the copy engines that one read can serve together.
    multicast = c.multicast if on_matrix else 1.0
    # Few multiprocessors draw on their own ports, many share the cache's.
    drawing = np.minimum(1.0, options.programs * (c.lone_share_of_dram / units))
    arithmetic = np.maximum(
        arithmetic, inputs / (tile_bytes_per_s(device, cache) * multicast * drawing)
    )
    traffic: Float64 = product.cold_bytes / (dram * drawing)
    if on_vector:
        tiling = Tiling(options.rows, options.columns, options.down, options.across, options.held)
        reread = reread_seconds(product, tiling, units, device.cache_bytes, dram, c)
        traffic = np.maximum(traffic, reread)
        # What the board's power leaves of the clock slows the arithmetic alone.
        issued = options.issued_flops * energy_of_tiles(options.rows, options.columns, c)
        arithmetic /= vector_product_clock_shares(
            device, c, issued, arithmetic, traffic, traffic * dram
        )
    # Partial results in float32 are written, then read by a kernel that adds them up.
    cut = options.split > 1
    partial = product.m * product.n * product.batch * 4.0 * options.split
    seconds = (
        np.maximum(arithmetic, traffic)
        + c.product_overlap_loss * np.minimum(arithmetic, traffic)
        + fill_s
        + turn_s * np.maximum(0.0, options.waves - 1)
        + np.where(cut, 2 * partial / cache, 0)
    )
    best = int(np.argmin(seconds + one_s * cut))
    return TiledTime(
        float(seconds[best]),
        2 if cut[best] else 1,
        (int(options.rows[best]), int(options.columns[best])),
        int(options.split[best]),
        int(options.waves[best]),
        float(arithmetic[best]),
        float(traffic[best]),
    )


@dataclass(frozen=True)
class _Options:
    """Ways to cut a product, one entry each.

    ``down``, ``across``: tiles along its rows and columns; ``programs``: tiles times parts of k;
    ``multiply_adds``: padded, of the busiest multiprocessor, as if at its full rate; ``waves``:
    rounds that it makes; ``issued_flops``: padded, of all; ``held``: blocks that a multiprocessor
    holds at once, 0 where that is not known.
    """

    rows: Float64
    columns: Float64
    split: Float64
    down: Float64
    across: Float64
    programs: Float64
    multiply_adds: Float64
    waves: Float64
    issued_flops: Float64
    held: Float64


@cache
def _ways_of(tiles: tuple[tuple[int, int], ...]) -> tuple[Float64, Float64, Float64]:
    """Rows, columns and parts of k of all ways to cut with these tiles."""
    ways = [(rows, columns, split) for rows, columns in tiles for split in SPLITS]
    rows, columns, split = (np.array(column, np.float64) for column in zip(*ways))
    return rows, columns, split


def _options(product: Product, units: int, full: int, on_vector: bool, c: Coefficients) -> _Options:
    step = VECTOR_STEP if on_vector else STEP
    offered = TILES if not on_vector else c.batched_tiles if product.batch > 1 else c.vector_tiles
    rows, columns, split = _ways_of(offered)
    down, across = np.ceil(product.m / rows), np.ceil(product.n / columns)
    tiles = down * across * product.batch
    # Parts of k of at least two steps, and no more programs than keep everyone busy a few times.
    sensible = (split == 1) | ((product.k >= 2 * STEP * split) & (tiles * (split - 1) <= 4 * units))
    held = np.zeros_like(tiles)
    if on_vector:
        # cuBLAS cuts k where tiles are fewer than multiprocessors, and never in batches.
        sensible &= (split == 1) | (
            (tiles < units) & (product.batch == 1) & (not product.whole_depth)
        )
        if product.batch == 1 and c.vector_tile_blocks:
            held = np.repeat(np.array(c.vector_tile_blocks, np.float64), len(SPLITS))
            sensible &= (split > 1) | _as_chosen(rows * columns, tiles, units, held)
    rows, columns, split, held = rows[sensible], columns[sensible], split[sensible], held[sensible]
    down, across, tiles = down[sensible], across[sensible], tiles[sensible]
    size = rows * columns
    # Tiles that are too small to fill a multiprocessor share it, as many as fit; one of them alone
    # reaches a part of its rate that falls with the tile's edge.
    resident = np.maximum(1.0, np.floor(full / size))
    alone = np.minimum(1.0, np.sqrt(size / full))
    depth = np.ceil(product.k / split / step) * step
    even = tiles * split / units
    lost = c.wave_loss if not on_vector else c.vector_wave_loss
    # Rounds of the busiest; of the last one a part is made up for by those that run faster alone.
    busiest = np.maximum(1.0, even + lost * (np.ceil(even) - even))
    groups = np.floor(busiest / resident)
    rest = busiest - groups * resident
    left = rest / np.minimum(1.0, np.maximum(rest, 1.0) * alone)
    return _Options(
        rows, columns, split, down, across, tiles * split,
        (groups * resident + left) * size * depth, groups + (rest > 0),
        2.0 * tiles * split * size * depth, held,
    )  # fmt: skip


def _as_chosen(size: Float64, tiles: Float64, units: int, held: Float64) -> NDArray[np.bool_]:
    """Ways with the tile that cuBLAS takes where its kernels differ much.

    The one that pads the product least; of those within ``_PADDED`` of it the one whose rounds
    take least, with as many blocks on a multiprocessor as it holds; then the first.
    """
    padded = np.where(held > 0, size * tiles, np.inf)
    held = np.maximum(held, 1.0)
    rounds = np.ceil(tiles / (units * held)) * held * size
    rounds[padded > _PADDED * padded.min()] = np.inf
    # The last key decides first.
    best = int(np.lexsort((padded, rounds))[0])
    tile = best // len(SPLITS)
    chosen: NDArray[np.bool_] = np.arange(len(held)) // len(SPLITS) == tile
    return chosen


def item_bytes(dtype: str) -> float:
    """Bytes of one value that is multiplied; TF32 is read as float32."""
    if dtype == "tf32":
        return ITEM_SIZE_BYTES["float32"]
    return ITEM_SIZE_BYTES[dtype] / VALUES_IN_ELEMENT.get(dtype, 1)
