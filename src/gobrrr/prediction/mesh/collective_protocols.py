"""Which algorithm and protocol NCCL runs a collective by, and what each one's time grows with.

NCCL takes, of all that it could do, what its own estimate says is fastest: a latency and bytes over
a bandwidth. The estimate is remade here from its source (``src/graph/tuning.cc`` and
``src/graph/topo.h`` of NCCL 2.28; figures of both are marked *tuner* below), because its choices
are what programs get, right or wrong: on two A100s an all-gather of 2 MiB takes twice the time of
one of 1 MiB, for that is where it leaves its low-latency protocol. How long what was chosen then
takes is measured (``collective_table``).

Protocols: *LL* sends 4 bytes of data with 4 of flag, needs no barrier and half of the bandwidth;
*LL128* 120 with 8; *Simple* whole chunks with a barrier each. Algorithms: *ring*; *tree* (across
hosts); *NVLS*, where the NVLink switch adds up (Hopper and later); *p2p*, sends to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import log2, sqrt

from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.devices.links import DeviceLink
from gobrrr.prediction.kernels.architectures import of_architecture

MICROSECOND = 1e-6
GB_PER_S = 1e9


class Collective(str, Enum):
    """What a group does together; ``SEND`` is one rank's to one other."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND = "send"

    def __str__(self) -> str:
        return self.value


class Protocol(str, Enum):
    """A way of NCCL to run a collective, with its algorithm where that is not a ring."""

    LL = "ring, LL"
    LL128 = "ring, LL128"
    SIMPLE = "ring, Simple"
    TREE_LL = "tree, LL"
    TREE_LL128 = "tree, LL128"
    TREE_SIMPLE = "tree, Simple"
    NVLS = "NVLS"
    P2P = "p2p"


RINGS = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
TREES = (Protocol.TREE_LL, Protocol.TREE_LL128, Protocol.TREE_SIMPLE)

# What of a link's stated bandwidth NCCL counts on (topo.h: SM70_NVLINK_BW and SM80_NVLINK_BW 20.0
# and SM90_NVLINK_BW 20.6 of 25 GB/s a link, SM86_NVLINK_BW 12.0 of 14.06, SM100_NVLINK_BW 40.1 of
# 50; PCI_BW 12.0 of 16). A100 and H100 nodes reach 0.97 to 1.0 of it, so it is what a link gives.
_NVLINK_SHARE = {
    "Volta": 0.80, "Ampere GA100": 0.80, "Ampere GA10x": 0.853, "Hopper": 0.824, "Blackwell": 0.802,
}  # fmt: skip
_LINK_SHARE = {"nvlink": 0.80, "xgmi": 0.70, "ethernet": 0.80, "pcie": 0.75}
# Of what a host's network interfaces state (tuner: 120 of 128 bytes, less the headers).
HOST_LINK_SHARE = 0.92


def usable_bytes_per_s(link: DeviceLink, sheet: DeviceSheet) -> float:
    """What collectives get of a link between devices, in one direction.

    xGMI: of a link's 64 GB/s 48 are usable, says AMD ("Understanding RCCL Bandwidth and xGMI
    Performance on AMD Instinct MI300X", rocm.blogs.amd.com), less what collectives lose of
    NVLink's. Ethernet between devices as old NVLink. Nothing was fitted on either.
    """
    share = _LINK_SHARE[link.name]
    if link.name == "nvlink":
        share = of_architecture(_NVLINK_SHARE, sheet.architecture) or share
    return link.bytes_per_s * share


@dataclass(frozen=True, slots=True)
class Way:
    """Who takes part, and what lies between them.

    Attributes:
        ranks, hosts: of the group; ranks are spread evenly.
        device_bytes_per_s: what a device sends to its neighbours on a host.
        host_bytes_per_s: what a host sends to others; ``None`` on one host.
        host_latency_s: of its interfaces and the network, beyond NCCL's own.
        pcie: whether devices have no link of their own.
        switched: whether a switch that can add up connects the devices.
        generation: 0 Volta and before, 1 Ampere and Ada, 2 Hopper, 3 Blackwell.
    """

    ranks: int
    hosts: int
    device_bytes_per_s: float
    host_bytes_per_s: float | None
    host_latency_s: float
    pcie: bool
    switched: bool
    generation: int

    @property
    def bytes_per_s(self) -> float:
        """Of a ring through all: every host is entered and left once, by all its interfaces."""
        if self.host_bytes_per_s is None:
            return self.device_bytes_per_s
        return min(self.device_bytes_per_s, self.host_bytes_per_s)


