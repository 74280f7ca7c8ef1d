"""Matrix products as the tiles that a GPU cuts them into.

A product of m x k by k x n is cut into tiles of the result; each multiprocessor computes tiles one
after the other, so the time is that of the one with most tiles (wave quantisation), and a tile
that hangs over the edge costs as much as a whole one (tile quantisation): NVIDIA, "Matrix
Multiplication Background User's Guide",
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/. Where tiles
are few, k is cut as well and the parts are added up (split-k).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, sqrt

from gobrrr.models.coefficients import Coefficients
from gobrrr.models.passes import cache_bytes_per_s, dram_bytes_per_s, reach
from gobrrr.models.target import TargetDevice
from gobrrr.work.traffic import arithmetic_dtype

# Rows and columns of the result per tile, as cuBLAS, CUTLASS, hipBLASLt and cuDNN offer them.
TILES: tuple[tuple[int, int], ...] = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
    (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (16, 64), (64, 16), (16, 16),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
# Steps of k that a tile's inner loop takes.
STEP = 32
# What a multiprocessor takes from the second-level cache, and the share of it that all of them
# get at once (5.5 to 9.7 TB/s are measured on Hopper of 16.7).
_PORT_BYTES_PER_CLOCK = 64
_PORT_SHARE = 0.5


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
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    cold_bytes: float
    aligned: bool = True
    fraction: float = 1.0


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

    NVIDIA's "CUDA C++ Best Practices" and the Ampere white paper (5120 bytes per clock for 80
    multiprocessor pairs); the last-level cache's rate where no clock is known.
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


@lru_cache(maxsize=16384)
def _shape_options(
    m: int, n: int, k: int, batch: int, units: int, full: int
) -> tuple[tuple[int, int, int, float, int], ...]:
    """Ways to cut the product: (rows, columns, split, padded multiply-adds of the busiest unit
    at its full rate, waves).
    """
    options = []
    for rows, columns in TILES:
        # Wider tiles than twice the matrix only add waste.
        if (rows > 16 and rows >= 2 * m) or (columns > 16 and columns >= 2 * n):
            continue
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        size = rows * columns
        resident = max(1, full // size)
        alone = min(1.0, sqrt(size / full))
        for split in SPLITS:
            if split > 1 and (k < 2 * STEP * split or tiles * (split - 1) > 4 * units):
                continue
            depth = ceil(k / split / STEP) * STEP
            busiest = ceil(tiles * split / units)
            groups, rest = divmod(busiest, resident)
            filled = float(groups * resident)
            if rest:
                filled += rest / min(1.0, rest * alone)
            waves = groups + (1 if rest else 0)
            options.append((rows, columns, split, filled * size * depth, waves))
    return tuple(options)


def _vector_product(
    product: Product, device: TargetDevice, c: Coefficients, flops: float, dram: float, cache: float
) -> TiledTime:
    """A matrix with a vector (gemv): no tiles; threads sum rows on the vector path."""
    vector = device.ceilings.vector_flops_per_s(arithmetic_dtype(product.dtype))
    rate = vector if vector is not None else device.ceilings.matrix_flops_per_s(product.dtype)
    compute_s = flops / (rate * c.float32_fraction) if rate else 0.0
    item = 4 if product.dtype in ("float32", "tf32") else 8 if product.dtype == "float64" else 2
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
    """Expected time of the product, the best over tiles and splits of k.

    Per tile: 2 rows x columns x k FLOPs at the multiprocessor's share of the rate, and (rows +
    columns) x k inputs from the cache, whichever takes longer; the whole at least its cold bytes
    at the memory's bandwidth. ``rate_flops_per_s``: the peak of the path it takes.
    ``None`` where a bandwidth is missing.
    """
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if dram is None or cache is None:
        return None
    on_matrix = uses_matrix_unit(product.dtype, device)
    fraction = (c.matrix_fraction if on_matrix else c.float32_fraction) * product.fraction
    if on_matrix and not product.aligned:
        fraction *= c.unaligned_fraction
    units = device.multiprocessors
    flops = 2.0 * product.m * product.n * product.k * product.batch
    if not units or device.kind == "cpu":
        compute_s, memory_s = flops / (rate_flops_per_s * fraction), product.cold_bytes / dram
        return TiledTime(max(compute_s, memory_s), 1, (0, 0), 1, 1, compute_s, memory_s)
    if min(product.m, product.n) == 1:
        return _vector_product(product, device, c, flops, dram, cache)
    full = c.tile_elements if on_matrix else c.vector_tile_elements
    per_unit = rate_flops_per_s * fraction / units
    item = 4 if product.dtype in ("float32", "tf32") else 8 if product.dtype == "float64" else 2
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    lowest_s = inf
    best: TiledTime | None = None
    for rows, columns, split, multiply_adds, waves in _shape_options(
        product.m, product.n, product.k, product.batch, units, full
    ):
        down, across = ceil(product.m / rows), ceil(product.n / columns)
        tiles = down * across * product.batch
        compute_s = 2 * multiply_adds / per_unit
        # Each column of tiles reads all rows, each row of tiles all columns.
        inputs = (across * product.m + down * product.n) * product.k * product.batch * item
        # Few multiprocessors draw on their own ports, many share the cache's.
        drawing = min(1.0, tiles * split * c.lone_share_of_dram / units)
        cache_s = inputs / (tile_bytes_per_s(device, cache) * drawing * c.multicast)
        memory_s = product.cold_bytes / (dram * reach(tiles * split, device, c))
        seconds = max(compute_s, cache_s, memory_s) + c.tile_fill_s
        kernels = 1
        if split > 1:
            # Partial results in float32 are written, then read by a kernel that adds them up.
            partial = product.m * product.n * product.batch * 4.0 * split
            seconds += 2 * partial / cache
            kernels = 2
        whole_s = seconds + kernels * one_s
        if best is None or whole_s < lowest_s:
            lowest_s = whole_s
            best = TiledTime(
                seconds, kernels, (rows, columns), split, waves, max(compute_s, cache_s), memory_s
            )
    return best
