"""Seconds that a collective takes on a group of devices.

The time is that of NCCL's algorithm and protocol for the size (``collective_protocols``), with the
cost of its launch, its hops and the link's share fitted on nodes of A100 and H100 GPUs
(``collective_table``, made by ``benchmarks/prediction_collectives``; its result file says how well
that holds and what it gives where nothing was fitted). Other NVIDIA GPUs get the constants of the
nearer of the two and their own link; RCCL's and HCCL's collectives are taken to run as NCCL's do.
Hops between hosts are NCCL's own latencies, the network's bandwidth is the caller's: nothing was
measured across hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.devices.datasheet import find_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.devices.links import DeviceLink, device_link
from gobrrr.prediction.kernels.architectures import of_architecture
from gobrrr.prediction.mesh.collective_protocols import (
    HOST_LINK_SHARE,
    RINGS,
    TREES,
    Collective,
    Protocol,
    Way,
    chosen,
    network_s,
    steps_of,
    terms,
    usable_bytes_per_s,
)
from gobrrr.prediction.mesh.collective_table import BANDS, COEFFICIENTS, UNMEASURED
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import binary_size, quantity, time_text

__all__ = [
    "Collective",
    "CollectiveTime",
    "Group",
    "HostLink",
    "collective_time",
]

# Architecture -> whose constants: those of its own generation or the next one down.
_PACE_OF = {"Hopper": "H100-SXM", "Blackwell": "H100-SXM"}
_DEFAULT_PACE = "A100-SXM-80GB"
# Nothing across hosts was measured: what the other tenants of a network and its routing do.
_ACROSS_HOSTS = (0.7, 2.0)
_INTEGERS_OF_8_BITS = ("int8", "uint8", "bool")


@dataclass(frozen=True, slots=True)
class Group:
    """Who takes part: ``ranks`` devices, spread evenly over ``hosts`` hosts."""

    ranks: int
    hosts: int = 1


@dataclass(frozen=True, slots=True)
class HostLink:
    """What connects a host to the others.

    Attributes:
        bytes_per_s: in one direction, all network interfaces of the host together. It is what the
            group has to itself: where several groups of a host communicate at the same time, each
            has its part.
        latency_s: of one message's way beyond NCCL's own (2.7 to 14 us a hop, by protocol):
            nothing for InfiniBand in one room, tens of microseconds for TCP.
    """

    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """What a collective takes once all ranks have come to it.

    Attributes:
        seconds: expected.
        low_s, high_s: where 8 of 10 measured times are to be expected.
        algorithm: such as ``ring, LL128``.
        bus_bytes_per_s: the bus bandwidth as NCCL's tests count it; 0 for one rank. It stays under
            the link's, save where the switch adds up (NVLS).
        arithmetic: all of that as a sentence.
    """

    seconds: float
    low_s: float
    high_s: float
    algorithm: str
    bus_bytes_per_s: float
    arithmetic: str


def collective_time(
    kind: Collective,
    n_bytes: float,
    group: Group,
    sheet: DeviceSheet,
    link: HostLink | None = None,
    *,
    dtype: str = "bfloat16",
) -> CollectiveTime:
    """The time of one collective by itself, nothing running beside it.

    Args:
        kind: what is done.
        n_bytes: as NCCL's own tests count them: the larger of a rank's two buffers. The gathered
            result of ``ALL_GATHER`` (ranks times what each gives), the whole input of
            ``REDUCE_SCATTER`` and of ``ALL_TO_ALL``, the one buffer of all others.
        group: who takes part; the ranks divide evenly over the hosts.
        sheet: the data sheet of the devices, all alike.
        link: the network between hosts; needed if there are several.
        dtype: of the elements. A switch does not add up integers of 8 bits.

    Raises:
        InputError: the group is none, its hosts have no link, or the devices have none.
    """
    if group.ranks < 1 or group.hosts < 1 or group.ranks % group.hosts:
        raise InputError(
            f"{group.ranks} ranks cannot be spread evenly over {group.hosts} hosts: "
            "give ranks that are a multiple of the hosts"
        )
    if n_bytes < 0:
        raise InputError(f"a collective of {n_bytes} bytes: give a size that is not negative")
    if group.ranks == 1:
        return CollectiveTime(0.0, 0.0, 0.0, "none", 0.0, f"{kind} of one rank: nothing to do")
    way, own = way_of(group, sheet, link)
    nvls = dtype not in _INTEGERS_OF_8_BITS
    pace = _pace_of(sheet)
    # A longer message never takes less: where NCCL changes to a way that is faster than it thought,
    # the end of the way before is a floor.
    seconds, begin, protocol = 0.0, 0.0, Protocol.P2P
    for option, end in chosen(kind, way, nvls):
        if begin > n_bytes:
            break
        protocol = option
        seconds = max(seconds, _seconds(option, kind, min(n_bytes, end), way, pace))
        begin = end
    low, high = _band(protocol, sheet, own, way)
    bus = n_bytes * _bus_blocks(kind, group.ranks) / seconds
    across = "" if group.hosts == 1 else f" on {group.hosts} hosts"
    return CollectiveTime(
        seconds,
        seconds * low,
        seconds * high,
        protocol.value,
        bus,
        f"{kind} of {binary_size(n_bytes)} over {group.ranks} ranks{across} ({protocol.value}): "
        f"{time_text(seconds)}, {quantity(bus, 'B/s')} on the bus; {_links_text(own, way)}"
        f"{_paced_as(sheet)}",
    )


def way_of(
    group: Group, sheet: DeviceSheet, link: HostLink | None
) -> tuple[Way, DeviceLink | None]:
    """What lies between the members of a group, and the link of the devices themselves.

    Raises InputError where a link is missing.
    """
    if group.hosts > 1 and link is None:
        raise InputError(
            f"a group over {group.hosts} hosts needs the link between them: say how fast it is"
        )
    here = group.ranks // group.hosts
    # One device a host: what connects it to others of its kind is not asked.
    own = device_link(sheet, here) if here > 1 else None
    if own is None and here > 1:
        raise InputError(
            f"the data sheet of {sheet.key} states no link between devices: "
            "collectives on it cannot be predicted"
        )
    across = None
    if group.hosts > 1 and link is not None:
        if link.bytes_per_s <= 0 or link.latency_s < 0:
            raise InputError(
                "the link between hosts needs a bandwidth above 0 and no negative time"
            )
        across = link.bytes_per_s * HOST_LINK_SHARE
    inside = float("inf") if own is None else usable_bytes_per_s(own, sheet)
    way = Way(
        ranks=group.ranks,
        hosts=group.hosts,
        device_bytes_per_s=inside,
        host_bytes_per_s=across,
        host_latency_s=0.0 if link is None or group.hosts == 1 else link.latency_s,
        pcie=own is not None and own.name == "pcie",
        switched=own is not None and own.name == "nvlink" and sheet.link_peers is None,
        generation=_generation(sheet),
    )
    return way, own


def _generation(sheet: DeviceSheet) -> int:
    name = sheet.architecture
    if name.startswith("Blackwell"):
        return 3
    if name.startswith("Hopper"):
        return 2
    return 0 if name.startswith(("Pascal", "Volta", "Turing")) else 1


def _paced_as(sheet: DeviceSheet) -> str:
    """Whose constants of NCCL are taken, where none of the card's own kind were measured."""
    measured = find_datasheet(_pace_of(sheet))
    if measured is not None and measured.architecture == sheet.architecture:
        return ""
    return f"; NCCL's own time as measured on {_pace_of(sheet)}"