def steps_of(kind: Collective, ranks: int) -> int:
    """How often a block is sent on before the last rank has it."""
    return 2 * (ranks - 1) if kind is Collective.ALL_REDUCE else ranks - 1


# ---- NCCL's own estimate: microseconds, and bytes per second of the message ----------------------

# Tuner: baseLatencies and hwLatencies of rings, then trees; LL, LL128, Simple.
_BASE = {
    **dict(zip(RINGS, (6.6, 14.0, 8.4))), **dict(zip(TREES, (6.8, 14.0, 8.4))),
}  # fmt: skip
_HOP_NVLINK = {**dict(zip(RINGS, (0.6, 1.9, 3.4))), **dict(zip(TREES, (0.6, 1.25, 4.0)))}
_HOP_PCIE = {**dict(zip(RINGS, (1.0, 2.5, 5.7))), **dict(zip(TREES, (1.0, 1.9, 4.0)))}
HOP_NETWORK = {**dict(zip(RINGS, (2.7, 4.0, 14.0))), **dict(zip(TREES, (5.0, 8.5, 14.0)))}
# Tuner: llMaxBws of one host by generation; of two and of more hosts (of AMD processors).
_LL_ONE_HOST = (39.0, 87.7, 141.0, 282.0)
_LL_HOSTS = (22.5, 19.0)
# NVLS: what NCCL 2.27 chose on H100s (from 4 MiB, on 8 ranks and not on 4) is met by this latency
# and the tuner's efficiency of 0.85, less one channel of 16, both directions at once.
_NVLS_LATENCY = 38.0
_NVLS_SHARE = 0.85 * 15 / 16 * 2
_NVLS_RANKS = 5


