"""Convolutions in float32 without a matrix unit: cuDNN's algorithms, of which the fastest runs.

With ``cudnn.benchmark`` cuDNN times them, and its heuristics agree mostly. Names of kernels in
measured rows (``conv fp32`` of benchmarks/prediction_kernels) tell which ran:

- a product of gathered inputs, by precomputed offsets (``scudnn_128x64_relu``): any window;
- Winograd's F(2x2, 3x3) in one kernel (``scudnn_winograd_128x128``): 16 products for 2 x 2 results
  instead of 36;
- Winograd's F(4x4, 3x3) in four (``winograd_nonfused``): inputs and weights are transformed, 36
  products in a batch make 4 x 4 results each instead of 144, results are transformed back.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016. Both of the latter
take windows of 3 x 3 at stride 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.contraction_shapes import ConvolutionShape
from gobrrr.prediction.kernels.passes import Pass, seconds_of, traffic_seconds
from gobrrr.prediction.kernels.products import Product, time_of_product
from gobrrr.prediction.kernels.target import TargetDevice

# Results of F(2x2) and F(4x4) along each side, and products that each takes.
_FUSED_SIDE, _FUSED_PRODUCTS = 2, 16
_SPLIT_SIDE, _SPLIT_PRODUCTS = 4, 36
# Positions and output channels of the tiles of a product of gathered inputs.
_GATHERED_TILES = ((128, 128), (128, 64), (128, 32))
# Winograd's algorithm in one kernel: output channels of a tile of 32 blocks of 2 x 2 results, and
# how the blocks lie (``Coefficients.winograd_blocks``). A multiprocessor takes one tile at a time.
_FUSED_ROWS, _FUSED_COLUMNS = 128, 32
# cuDNN's tiles, on any architecture: what they lose to fetching from shared memory.
_TILE_EDGE = 2.0
# Fitted on five cards together. Of the rate of the other algorithms: the batch of products between
# the transforms.
_BATCH_FRACTION = 0.95
# Of a stream's rate: the transforms of inputs and of results, that of the weights (a thread reads
# nine that lie together, its neighbour the next nine), and the latter for the fused kernel.
_IN_FRACTION, _OUT_FRACTION = 0.55, 0.65
_WEIGHTS_FRACTION, _FUSED_WEIGHTS_FRACTION = 0.35, 0.6
# Energy of a FLOP over that of cuBLAS's products: tiles of 128 rows read each input from shared
# memory for more products (fitted on the P4 and the T4, whose clocks fall).
_ENERGY = 0.65
# Input channels whose products take as long as transforming a block's results and writing them.
_FUSED_CHANNELS = 16
_ITEM = 4


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute a convolution; ``seconds`` without the fixed cost of its ``kernels``."""

    name: str
    seconds: float
    kernels: int
    compute_s: float
    memory_s: float


def fastest(
    shape: ConvolutionShape, device: TargetDevice, c: Coefficients, cold_bytes: float, rate: float
) -> Algorithm | None:
    """The fastest of cuDNN's algorithms for a forward convolution of one group.

    ``rate``: FLOP/s of float32. ``None`` where a bandwidth is missing.
    """
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    energy_j = None if c.float32_energy_j is None else _ENERGY * c.float32_energy_j
    c = replace(
        c, vector_tile_edge=_TILE_EDGE, vector_tile_blocks=(), float32_energy_j=energy_j,
        energy_edge=0.0,
    )  # fmt: skip
    found = [_gathered(shape, device, c, cold_bytes, rate)]
    if shape.three_by_three:
        found.append(_fused_winograd(shape, device, c, cold_bytes, rate))
        found.append(_split_winograd(shape, device, c, cold_bytes, rate))
    known = [each for each in found if each is not None]
    return min(known, key=lambda each: each.seconds + one_s * each.kernels, default=None)


def fewest_products(shape: ConvolutionShape) -> float:
    """Multiply-adds of the algorithm that takes fewest: what no kernel of cuDNN goes below."""
    whole = shape.images * shape.pixels_out * shape.outputs * shape.inputs * shape.taps
    if not shape.three_by_three:
        return float(whole)
    blocks = shape.images * _blocks(shape, _SPLIT_SIDE)
    return float(min(whole, _SPLIT_PRODUCTS * blocks * shape.inputs * shape.outputs))


