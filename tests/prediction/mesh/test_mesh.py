"""Meshes: how they are written, which ranks form a group, and what links it."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.mesh.collectives import Collective, Group, HostLink, collective_time
from gobrrr.prediction.mesh.mesh import (
    Mesh,
    link_of,
    parse_link,
    parse_mesh,
    refuse_uneven,
    time_of,
)
from gobrrr.prediction.options import mesh_options
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall

H100 = target_device("H100-SXM")


def test_a_mesh_is_written_as_its_dimensions() -> None:
    assert parse_mesh("dp=8") == Mesh(dp=8)
    assert parse_mesh("fsdp=8, tp=2", hosts=2) == Mesh(fsdp=8, tp=2, hosts=2)
    assert str(Mesh(fsdp=8, tp=2)) == "fsdp=8,tp=2"
    assert str(Mesh()) == "one device"


@pytest.mark.parametrize(
    ("text", "hosts", "said"),
    [
        ("8", 1, "'8' is not part of a mesh: give --mesh dp=8, or fsdp=8,tp=2"),
        ("dp=", 1, "'dp=' is not part of a mesh"),
        ("dp=-8", 1, "dp=-8: a dimension of a mesh is at least 1"),
        ("dp=2.5", 1, "'dp=2.5' is not part of a mesh"),
        ("dp=65536,tp=32", 1, r"is 2,097,152 devices: a mesh has 1,048,576 at the most"),
        ("dp=4", 0, r"4 devices \(dp=4\) cannot be divided equally among 0 hosts"),
        ("cp=4", 1, "a mesh has no dimension 'cp'; it has pp, dp, fsdp, tp"),
        ("dp=2,dp=4", 1, "dp is given twice"),
        ("dp=0", 1, "dp=0: a dimension of a mesh is at least 1"),
        ("dp=6", 4, r"6 devices \(dp=6\) cannot be divided equally among 4 hosts"),
    ],
)
def test_what_is_no_mesh_is_said_in_a_sentence(text: str, hosts: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_mesh(text, hosts)


def test_groups_of_the_innermost_dimension_are_neighbours() -> None:
    mesh = Mesh(dp=2, fsdp=4, tp=2, hosts=2)
    assert mesh.devices == 16
    assert mesh.per_host == 8
    assert mesh.data_ranks == 8
    assert mesh.ranks("tp") == (0, 1)
    assert mesh.ranks("fsdp") == (0, 2, 4, 6)
    assert mesh.ranks("dp") == (0, 8)
    assert [mesh.hosts_of(mesh.ranks(name)) for name in ("tp", "fsdp", "dp")] == [1, 1, 2]


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [("400Gb", 50e9), ("8x400Gb", 400e9), ("50GB", 50e9), ("100 Gbit/s", 12.5e9)],
)  # fmt: skip
def test_links_are_rates_of_a_host(text: str, bytes_per_s: float) -> None:
    assert parse_link(text).bytes_per_s == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(
    "text", ["fast", "NVLink", "InfiniBand", "400", "0Gb", "-1Gb", "", "20us", ",20us"]
)
def test_what_is_no_rate_is_said_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="is not a bandwidth"):
        parse_link(text)


@pytest.mark.parametrize(
    ("text", "latency_s"),
    [
        ("400Gb", 0.0), ("400Gb,20us", 20e-6), ("8x400Gb, 1.5 us", 1.5e-6), ("50GB,800ns", 8e-7),
        ("1Gb,0.2ms", 2e-4), ("400Gb,20\u00b5s", 20e-6), ("400Gb,0us", 0.0),
    ],
)  # fmt: skip
def test_a_link_has_a_latency_after_a_comma(text: str, latency_s: float) -> None:
    assert parse_link(text).latency_s == pytest.approx(latency_s)


@pytest.mark.parametrize(
    "text", ["400Gb,", "400Gb,fast", "400Gb,20", "400Gb,-1us", "400Gb,20s", "400Gb,1us,2us",
             "400Gb,5000ms", "400Gb,8x400Gb"],
)  # fmt: skip
def test_what_is_no_latency_is_said_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"is not the latency of a network: .*400Gb,20us"):
        parse_link(text)


def test_every_hop_between_hosts_takes_the_link_s_latency() -> None:
    mesh = Mesh(dp=2, hosts=2)
    call = CollectiveCall("all_reduce", 1 << 20, "dp", mesh.ranks("dp"))
    near, far = (
        time_of(call, mesh, H100, parse_link(text)).seconds for text in ("400Gb", "400Gb,20us")
    )
    # There and back again, whatever the algorithm.
    assert far - near == pytest.approx(2 * 20e-6)


def test_groups_that_send_at_the_same_time_share_the_cards_of_a_host() -> None:
    mesh = Mesh(dp=2, fsdp=8, hosts=2)
    link = HostLink(400e9, 0.0)
    call = CollectiveCall("all_reduce", 1 << 28, "dp", mesh.ranks("dp"))
    # Each of the 8 devices of a host is in another group of two.
    alone = collective_time(
        Collective.ALL_REDUCE,
        1 << 28,
        Group(2, 2),
        H100.sheet,
        HostLink(400e9 / 8, 0.0),  # type: ignore[arg-type]
    )
    assert time_of(call, mesh, H100, link) == alone
    assert link_of(call, mesh) == "hosts"


def test_one_group_over_all_devices_has_the_cards_to_itself() -> None:
    mesh = Mesh(dp=16, hosts=2)
    link = HostLink(400e9, 0.0)
    call = CollectiveCall("all_reduce", 1 << 28, "dp", mesh.ranks("dp"))
    alone = collective_time(Collective.ALL_REDUCE, 1 << 28, Group(16, 2), H100.sheet, link)  # type: ignore[arg-type]
    assert time_of(call, mesh, H100, link) == alone


def test_several_hosts_need_a_link() -> None:
    call = CollectiveCall("all_reduce", 1 << 20, "dp", (0, 1))
    with pytest.raises(InputError, match=r"the group dp of dp=2 spans 2 hosts.*--link"):
        time_of(call, Mesh(dp=2, hosts=2), H100, None)


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        # Hosts of 8: the first group is 0 to 2, the third 6 to 8.
        (Mesh(dp=8, fsdp=3, hosts=3), "the 3 neighbouring ranks of fsdp=3 neither divide a host"),
        (Mesh(dp=4, fsdp=3, tp=2, hosts=3), "the 6 neighbouring ranks of fsdp=3,tp=2 neither"),
        # 8 ranks on one host and 4 on another; the second group the other way round.
        (Mesh(dp=2, fsdp=12, hosts=3), "the 12 neighbouring ranks of fsdp=12 neither"),
        (Mesh(pp=8, dp=3, hosts=3), "the 3 neighbouring ranks of dp=3 neither"),
    ],
)
def test_groups_that_lie_on_hosts_in_different_ways_are_refused(mesh: Mesh, said: str) -> None:
    with pytest.raises(InputError, match=said):
        refuse_uneven(mesh)


@pytest.mark.parametrize(
    "mesh",
    [
        Mesh(dp=3, fsdp=8, hosts=3), Mesh(fsdp=24, hosts=3), Mesh(dp=3, fsdp=4, tp=2, hosts=3),
        Mesh(pp=3, fsdp=8, hosts=3), Mesh(dp=8, fsdp=3), Mesh(dp=2, fsdp=16, hosts=4),
    ],
)  # fmt: skip
def test_groups_that_divide_or_fill_hosts_are_not(mesh: Mesh) -> None:
    refuse_uneven(mesh)


def test_a_group_has_as_many_ranks_on_each_of_its_hosts() -> None:
    mesh, link = Mesh(dp=2, fsdp=12, hosts=3), HostLink(50e9, 0.0)
    call = CollectiveCall("all_gather", 1 << 28, "fsdp", mesh.ranks("fsdp"))
    with pytest.raises(InputError, match="has 8 ranks on one host and 4 on another"):
        time_of(call, mesh, H100, link)


def test_options_of_a_mesh_go_with_one() -> None:
    assert mesh_options(None, 1, None, compiled=False) is None
    with pytest.raises(InputError, match="--hosts applies to a mesh"):
        mesh_options(None, 2, None, compiled=False)
    with pytest.raises(InputError, match="--link applies to a mesh"):
        mesh_options(None, 1, "400Gb", compiled=False)
    with pytest.raises(InputError, match="--link is the bandwidth between hosts"):
        mesh_options("dp=8", 1, "400Gb", compiled=False)
    with pytest.raises(InputError, match="at least one microbatch, not 0"):
        mesh_options("pp=2", 1, None, compiled=False, microbatches=0)
    found = mesh_options("dp=8", 1, None, compiled=True)
    assert found is not None
    assert found.compiled