def _estimates(kind: Collective, way: Way) -> Iterator[tuple[Protocol, float, float]]:
    n, hosts, rate = way.ranks, way.hosts, way.bytes_per_s
    between = 0 if hosts == 1 else steps_of(kind, hosts)
    steps = steps_of(kind, n)
    hop = _HOP_PCIE if way.pcie else _HOP_NVLINK
    ll = _LL_ONE_HOST[way.generation] if hosts == 1 else _LL_HOSTS[min(hosts, 3) - 2]
    link_us = way.host_latency_s / MICROSECOND
    for protocol in RINGS:
        if protocol is Protocol.LL128 and way.pcie:
            continue
        bus = {
            Protocol.LL: min(ll * GB_PER_S, rate / 2), Protocol.LL128: rate * 0.92,
            Protocol.SIMPLE: rate,
        }[protocol]  # fmt: skip
        latency = _BASE[protocol] + (steps - between) * hop[protocol]
        latency += between * (HOP_NETWORK[protocol] + link_us)
        yield protocol, latency, bus * n / steps
    if kind is not Collective.ALL_REDUCE:
        return
    if hosts > 1:
        for protocol in TREES:
            bus = {
                Protocol.TREE_LL: min(ll * GB_PER_S, rate * 0.92 / 3.8),
                Protocol.TREE_LL128: rate * 0.92 * 120 / 128, Protocol.TREE_SIMPLE: rate * 0.92,
            }[protocol]  # fmt: skip
            if protocol is Protocol.TREE_LL128 and way.pcie:
                continue
            far = 2 * log2(hosts) * (HOP_NETWORK[protocol] + link_us)
            yield protocol, _BASE[protocol] + 2 * (n // hosts - 1) * hop[protocol] + far, bus / 2
    elif way.switched and way.generation >= 2 and n >= _NVLS_RANKS:
        yield Protocol.NVLS, _NVLS_LATENCY, rate * _NVLS_SHARE * n / steps


def chosen(kind: Collective, way: Way, nvls: bool) -> list[tuple[Protocol, float]]:
    """The protocols that NCCL takes as messages grow, each with the bytes that its reign ends at.

    ``nvls``: whether a switch can add up elements of this dtype. The last one ends at infinity.
    """
    if kind in (Collective.ALL_TO_ALL, Collective.SEND):
        return [(Protocol.P2P, float("inf"))]
    options = [
        (protocol, latency * MICROSECOND, rate)
        for protocol, latency, rate in _estimates(kind, way)
        if nvls or protocol is not Protocol.NVLS
    ]
    protocol, latency, rate = min(options, key=lambda option: (option[1], -option[2]))
    found: list[tuple[Protocol, float]] = []
    while True:
        # The next to be fastest is the first line that crosses the present one.
        crossing = [
            ((other[1] - latency) / (1 / rate - 1 / other[2]), other)
            for other in options
            if other[2] > rate
        ]
        if not crossing:
            return [*found, (protocol, float("inf"))]
        end, after = min(crossing, key=lambda item: (item[0], -item[1][2]))
        found.append((protocol, end))
        protocol, latency, rate = after


# ---- What the time of each grows with: (seconds or a number) times a measured coefficient --------

# Sizes at which half of a way's one-off costs are there: more channels and threads are woken (LL),
# chunks grow to their full size (Simple, NVLS).
_WIDE_BYTES = 8 * 1024
_FILL_BYTES = 16 * 1024**2
_NVLS_FILL_BYTES = 32 * 1024**2
_P2P_WIDE_BYTES, _P2P_FILL_BYTES = 64 * 1024, 8 * 1024**2
# A rank's own block is copied from one buffer to the other while the ring turns: in blocks that are
# sent, what that costs (slopes of A100 and H100 nodes of 2, 4 and 8 ranks agree on it; under LL,
# where threads are the limit and not the link, it is one block).
_OWN_BLOCK = 0.44


def terms(protocol: Protocol, kind: Collective, n_bytes: float, way: Way) -> tuple[float, ...]:
    """What each coefficient of the protocol is multiplied by: counts, then seconds on the link.

    Ring, LL: launch, hops, breadth, link. LL128: launch, root of hops, link. Simple: root of hops,
    fill, link. NVLS: launch, fill, link. P2P: launch, doublings of ranks, breadth, fill, link.
    """
    n, rate = way.ranks, way.bytes_per_s
    if protocol is Protocol.P2P:
        return (
            1.0, log2(n), n_bytes / (n_bytes + _P2P_WIDE_BYTES),
            n_bytes / (n_bytes + _P2P_FILL_BYTES), _p2p_link_s(kind, n_bytes, way),
        )  # fmt: skip
    if protocol is Protocol.NVLS:
        # Each rank sends all it has and one sum, and receives as much.
        link_s = n_bytes * (1 + 1 / n) / rate
        return (1.0, n_bytes / (n_bytes + _NVLS_FILL_BYTES), link_s)
    steps = steps_of(kind, n)
    if protocol in TREES:
        near, blocks = 2 * (n // way.hosts - 1), 2.0
        own = 0.0
    else:
        # Broadcasts and reductions send the whole message through every rank.
        whole = kind in (Collective.BROADCAST, Collective.REDUCE)
        near = steps if way.hosts == 1 else steps - steps_of(kind, way.hosts)
        blocks, own = (1.0, 0.0) if whole else (steps / n, 1 / n)
    if protocol in (Protocol.LL, Protocol.TREE_LL):
        link_s = n_bytes * (blocks + own) / rate
        return (1.0, float(near), n_bytes / (n_bytes + _WIDE_BYTES), link_s)
    link_s = n_bytes * (blocks + _OWN_BLOCK * own) / rate
    if protocol in (Protocol.LL128, Protocol.TREE_LL128):
        return (1.0, sqrt(near), link_s)
    return (sqrt(near), n_bytes / (n_bytes + _FILL_BYTES), link_s)


def _p2p_link_s(kind: Collective, n_bytes: float, way: Way) -> float:
    n = way.ranks
    if kind is Collective.SEND:
        return n_bytes / way.bytes_per_s
    if way.host_bytes_per_s is None:
        return n_bytes * (n - 1 + _OWN_BLOCK) / n / way.device_bytes_per_s
    here = n // way.hosts
    inside = n_bytes * (here - 1 + _OWN_BLOCK) / n / way.device_bytes_per_s
    outside = here * n_bytes * (n - here) / n / way.host_bytes_per_s
    return max(inside, outside)


def network_s(protocol: Protocol, kind: Collective, way: Way) -> float:
    """What the hops from host to host take before bytes are counted (tuner: hwLatencies, NET)."""
    if way.hosts == 1:
        return 0.0
    if protocol is Protocol.P2P:
        return HOP_NETWORK[Protocol.SIMPLE] * MICROSECOND + way.host_latency_s
    hops = 2 * log2(way.hosts) if protocol in TREES else float(steps_of(kind, way.hosts))
    return hops * (HOP_NETWORK[protocol] * MICROSECOND + way.host_latency_s)
