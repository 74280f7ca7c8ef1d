"""The few numbers of the kernel model that no data sheet states, by architecture, with sources.

Everything else in the model is arithmetic on the data sheet. A number here is published, or was
fitted; it says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.prediction.kernels.architectures import of_architecture

KERNELS = "fitted on half of the measured ops of benchmarks/prediction_kernels"
TRACES = "fitted on half of the op shapes of the recorded H100 and MI300X steps"


# Rows and columns of float32 tiles, from the names of kernels in measured rows (``KERNELS``;
# cuBLAS counts columns first: ``sgemm_128x64_tn`` has 64 rows).
_CUBLAS = ((128, 128), (64, 128), (64, 64), (32, 128), (128, 32), (32, 64), (32, 32))
_PASCAL = ((64, 64), (128, 32), (32, 128))
_VOLTA_BATCHED = ((64, 64), (64, 128), (128, 32), (32, 128))


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Achieved fractions and fixed times of one architecture.

    Attributes:
        matrix_fraction: of the dense matrix peak that the best large product reaches: clocks drop
            under the power of a full chip.
        float32_fraction: the same for products in float32 on the vector path.
        vector_fraction: of the vector peak that element-wise kernels reach: beside each useful
            instruction stand those that load, convert, address and store.
        dram_fraction: of the memory's peak bandwidth that a long stream reaches.
        cache_fraction: of the last-level cache's bandwidth.
        cache_over_dram: bandwidth of the last-level cache over the memory's, where no sheet
            states one.
        tile_elements: results in one tile that fills a multiprocessor's matrix unit.
        vector_tile_elements: the same for the vector path.
        tile_fill_s: seconds between a tile's start and its first product, and from its last
            product to its end.
        kernel_floor_s: seconds of a small kernel that reads and writes, where that is more than
            one that does nothing: caches written back at its end, arguments fetched.
        trip_s: seconds of one more trip to memory that the next step of a kernel depends on.
        row_trips: trips to memory that a row of a layer norm waits for beside its reads (short rows
            of 1 to 2 KB take 4 us a round of blocks on an A100, 6 on a P100).
        norm_slots: instructions that an element of a layer norm takes: running means, with a
            division by each count (``cuWelfordOnlineSum``, layer_norm_kernel.cu).
        reread_exposed: share of the time of reading a row again, from the cache, that no other
            row's first read hides; over 1 where that is slower than the cache's bandwidth.
        resident_threads: threads that a multiprocessor holds (CUDA programming guide, technical
            specifications per compute capability).
        index_instructions: integer instructions per element of an element-wise kernel that
            computes each operand's address by itself (broadcasting, strides).
        overlap_loss: share of the lesser of arithmetic and traffic that is not hidden behind
            the larger.
        multicast: multiprocessors that one read from the cache serves with a tile's inputs.
        lone_share_of_dram: how many times its equal share of the memory's bandwidth one
            multiprocessor can draw when the others are idle.
        unaligned_fraction: of the matrix rate, for 16-bit rows that do not start on 16 bytes.
        convolution_fraction: of a product's rate that a convolution of the same size reaches.
        attention_fraction: of the rate at which a fused attention would go if its products and
            its softmax ran at peak one after the other, forward; over 1 where they overlap.
        attention_backward_fraction: the same, backward.
        attention_fill_s: as ``tile_fill_s``, of the whole kernel.
        attention_tile_s: seconds that each block of queries adds to a multiprocessor's time.
        direct_fraction: of the vector peak that depthwise and direct convolutions reach.
        strided_fraction: of the bandwidth, where a tensor is read across its rows.
        product_dram_fraction: of the memory's peak bandwidth that matrix products reach, where it
            is not that of a stream.
        float32_unaligned_fraction: as ``unaligned_fraction``, on the vector path in float32.
        product_overlap_loss: as ``overlap_loss``, of a product's tiles and its traffic to memory.
        tile_edge: rows or columns at which a tile spends as long on fetching its inputs from shared
            memory as on multiplying: a tile of r x c goes at 1 / (1 + tile_edge (1/r + 1/c)) of the
            rate.
        vector_tile_edge, vector_tile_fill_s: as ``tile_edge``, ``tile_fill_s``, in float32 on the
            vector path; ``None``: the same.
        scattered_fraction: of a stream's bandwidth, for float32 tiles that read 32 bytes of each
            of many rows (``tile_traffic``).
        tile_turn_s: on the matrix unit, seconds between the last product of a tile and the first of
            the next on the same multiprocessor: results are written, pipelines filled anew.
        write_exposed: share of the time of writing a float32 product's results to memory that no
            other tile's arithmetic hides.
        wave_loss, vector_wave_loss: share of the last round's idle multiprocessors that is lost;
            the rest is made up for, since what runs beside fewer others runs faster.
        vector_split_fraction: of a float32 product's rate, where k is cut.
        drift_depth: k beyond which the tiles of a float32 product no longer share what they read.
        stagger: share of their common reads that float32 tiles of later waves do not share, where
            they start far apart and the cache cannot hold all rows and columns of those that run
            together.
        page_depth: k of a float32 row beside which its neighbours in the same page of memory
            double ``scattered_fraction``.
        vector_tiles: rows and columns of the tiles that cuBLAS has for float32 products.
        batched_tiles: the same for batches of them.
        winograd_tiles: of the batch of products in Winograd's algorithm; empty: ``vector_tiles``.
        winograd_blocks: how 32 blocks of 2 x 2 results lie in a tile of Winograd's algorithm in one
            kernel: images, rows, columns (``tile148``, ``tile244`` in the names of kernels).
        vector_tile_blocks: of each of ``vector_tiles``, the blocks that a multiprocessor holds,
            where cuBLAS's choice among its tiles is modelled (``products``; 0: only where k is
            cut); empty: the fastest is taken.
        float32_convolution_fraction: of a float32 product's rate, for cuDNN's convolutions on the
            vector path.
        matrix_energy_j: joules per FLOP of 16-bit products on the matrix unit, at the full clock;
            ``None``: its clock is not modelled.
        float32_energy_j: the same for products in float32 on the vector path, in tiles of
            128 x 128.
        energy_edge: as ``tile_edge``, of the energy of such a tile.
    """

    matrix_fraction: float = 0.80
    float32_fraction: float = 0.80
    vector_fraction: float = 0.5
    dram_fraction: float = 0.90
    cache_fraction: float = 0.60
    cache_over_dram: float = 3.0
    tile_elements: int = 128 * 128
    vector_tile_elements: int = 128 * 64
    tile_fill_s: float = 2.5e-6
    kernel_floor_s: float = 1.6e-6
    trip_s: float = 0.7e-6
    row_trips: int = 0
    norm_slots: float = 0.0
    reread_exposed: float = 0.6
    resident_threads: int = 2048
    index_instructions: float = 46.0
    overlap_loss: float = 0.1
    multicast: float = 1.0
    lone_share_of_dram: float = 3.0
    unaligned_fraction: float = 0.5
    convolution_fraction: float = 0.75
    attention_fraction: float = 1.0
    attention_backward_fraction: float = 0.8
    attention_fill_s: float = 3.5e-6
    attention_tile_s: float = 0.0
    direct_fraction: float = 0.15
    strided_fraction: float = 0.5
    product_dram_fraction: float | None = None
    float32_unaligned_fraction: float = 1.0
    product_overlap_loss: float = 0.0
    tile_edge: float = 0.0
    vector_tile_edge: float | None = None
    vector_tile_fill_s: float | None = None
    scattered_fraction: float = 1.0
    drift_depth: float = 15000.0
    stagger: float = 0.0
    page_depth: float = 0.0
    tile_turn_s: float = 0.0
    write_exposed: float = 0.0
    wave_loss: float = 1.0
    vector_wave_loss: float = 0.5
    vector_split_fraction: float = 1.0
    vector_tiles: tuple[tuple[int, int], ...] = _CUBLAS
    batched_tiles: tuple[tuple[int, int], ...] = _CUBLAS
    winograd_tiles: tuple[tuple[int, int], ...] = ()
    winograd_blocks: tuple[tuple[int, int, int], ...] = ((1, 4, 8),)
    vector_tile_blocks: tuple[int, ...] = ()
    float32_convolution_fraction: float = 0.65
    matrix_energy_j: float | None = None
    float32_energy_j: float | None = None
    energy_edge: float = 0.0