def _pace_of(sheet: DeviceSheet) -> str:
    return of_architecture(_PACE_OF, sheet.architecture) or _DEFAULT_PACE


# Trees across hosts are made of the same sends as rings.
_SAME_AS = dict(zip(TREES, RINGS))
# PCIe's hops against NVLink's (NCCL's tuner: 1.0 of 0.6, 2.5 of 1.9 and 5.7 of 3.4 microseconds).
_PCIE_HOPS = {Protocol.LL: 1.67, Protocol.LL128: 1.32, Protocol.SIMPLE: 1.68, Protocol.P2P: 1.68}


def _seconds(protocol: Protocol, kind: Collective, n_bytes: float, way: Way, pace: str) -> float:
    ring = _SAME_AS.get(protocol, protocol)
    table = COEFFICIENTS[pace]
    coefficients = table.get(ring.name) or COEFFICIENTS["H100-SXM"][ring.name]
    *fixed, on_link_s = terms(protocol, kind, n_bytes, way)
    slower = _PCIE_HOPS[ring] if way.pcie else 1.0
    setup_us = slower * sum(c * term for c, term in zip(coefficients, fixed))
    return setup_us * 1e-6 + coefficients[-1] * on_link_s + network_s(protocol, kind, way)


def _bus_blocks(kind: Collective, ranks: int) -> float:
    """Bytes on the bus of a byte of the message, as NCCL's tests have it (PERFORMANCE.md)."""
    if kind in (Collective.BROADCAST, Collective.REDUCE, Collective.SEND):
        return 1.0
    return steps_of(kind, ranks) / ranks


def _band(
    protocol: Protocol, sheet: DeviceSheet, own: DeviceLink | None, way: Way
) -> tuple[float, float]:
    """Multiples of the expected time: a measured device's, else what leaving one out showed."""
    ring = _SAME_AS.get(protocol, protocol).name
    same = _of_measured(sheet)
    low, high = BANDS.get(same, {}).get(ring) or UNMEASURED[ring]
    if way.hosts > 1:
        return min(low, _ACROSS_HOSTS[0]), max(high, _ACROSS_HOSTS[1])
    if own is not None and own.name != "nvlink":
        # Host bridges and RCCL are not what was measured.
        return low / 1.5, high * 1.5
    return low, high


def _of_measured(sheet: DeviceSheet) -> str:
    """The key of the measured device with this one's GPU and link; its own if there is none."""
    measured = find_datasheet(_pace_of(sheet))
    if measured is not None and measured.architecture == sheet.architecture:
        links = [device_link(each, 2) for each in (measured, sheet)]
        stated = [(link.name, link.bytes_per_s) for link in links if link is not None]
        if len(set(stated)) == 1 and sheet.link_peers == measured.link_peers:
            return measured.key
    return sheet.key


def _links_text(own: DeviceLink | None, way: Way) -> str:
    parts = []
    if own is not None:
        parts.append(
            f"{own.text} gives {quantity(way.device_bytes_per_s, 'B/s')} of "
            f"{quantity(own.bytes_per_s, 'B/s')} a direction"
        )
    if way.host_bytes_per_s is not None:
        parts.append(f"a host's interfaces {quantity(way.host_bytes_per_s, 'B/s')}")
    return " and ".join(parts)
