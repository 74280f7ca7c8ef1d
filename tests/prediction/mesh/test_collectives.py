"""The model of collectives: what must hold of any, and times worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gobrrr.devices.datasheet import all_datasheets, find_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet, Figure
from gobrrr.devices.links import device_link
from gobrrr.prediction.mesh.collective_protocols import Protocol, chosen, terms
from gobrrr.prediction.mesh.collective_table import COEFFICIENTS
from gobrrr.prediction.mesh.collectives import (
    Collective,
    Group,
    HostLink,
    collective_time,
    way_of,
)
from gobrrr.timeline.errors import InputError

MIB = 1024**2
INFINIBAND = HostLink(200e9, 0.0)


def sheet_of(key: str) -> DeviceSheet:
    found = find_datasheet(key)
    assert found is not None
    return found


LINKED = [sheet for sheet in all_datasheets() if device_link(sheet, 2) is not None]
kinds = st.sampled_from(Collective)
sheets = st.sampled_from(LINKED)
sizes = st.integers(0, 2**33)
groups = st.sampled_from(
    [Group(2), Group(3), Group(4), Group(8), Group(16, 2), Group(64, 8), Group(4, 4), Group(72, 9)]
)


@given(kinds, sizes, sizes, groups, sheets)
def test_more_bytes_never_take_less(
    kind: Collective, a: int, b: int, group: Group, sheet: DeviceSheet
) -> None:
    less, more = sorted((a, b))
    first = collective_time(kind, less, group, sheet, INFINIBAND)
    second = collective_time(kind, more, group, sheet, INFINIBAND)
    assert first.seconds <= second.seconds


@given(kinds, sizes, groups, sheets)
def test_the_bus_stays_under_the_link(
    kind: Collective, n_bytes: int, group: Group, sheet: DeviceSheet
) -> None:
    found = collective_time(kind, n_bytes, group, sheet, INFINIBAND, dtype="int8")
    own = device_link(sheet, group.ranks // group.hosts)
    # All-to-all puts a part of its bytes on each link: the devices' own and the network's.
    rates = [own.bytes_per_s] if own and group.ranks > group.hosts else []
    if group.hosts > 1:
        rates.append(INFINIBAND.bytes_per_s)
    most = max(rates) if kind is Collective.ALL_TO_ALL else min(rates)
    assert found.bus_bytes_per_s <= most * 1.0000001


@given(kinds, sizes, groups, sheets)
def test_an_interval_holds_its_middle(
    kind: Collective, n_bytes: int, group: Group, sheet: DeviceSheet
) -> None:
    found = collective_time(kind, n_bytes, group, sheet, INFINIBAND)
    assert 0 < found.low_s < found.seconds < found.high_s


@given(kinds, sizes, st.sampled_from([4, 8, 16]), sheets)
def test_two_hosts_with_a_slower_link_are_never_faster_than_one(
    kind: Collective, n_bytes: int, ranks: int, sheet: DeviceSheet
) -> None:
    assume(sheet.link_peers is None)  # a mesh of all has more wires in use than its half
    # A tree across hosts has fewer hops than the ring of one host.
    assume(kind is not Collective.ALL_REDUCE or n_bytes >= MIB)
    own = device_link(sheet, ranks)
    assert own is not None
    one = collective_time(kind, n_bytes, Group(ranks), sheet, dtype="int8")
    slower = HostLink(own.bytes_per_s / 8, 1e-6)
    two = collective_time(kind, n_bytes, Group(ranks, 2), sheet, slower, dtype="int8")
    assert two.seconds >= one.seconds * 0.999


@given(kinds, sizes, st.sampled_from([Group(16, 2), Group(32, 4), Group(8, 8)]), sheets)
def test_a_faster_network_never_takes_longer_for_large_messages(
    kind: Collective, n_bytes: int, group: Group, sheet: DeviceSheet
) -> None:
    large = n_bytes + 256 * MIB
    times = [
        collective_time(kind, large, group, sheet, HostLink(rate, 2e-6)).seconds
        for rate in (12.5e9, 50e9, 200e9)
    ]
    assert times == sorted(times, reverse=True)


def test_one_rank_takes_no_time() -> None:
    found = collective_time(Collective.ALL_REDUCE, 1e9, Group(1), sheet_of("H100-SXM"))
    assert (found.seconds, found.low_s, found.high_s, found.bus_bytes_per_s) == (0, 0, 0, 0)
    assert found.algorithm == "none"


def test_a_large_all_gather_is_its_blocks_over_the_link() -> None:
    found = collective_time(Collective.ALL_GATHER, 512 * MIB, Group(8), sheet_of("A100-SXM"))
    a, fill, share = COEFFICIENTS["A100-SXM-80GB"]["SIMPLE"]
    # 12 links of 25 GB/s of which NCCL counts on 20: 240 GB/s; 7 blocks of an eighth are sent
    # and 0.44 of one copied; 7 hops; 512 of 512 + 16 MiB of the fill.
    by_hand = share * 512 * MIB * 7.44 / 8 / 240e9 + (a * 7**0.5 + fill * 512 / 528) * 1e-6
    assert found.seconds == pytest.approx(by_hand)
    assert found.algorithm == "ring, Simple"
    assert found.bus_bytes_per_s == pytest.approx(512 * MIB * 7 / 8 / by_hand)
    assert "all_gather of 512 MiB over 8 ranks (ring, Simple)" in found.arithmetic
    assert "nvlink gives 240 GB/s of 300 GB/s a direction" in found.arithmetic


def test_a_small_all_reduce_is_its_launch_and_hops() -> None:
    found = collective_time(Collective.ALL_REDUCE, 0, Group(4), sheet_of("H100-SXM"))
    launch, hop, _, _ = COEFFICIENTS["H100-SXM"]["LL"]
    assert found.seconds == pytest.approx((launch + 6 * hop) * 1e-6)  # 2 x 3 hops
    assert found.algorithm == "ring, LL"


def test_nccl_leaves_its_low_latency_protocol_where_it_was_seen_to() -> None:
    way, _ = way_of(Group(4), sheet_of("A100-SXM"), None)
    (first, end), *rest = chosen(Collective.ALL_GATHER, way, nvls=False)
    # Measured: 22.5 us at 1 MiB, 52.9 us at 2 MiB.
    assert first is Protocol.LL
    assert 1 * MIB < end < 2 * MIB
    assert rest[-1] == (Protocol.SIMPLE, float("inf"))


def test_the_switch_adds_up_on_hopper_and_not_integers_of_8_bits() -> None:
    args = (Collective.ALL_REDUCE, 512 * MIB, Group(8), sheet_of("H100-SXM"))
    assert collective_time(*args).algorithm == "NVLS"
    assert collective_time(*args, dtype="int8").algorithm == "ring, Simple"
    assert collective_time(*args).seconds < collective_time(*args, dtype="int8").seconds
    older = collective_time(Collective.ALL_REDUCE, 512 * MIB, Group(8), sheet_of("A100-SXM"))
    assert older.algorithm == "ring, Simple"


def test_a_switch_that_adds_up_is_sent_all_of_each_rank_and_one_sum() -> None:
    way, _ = way_of(Group(8), sheet_of("H100-SXM"), None)
    # Of 800 bytes: its own go out to be added, and its eighth of the sums to be spread.
    *_, link_s = terms(Protocol.NVLS, Collective.ALL_REDUCE, 800, way)
    assert link_s == pytest.approx((800 + 100) / way.bytes_per_s)


def test_eight_h100_reach_the_bus_bandwidth_that_others_measured() -> None:
    # 460 to 480 GB/s at 8 GB, by all_reduce_perf of nccl-tests, which counts 14 of 8 blocks
    # (docs.alayanew.com/en/docs/tech-blog/2026-05-06-nccl-tests); more than a link gives.
    found = collective_time(Collective.ALL_REDUCE, 8 * 1024 * MIB, Group(8), sheet_of("H100-SXM"))
    assert found.algorithm == "NVLS"
    assert 460e9 < 8 * 1024 * MIB * 14 / 8 / found.seconds < 480e9


def test_a_network_binds_a_ring_through_hosts() -> None:
    link = HostLink(25e9, 0.0)
    found = collective_time(Collective.ALL_GATHER, 1024 * MIB, Group(16, 2), sheet_of("A100"), link)
    # 15 of 16 blocks leave each host once: at most 0.92 of 25 GB/s.
    assert found.seconds > 1024 * MIB * 15 / 16 / 23e9
    assert found.seconds < 1.15 * 1024 * MIB * 15 / 16 / 23e9
    assert found.high_s >= 2 * found.seconds  # nothing was measured across hosts
    assert "on 2 hosts" in found.arithmetic


def test_small_all_reduces_cross_many_hosts_by_a_tree() -> None:
    found = collective_time(
        Collective.ALL_REDUCE, 1024, Group(256, 32), sheet_of("H100-SXM"), INFINIBAND
    )
    assert found.algorithm == "tree, LL"


def test_a_message_to_one_other_rank_is_sent_whole() -> None:
    a100 = sheet_of("A100-SXM")
    found = collective_time(Collective.SEND, 512 * MIB, Group(2), a100)
    assert found.seconds > 512 * MIB / 240e9
    assert found.bus_bytes_per_s == pytest.approx(512 * MIB / found.seconds)
    far = collective_time(Collective.SEND, 512 * MIB, Group(2, 2), a100, HostLink(25e9, 5e-6))
    assert far.seconds > 512 * MIB / 23e9


def test_devices_that_were_not_measured_are_known_less() -> None:
    def spread(key: str) -> float:
        found = collective_time(Collective.ALL_REDUCE, 64 * MIB, Group(8), sheet_of(key))
        return found.high_s / found.low_s

    assert spread("H200-SXM") == spread("H100-SXM")  # the same GPU and the same link
    assert spread("B200") > spread("H100-SXM")
    assert spread("L40S") > spread("B200")


def test_bridges_and_meshes() -> None:
    pcie = sheet_of("A100-PCIe-80GB")
    pair, more = device_link(pcie, 2), device_link(pcie, 4)
    assert pair is not None and (pair.name, pair.bytes_per_s) == ("nvlink", 300e9)
    assert more is not None and (more.text, more.bytes_per_s) == ("PCIe 4.0", 32e9)
    mesh = [device_link(sheet_of("MI300X"), ranks) for ranks in (2, 8)]
    assert [link and link.bytes_per_s for link in mesh] == [64e9, 448e9]
    assert [link and link.name for link in mesh] == ["xgmi", "xgmi"]


def test_what_cannot_be_told_is_one_sentence() -> None:
    a100 = sheet_of("A100-SXM")
    kind = Collective.ALL_REDUCE
    with pytest.raises(InputError, match="needs the link between them"):
        collective_time(kind, 1, Group(16, 2), a100)
    with pytest.raises(InputError, match="multiple of the hosts"):
        collective_time(kind, 1, Group(6, 4), a100, INFINIBAND)
    with pytest.raises(InputError, match="multiple of the hosts"):
        collective_time(kind, 1, Group(0), a100)
    with pytest.raises(InputError, match="not negative"):
        collective_time(kind, -1, Group(2), a100)
    with pytest.raises(InputError, match="bandwidth above 0"):
        collective_time(kind, 1, Group(4, 2), a100, HostLink(0.0, 0.0))
    bare = replace(a100, interconnect={"c2c": Figure(1e9, "nowhere")})
    with pytest.raises(InputError, match="states no link between devices"):
        collective_time(kind, 1, Group(2), bare)
    # One device a host needs no link of its own.
    assert collective_time(kind, 1, Group(2, 2), bare, INFINIBAND).seconds > 0
