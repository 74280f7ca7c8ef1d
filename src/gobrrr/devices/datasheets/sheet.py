"""One row of the data-sheet table: figures that a vendor states, each with where it is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["cuda", "hip", "xpu", "hpu", "mps", "xla", "cpu"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A stated number.

    Attributes:
        value: in the unit of the place where it stands.
        source: URL or document; the arithmetic where the number follows from stated ones.
    """

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache shared by the whole device.

    Attributes:
        name: ``l2`` or ``l3``.
        capacity_bytes: what it holds.
        bytes_per_s: reading; ``None`` where nobody states or has measured it. Only then does it
            take part in a roof.
        usable_bytes: the working set up to which a published sweep saw that rate, where it is
            less than the capacity; ``None`` otherwise.
    """

    name: str
    capacity_bytes: Figure
    bytes_per_s: Figure | None = None
    usable_bytes: Figure | None = None


@dataclass(frozen=True, slots=True)
class DeviceSheet:
    """What is known of a device that need not be here. Rates are dense, never sparse.

    Attributes:
        key: short name, ``"H100-SXM"``.
        name: the vendor's full name.
        vendor: ``"NVIDIA"``.
        architecture: generation; devices of one architecture share the ratios between dtypes.
        kind: PyTorch's device type (``hip`` devices are ``cuda`` to a program).
        driver_names: names under which drivers report it, as PyTorch shows them.
        aliases: further names that a user may type.
        matrix: FLOP/s by dtype of the inputs, accumulating in float32 (int32 for integers).
        vector: FLOP/s by dtype outside the matrix units, a fused multiply-add counting two;
            integer operations/s for integer dtypes.
        exp_per_s: evaluations/s of exp in float32 by the special-function units.
        memory_bytes: size of the device's memory.
        memory_bytes_per_s: its peak bandwidth.
        caches: from the smallest.
        multiprocessors: SMs, compute units, Xe cores.
        clock_hz: the clock behind ``vector``.
        matrix_clock_hz: the clock behind ``matrix``, where it is another.
        base_clock_hz: the clock that it keeps under any load within the board's power; ``None``
            where the vendor states the boost clock alone.
        interconnect: bytes/s, both directions together, by ``nvlink``, ``xgmi``, ``pcie``...
        link_peers: how many other devices its own link (not PCIe) is wired to: 1 for a bridge of
            two, 7 in a mesh of eight; ``None`` where a switch connects all of a host alike.
        kernel_fixed_s: time of the shortest kernel seen; ``None`` where none is published.
        board_power_w: what the board may draw (TDP, or the maximum of the board; for a part of a
            card its share); ``None`` where it is not stated or varies between products.
        note: what a reader must know, such as that PyTorch sees half a card.
    """

    key: str
    name: str
    vendor: str
    architecture: str
    kind: Kind
    driver_names: tuple[str, ...]
    matrix: Mapping[str, Figure]
    vector: Mapping[str, Figure]
    memory_bytes: Figure | None
    memory_bytes_per_s: Figure
    aliases: tuple[str, ...] = ()
    exp_per_s: Figure | None = None
    caches: tuple[Cache, ...] = ()
    multiprocessors: Figure | None = None
    clock_hz: Figure | None = None
    matrix_clock_hz: Figure | None = None
    base_clock_hz: Figure | None = None
    interconnect: Mapping[str, Figure] = field(default_factory=dict)
    link_peers: int | None = None
    kernel_fixed_s: Figure | None = None
    note: str = ""
    board_power_w: Figure | None = None
