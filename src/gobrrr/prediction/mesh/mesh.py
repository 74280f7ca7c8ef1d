"""A mesh of devices: how many there are along each dimension, and which ranks form its groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul

from gobrrr.devices.datasheet import HERE
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.collectives import (
    Collective,
    CollectiveTime,
    Group,
    HostLink,
    collective_time,
)
from gobrrr.prediction.mesh.pipeline_schedule import Schedule
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall
from gobrrr.timeline.quantities import prefixed

# From the outermost to the innermost: neighbours in rank talk most, as torchtitan orders them
# (https://github.com/pytorch/torchtitan, ``ParallelDims``).
DIMENSIONS = ("pp", "dp", "fsdp", "tp")
_EXAMPLE = "dp=8, or fsdp=8,tp=2"
# Beyond NCCL's own time for a hop between hosts (its tuner's hwLatencies, NET: 2.7 to 14 us by
# protocol, ``mesh.collective_protocols``), which is that of InfiniBand in one room: nothing.
NETWORK_LATENCY_S = 0.0
# Light goes once around the earth in 0.13 s.
MOST_LATENCY_S = 1.0
# Far more than any job has: what is typed by mistake is not worked on for hours.
MOST_DEVICES = 1 << 20
_LINK = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*([KMGT]?)(bit|b|B)(?:/s|ps)?")
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)\s*([nmu\u00b5\u03bc])s")
_SECONDS_OF = {"n": 1e-9, "m": 1e-3}


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices along each dimension, and the hosts that they are spread over evenly.

    ``dp``: copies of the model, each with data of its own (DDP); ``fsdp``: the same, with
    parameters, gradients and optimizer state sharded over them (FSDP2); ``tp``: devices that share
    each layer (tensor parallelism); ``pp``: stages, each with a part of the layers (a pipeline).
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    hosts: int = 1
    pp: int = 1

    def __str__(self) -> str:
        given = [f"{name}={size}" for name, size in self.sizes.items() if size > 1]
        return ",".join(given) or "one device"

    @property
    def sizes(self) -> dict[str, int]:
        """Devices along each dimension, outermost first."""
        return {"pp": self.pp, "dp": self.dp, "fsdp": self.fsdp, "tp": self.tp}

    @property
    def devices(self) -> int:
        """Of the whole mesh."""
        return prod(self.sizes.values())

    @property
    def per_host(self) -> int:
        """Devices of each host."""
        return self.devices // self.hosts

    @property
    def data_ranks(self) -> int:
        """How many batches the job works on at a time."""
        return self.dp * self.fsdp

    def ranks(self, dimension: str) -> tuple[int, ...]:
        """The first rank's group along a dimension."""
        inner = list(self.sizes)[list(self.sizes).index(dimension) + 1 :]
        stride = prod(self.sizes[name] for name in inner)
        return tuple(range(0, self.sizes[dimension] * stride, stride))

    def hosts_of(self, ranks: Sequence[int]) -> int:
        """Over how many hosts a group stretches."""
        return len({rank // self.per_host for rank in ranks})


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The mesh to predict, and what links its hosts; ``None`` where that is not known.

    ``microbatches`` and ``schedule``: of a pipeline; the captured batch is one microbatch.
    ``compiled``: what ``torch.compile`` would make of each block.
    """

    mesh: Mesh
    link: HostLink | None = None
    microbatches: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    compiled: bool = False


def parse_mesh(text: str, hosts: int = 1) -> Mesh:
    """``"fsdp=8,tp=2"`` -> a mesh.

    Raises:
        InputError: it is no mesh, or its devices cannot be spread evenly over the hosts.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if name in DIMENSIONS and size.startswith("-") and size[1:].isdecimal():
            raise InputError(f"{name}={size}: a dimension of a mesh is at least 1")
        if not equals or not size.isdecimal():
            raise InputError(f"{part.strip()!r} is not part of a mesh: give --mesh {_EXAMPLE}")
        if name not in DIMENSIONS:
            raise InputError(f"a mesh has no dimension {name!r}; it has {', '.join(DIMENSIONS)}")
        if name in sizes:
            raise InputError(f"{name} is given twice in the mesh {text!r}")
        if int(size) < 1:
            raise InputError(f"{name}={size}: a dimension of a mesh is at least 1")
        sizes[name] = int(size)
    if prod(sizes.values()) > MOST_DEVICES:
        raise InputError(
            f"{text!r} is {prod(sizes.values()):,} devices: a mesh has {MOST_DEVICES:,} at the most"
        )
    return spread(Mesh(**sizes), hosts)


def spread(mesh: Mesh, hosts: int) -> Mesh:
    """The mesh on so many hosts.

    Raises:
        InputError: its devices do not divide among them.
    """
    if hosts < 1 or mesh.devices % hosts:
        raise InputError(
            f"{mesh.devices} devices ({mesh}) cannot be divided equally among {hosts} hosts"
        )
    return replace(mesh, hosts=hosts)


def refuse_uneven(mesh: Mesh) -> None:
    """Raises InputError where the groups of a dimension do not all lie alike on the hosts.

    Every rank waits for the group that crosses most hosts, and only the first rank's is looked at.
    A group and what is within it is so many neighbours in rank: they divide a host, or fill whole
    hosts.
    """
    inner = [*reversed(DIMENSIONS[1:])]
    neighbours = accumulate((mesh.sizes[name] for name in inner), mul)
    for at, ranks in enumerate(neighbours, 1):
        if mesh.per_host % ranks and ranks % mesh.per_host:
            sizes = {name: mesh.sizes[name] for name in DIMENSIONS if name in inner[:at]}
            raise InputError(
                f"the {ranks} neighbouring ranks of {Mesh(**sizes)} neither divide a host of "
                f"{mesh.per_host} devices nor fill whole hosts, so its groups would lie on hosts "
                "in different ways: give other sizes or another --hosts"
            )


def parse_link(text: str) -> HostLink:
    """What one host sends to others, all cards together: ``"8x400Gb"``, ``"50GB,20us"``.

    A small b is a bit, a large B a byte; both per second. After a comma, how long a message is on
    its way beyond NCCL's own time for a hop (``mesh.collectives.HostLink``).

    Raises:
        InputError: it is no rate, or what follows is no latency.
    """
    written, comma, way = text.partition(",")
    found = _LINK.fullmatch(written.strip())
    rate = 0.0
    if found is not None:
        cards, number, prefix, unit = found.groups()
        rate = int(cards or 1) * prefixed(float(number), prefix) / (1 if unit == "B" else 8)
    if not rate:
        raise InputError(
            f"{written!r} is not a bandwidth: give that of one host's network, such as 400Gb "
            "(gigabits per second), 8x400Gb or 50GB"
        )
    return HostLink(rate, _latency(way) if comma else NETWORK_LATENCY_S)


def _latency(text: str) -> float:
    found = _LATENCY.fullmatch(text.strip())
    seconds = None if found is None else float(found[1]) * _SECONDS_OF.get(found[2], 1e-6)
    if seconds is None or seconds > MOST_LATENCY_S:
        raise InputError(
            f"{text.strip()!r} is not the latency of a network: after the bandwidth give the time "
            "of one message between hosts, such as 400Gb,20us (ns, us or ms; at most 1 second)"
        )
    return seconds


def time_of(
    call: CollectiveCall, mesh: Mesh, device: TargetDevice, link: HostLink | None
) -> CollectiveTime:
    """How long a collective takes alone, all groups like it at work at the same time.

    Raises:
        InputError: the group is on several hosts and their link was not given, it has more ranks on
            one than on another, or the data sheet says nothing of the link between devices.
    """
    if device.sheet is None:
        raise InputError(f"{device.key} has no data sheet, so links between devices are unknown")
    hosts = mesh.hosts_of(call.ranks)
    if hosts > 1 and link is None:
        raise InputError(
            f"the group {call.group} of {mesh} spans {hosts} hosts: give the network bandwidth of "
            "one host, all its adapters together, with --link 400Gb"
        )
    on_hosts = Counter(rank // mesh.per_host for rank in call.ranks).values()
    if len(set(on_hosts)) > 1:
        raise InputError(
            f"the group {call.group} of {mesh} has {max(on_hosts)} ranks on one host and "
            f"{min(on_hosts)} on another: only groups spread evenly over hosts can be predicted"
        )
    if hosts > 1 and link is not None:
        # The other groups of the same dimension send through the same cards at the same time.
        groups = max(1, mesh.per_host * hosts // len(call.ranks))
        link = replace(link, bytes_per_s=link.bytes_per_s / groups)
    return collective_time(
        Collective(call.kind),
        call.n_bytes,
        Group(len(call.ranks), hosts),
        device.sheet,
        link if hosts > 1 else None,
    )


def link_of(call: CollectiveCall, mesh: Mesh) -> str:
    """What a collective transfers over: those that share it slow each other."""
    return "hosts" if mesh.hosts_of(call.ranks) > 1 else "devices"


def refuse_processor(name: str, kind: str = "") -> None:
    """Raises InputError for a device that forms no mesh."""
    if name == HERE or kind == "cpu":
        raise InputError(
            f"a mesh needs devices with links between them, and {name} is a CPU: give a GPU that "
            "gobrrr devices lists"
        )