def _gathered(
    shape: ConvolutionShape, device: TargetDevice, c: Coefficients, cold_bytes: float, rate: float
) -> Algorithm | None:
    product = Product(
        shape.images * shape.pixels_out, shape.outputs, shape.inputs * shape.taps, 1, "float32",
        cold_bytes, fraction=c.float32_convolution_fraction,
        whole_depth=True,
    )  # fmt: skip
    found = time_of_product(product, device, replace(c, vector_tiles=_GATHERED_TILES), rate)
    if found is None:
        return None
    # A small kernel computes the offsets first.
    return Algorithm(
        "implicit GEMM", found.seconds, found.kernels + 1, found.compute_s,
        found.memory_s,
    )  # fmt: skip


def _fused_winograd(
    shape: ConvolutionShape, device: TargetDevice, c: Coefficients, cold_bytes: float, rate: float
) -> Algorithm | None:
    depth = (shape.inputs + _FUSED_CHANNELS) * _FUSED_PRODUCTS // _FUSED_SIDE**2
    product = Product(
        _fused_tiles(shape, c.winograd_blocks) * _FUSED_ROWS, shape.outputs, depth, 1, "float32",
        cold_bytes, fraction=c.float32_convolution_fraction, whole_depth=True,
    )  # fmt: skip
    whole = replace(
        c, vector_tiles=((_FUSED_ROWS, _FUSED_COLUMNS),), vector_wave_loss=1.0,
        vector_tile_elements=_FUSED_ROWS * _FUSED_COLUMNS, product_overlap_loss=0.0,
    )  # fmt: skip
    found = time_of_product(product, device, whole, rate)
    if found is None:
        return None
    weights = _stream(shape.inputs * shape.outputs * (shape.taps + _FUSED_PRODUCTS), device, c)
    return Algorithm(
        "Winograd's F(2x2, 3x3)",
        found.seconds + weights[0] / _FUSED_WEIGHTS_FRACTION,
        found.kernels + 1,
        found.compute_s,
        found.memory_s + weights[1],
    )


def _fused_tiles(shape: ConvolutionShape, layouts: tuple[tuple[int, ...], ...]) -> int:
    """Tiles of the fused kernel over images and positions, as its best layout cuts them.

    A small image fills its tiles badly: one of 10 x 10 in tiles of 8 x 16 takes two.
    """
    sizes = (shape.images, *(ceil(size / _FUSED_SIDE) for size in shape.sizes_out))
    return min(
        prod(ceil(size / side) for size, side in zip(sizes, layout, strict=True))
        for layout in layouts
    )


def _split_winograd(
    shape: ConvolutionShape, device: TargetDevice, c: Coefficients, cold_bytes: float, rate: float
) -> Algorithm | None:
    blocks = shape.images * _blocks(shape, _SPLIT_SIDE)
    spread_in, spread_out = (
        _SPLIT_PRODUCTS * blocks * channels for channels in (shape.inputs, shape.outputs)
    )
    weights = shape.inputs * shape.outputs
    moved = _ITEM * (spread_in + spread_out + _SPLIT_PRODUCTS * weights)
    product = Product(
        blocks, shape.outputs, shape.inputs, _SPLIT_PRODUCTS, "float32",
        _cold(moved, device),
        fraction=_BATCH_FRACTION * c.float32_convolution_fraction,
    )  # fmt: skip
    tiles = c.winograd_tiles or c.vector_tiles
    found = time_of_product(product, device, replace(c, batched_tiles=tiles), rate)
    if found is None:
        return None
    elements = (
        (_IN_FRACTION, shape.images * shape.pixels_in * shape.inputs + spread_in),
        (_WEIGHTS_FRACTION, weights * (shape.taps + _SPLIT_PRODUCTS)),
        (_OUT_FRACTION, spread_out + shape.images * shape.pixels_out * shape.outputs),
    )
    passes = [(fraction, *_stream(count, device, c)) for fraction, count in elements]
    return Algorithm(
        "Winograd's F(4x4, 3x3) in four kernels",
        found.seconds + sum(seconds / fraction for fraction, seconds, _ in passes),
        found.kernels + len(passes),
        found.compute_s,
        found.memory_s + sum(traffic for _, _, traffic in passes),
    )


def _blocks(shape: ConvolutionShape, side: int) -> int:
    return prod(ceil(size / side) for size in shape.sizes_out)


def _cold(size_bytes: float, device: TargetDevice) -> float:
    """What one kernel wrote and the cache no longer holds for the next: it writes and reads."""
    return max(0.0, size_bytes - device.cache_bytes / 2)


def _stream(elements: int, device: TargetDevice, c: Coefficients) -> tuple[float, float]:
    """Seconds of a pass over so many elements, in all and of its traffic."""
    size = float(_ITEM * elements)
    once = Pass(bytes_moved=size, cold_bytes=_cold(size, device))
    return seconds_of(once, device, c) or 0.0, traffic_seconds(once, device, c) or 0.0