# matrix_fraction: bfloat16, the best of many shapes, PyTorch 2.5 to 2.10, from the table at
# https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md
# #maximum-achievable-matmul-flops-comparison-table:
# A100 0.87, H100 0.80, B200 0.78, MI300X 0.51, MI355X 0.68, MI250X 0.77. Hopper's and CDNA 3's
# numbers are fitted (``TRACES``, by benchmarks/prediction/fit.py): their common shapes reach 0.86
# and 0.82 of their best. Of other architectures those that nobody measured are Hopper's, as the
# nearest.
GENERIC = Coefficients()
# Passes over memory of devices whose other constants were fitted together with these, on whole
# steps: the later ones are of element-wise ops and norms of five cards in ``KERNELS``.
_BEFORE = replace(
    GENERIC, vector_fraction=0.35, overlap_loss=0.33, reread_exposed=0.0, vector_wave_loss=1.0
)
# Products: fitted for each card on half of its (n, k) pairs in ``KERNELS`` (Hopper's together with
# half of the products of the recorded H100 steps). 0.8 (7 nm), 0.6 and 1.4 pJ (4 nm) per FLOP:
# Hopper's tensor cores read their inputs from shared memory, Ada's through registers.
_PRODUCTS = replace(GENERIC, matrix_fraction=0.95, tile_edge=2.0, product_overlap_loss=0.2)
_HOPPER = replace(
    _PRODUCTS,
    matrix_fraction=0.986,
    float32_fraction=0.86,
    multicast=3.3,
    tile_elements=256 * 168,
    tile_edge=3.0,
    tile_fill_s=4.1e-6,
    tile_turn_s=0.9e-6,
    wave_loss=0.19,
    product_overlap_loss=0.176,
    vector_tile_edge=4.4,
    # Two products of 32 and 64 by 32768 x 32768 among the programs in ``KERNELS``: arithmetic and
    # writing add up.
    write_exposed=1.0,
    kernel_floor_s=1.65e-6,
    product_dram_fraction=0.946,
    matrix_energy_j=0.6e-12,
    trip_s=0.7e-6,
    index_instructions=45.0,
    dram_fraction=0.94,
    vector_fraction=0.35,
    overlap_loss=0.2,
    # FlashAttention-2 with heads of 128 over 512 to 16384 positions: 309 to 370 TFLOP/s, backward
    # 214 to 322 (Shah et al., "FlashAttention-3", 2024, figures 5 and 6).
    attention_fraction=0.57,
    attention_backward_fraction=0.41,
    attention_tile_s=1.8e-6,
    attention_fill_s=2.7e-6,
)
_CDNA_3 = replace(
    _BEFORE,
    matrix_fraction=0.42,
    dram_fraction=0.85,
    cache_fraction=0.25,
    tile_fill_s=4.2e-6,
    kernel_floor_s=3.8e-6,
    trip_s=0.7e-6,
    index_instructions=59.0,
    vector_fraction=0.8,
    attention_fraction=0.18,
    attention_fill_s=9.3e-6,
)
# Fitted on timm networks measured on an RTX 4090, benchmarks/prediction_timm, beside
# matrix_fraction (of the clock that GeForce cards reach, ``target.clock_gain``).
_ADA_GEFORCE = replace(
    _BEFORE,
    resident_threads=1536,
    matrix_fraction=0.90,
    unaligned_fraction=0.72,
    index_instructions=30.0,
    strided_fraction=0.6,
    dram_fraction=0.94,
)
# Float32 products of the five cards, fitted together on linear layers and batches in ``KERNELS``:
# the share of the peak, what small tiles lose, memory traffic of tiles. Small caches and GDDR lose
# most. 16 pJ per FLOP of float32 (12 nm) is the T4's sustained rate, 0.4 of its peak.
_PASCAL_PRODUCTS = replace(
    GENERIC,
    vector_tiles=_PASCAL,
    batched_tiles=((64, 128),),
    winograd_blocks=((1, 4, 8), (2, 4, 4), (2, 2, 8), (4, 1, 8), (4, 2, 4)),
    product_overlap_loss=0.2,
    row_trips=18,
)
TURING_FLOAT32_J = 16e-12
# 11.5 pJ per FLOP and 18 pJ per bit that a tile fetches: linear layers and batches of the T4 in
# ``KERNELS``, whose tiles differ (``power.energy_of_tiles``; 17 to 35 do alike).
TILE_ENERGY_EDGE = 25.0
# The P4's boost clock is 1.06 GHz, where GP104 reaches 1.73 GHz in the GTX 1080 (NVIDIA's white
# paper) at 1.05 V: so it runs at some 0.8 V, and energy goes with the voltage's square.
_P4_FLOAT32_J = 0.56 * TURING_FLOAT32_J
# TSMC states 0.4 of the power at the same speed from 16 to 7 nm and 0.7 from 7 to 5 nm.
TSMC_7_NM, TSMC_5_NM = 0.4, 0.7
_ADA_FLOAT32_J = TURING_FLOAT32_J * TSMC_7_NM * TSMC_5_NM
# Shares of the bandwidth: long element-wise streams of ``KERNELS`` (their time is a straight line
# over bytes to 0.5 %). GDDR with error correction in the same chips (P4, T4, L40S) gives less.
BY_ARCHITECTURE: dict[str, Coefficients] = {
    "Pascal GP100": replace(
        _PASCAL_PRODUCTS,
        cache_over_dram=2.0,
        reread_exposed=1.2,
        norm_slots=120.0,
        vector_split_fraction=0.6,
        dram_fraction=0.75,
        float32_fraction=0.99,
        vector_tile_edge=4.5,
        float32_convolution_fraction=0.72,
        vector_tile_fill_s=7.8e-6,
        scattered_fraction=0.36,
        drift_depth=21_000.0,
    ),
    "Pascal GP104": replace(
        _PASCAL_PRODUCTS,
        dram_fraction=0.755,
        float32_fraction=0.96,
        vector_tile_edge=5.5,
        float32_convolution_fraction=0.80,
        vector_tile_fill_s=14e-6,
        scattered_fraction=0.235,
        drift_depth=60_000.0,
        stagger=1.0,
        page_depth=200.0,
        float32_energy_j=_P4_FLOAT32_J,
        # Names of kernels in measured rows: tiles of 32x128 run only where k is cut.
        vector_tile_blocks=(8, 4, 0),
    ),
    "Volta": replace(
        GENERIC,
        matrix_fraction=0.85,
        dram_fraction=0.92,
        float32_fraction=0.97,
        tile_edge=2.0,
        float32_convolution_fraction=0.84,
        vector_tile_edge=1.33,
        product_overlap_loss=0.2,
        product_dram_fraction=0.67,
        tile_fill_s=8.8e-6,
        vector_tile_fill_s=5.9e-6,
        vector_tile_elements=64 * 64,
        scattered_fraction=0.87,
        drift_depth=175_000.0,
        batched_tiles=((64, 64), (32, 128), (128, 32)),
    ),
    "Turing": replace(
        GENERIC,
        resident_threads=1024,
        row_trips=8,
        matrix_fraction=0.80,
        dram_fraction=0.75,
        float32_fraction=0.85,
        product_overlap_loss=0.2,
        float32_convolution_fraction=0.90,
        vector_tile_edge=14.5,
        vector_tile_fill_s=10e-6,
        scattered_fraction=0.55,
        page_depth=50.0,
        drift_depth=60_000.0,
        float32_energy_j=TURING_FLOAT32_J,
        energy_edge=TILE_ENERGY_EDGE,
        vector_tiles=((128, 128), (64, 128), (64, 64), (128, 32)),
        batched_tiles=((64, 64), (64, 128), (32, 128)),
    ),
    "Ampere": replace(GENERIC, matrix_fraction=0.87, resident_threads=1536),
    "Ampere GA100": replace(
        _PRODUCTS,
        matrix_fraction=0.985,
        tile_edge=3.3,
        tile_fill_s=4.3e-6,
        tile_turn_s=3.7e-6,
        product_overlap_loss=0.14,
        product_dram_fraction=0.79,
        matrix_energy_j=0.8e-12,
        dram_fraction=0.89,
        # Causal FlashAttention-2 in ``KERNELS``.
        attention_fraction=0.777,
        attention_fill_s=8.8e-6,
        attention_tile_s=3.4e-6,
        row_trips=12,
        reread_exposed=1.0,
        float32_fraction=0.97,
        vector_tile_fill_s=0.4e-6,
        float32_convolution_fraction=0.66,
        winograd_tiles=((128, 128),),
        winograd_blocks=((1, 4, 8), (4, 4, 2)),
        scattered_fraction=0.6,
        vector_tile_edge=4.0,
        drift_depth=5_000.0,
        batched_tiles=((128, 128),),
    ),
    "Ada": replace(
        _PRODUCTS,
        resident_threads=1536,
        unaligned_fraction=0.72,
        index_instructions=30.0,
        strided_fraction=0.6,
        matrix_fraction=0.85,
        multicast=3.0,
        tile_elements=15_800,
        tile_edge=2.8,
        tile_fill_s=2.8e-6,
        tile_turn_s=2.95e-6,
        wave_loss=0.37,
        product_overlap_loss=0.174,
        product_dram_fraction=0.843,
        matrix_energy_j=1.4e-12,
        float32_energy_j=_ADA_FLOAT32_J,
        energy_edge=TILE_ENERGY_EDGE,
        # As Volta's: its cache is larger than that of any card that was measured in float32.
        drift_depth=175_000.0,
        dram_fraction=0.83,
    ),
    "Ada half-rate": _ADA_GEFORCE,
    "Hopper": _HOPPER,
    "Blackwell": _HOPPER,
    # The energy of Ada's tensor cores, as the nearest: the same node and the same instructions.
    "RTX Blackwell": replace(
        _BEFORE, resident_threads=1536, matrix_fraction=0.90, matrix_energy_j=1.4e-12
    ),
    # The CDNA 2's, as the nearest.
    "CDNA 1": replace(_CDNA_3, matrix_fraction=0.63, cache_fraction=0.6),
    "CDNA 2": replace(_CDNA_3, matrix_fraction=0.63, cache_fraction=0.6),
    "CDNA 3": _CDNA_3,
    "CDNA 4": replace(_CDNA_3, matrix_fraction=0.56),
}


def coefficients_of(sheet: DeviceSheet | None) -> Coefficients:
    """The coefficients of a device's architecture; general ones where it has none of its own.

    "Ada half-rate" and the like take those of the architecture that the name begins with.
    """
    family = family_of(sheet)
    return GENERIC if family is None else BY_ARCHITECTURE[family]


def family_of(sheet: DeviceSheet | None) -> str | None:
    """The architecture whose coefficients a device takes; ``None`` where it takes general ones."""
    name = sheet.architecture if sheet is not None else ""
    return of_architecture({key: key for key in BY_ARCHITECTURE}, name)
