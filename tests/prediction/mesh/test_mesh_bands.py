"""Intervals of steps on a mesh: those of measured steps, and wider where none were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.prediction.kernels.residuals import ErrorBand
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.mesh.bands import (
    ANY,
    SOURCE,
    WHOLE_STEPS,
    kind_of,
    measured_band,
    turns,
    unmeasured_band,
    with_slow_host,
)
from gobrrr.prediction.mesh.costs import CostedMesh
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions
from gobrrr.prediction.mesh.step import mesh_band
from gobrrr.prediction.step.host import ANY_HOST, KNOWN_HOST, HostShare
from gobrrr.prediction.step.host_lane import TYPICAL_HOST

ROOT = Path(__file__).resolve().parents[3]
REPLAYED = ErrorBand(0.95, 1.05, "kernels and collectives")
WIDE = ErrorBand(0.3, 3.0, "kernels and collectives")
A100 = "A100-SXM-80GB"


def test_intervals_are_those_of_the_result_file() -> None:
    found = json.loads((ROOT / SOURCE).read_text())["intervals"]
    for kind, ends in WHOLE_STEPS.items():
        stated = found["whole_steps"][kind]
        assert ends == (stated["low"], stated["high"])
        assert stated["models"] > 1
        assert ends[0] <= 1 <= ends[1]
    # Hosts of those steps are among those that an interval reaches up to.
    assert found["host_over_ops"]["stated"] < ANY_HOST[1]
    # The multiple would mean nothing if it were not nearly the same for all of them.
    assert found["host_over_ops"]["stated"] < 1.5 * found["host_over_ops"]["median"]


@pytest.mark.parametrize(
    ("mesh", "kind"),
    [
        (Mesh(fsdp=8), "shards on one host"),
        (Mesh(fsdp=16, hosts=2), "shards on several hosts"),
        (Mesh(tp=2, dp=4), "tensor"),
        (Mesh(tp=4, dp=2), "tensor"),
        (Mesh(pp=8), ""),
        (Mesh(tp=16), ""),
        (Mesh(pp=4, tp=2), "pipeline"),
        (Mesh(dp=8), ""),
        (Mesh(dp=2, fsdp=4), ""),
        (Mesh(fsdp=4, tp=2), ""),
        (Mesh(pp=4, dp=4, hosts=2), ""),
    ],
)
def test_meshes_are_of_the_kinds_that_were_measured_or_of_none(mesh: Mesh, kind: str) -> None:
    assert kind_of(mesh) == kind


def test_what_was_measured_has_the_interval_of_whole_steps() -> None:
    found = measured_band(Mesh(fsdp=8), A100)
    assert found is not None
    assert (found.low, found.high) == WHOLE_STEPS["shards on one host"]
    assert SOURCE in found.source


def test_steps_are_replayed_only_where_none_were_measured() -> None:
    nothing = CostedMesh((), {}, ())
    asked = Mesh(fsdp=8), target_device(A100), TYPICAL_HOST, 1.0
    assert mesh_band(nothing, *asked) == measured_band(Mesh(fsdp=8), A100)
    with pytest.raises(ValueError, match="no device to replay"):
        mesh_band(nothing, *asked, compiled=True)


def test_other_devices_have_the_wider_of_both_and_say_so() -> None:
    low, high = WHOLE_STEPS["tensor"]
    assert measured_band(Mesh(tp=8), "H100-SXM") is None
    found = unmeasured_band(Mesh(tp=8), "H100-SXM", REPLAYED)
    assert (found.low, found.high) == (min(low, 0.95), max(high, 1.05))
    assert "no step on H100-SXMs was measured" in found.source
    found = unmeasured_band(Mesh(tp=8), "H100-SXM", WIDE)
    assert (found.low, found.high) == (0.3, 3.0)


def host_of(total_s: float, *, known: bool = False) -> HostShare:
    high_s = (KNOWN_HOST if known else ANY_HOST)[1] * total_s
    return HostShare(total_s, 0.0, 0.9 * total_s, high_s, True, ())


def test_an_interval_reaches_up_to_a_step_with_a_slow_host() -> None:
    band, options = ErrorBand(0.9, 1.1, "whole steps"), MeshOptions(Mesh(tp=2))
    # The device's work is long: the host's is hidden however slow it is.
    assert with_slow_host(band, 1.0, host_of(1.0 / ANY_HOST[1]), options) == band
    slow = with_slow_host(band, 1.0, host_of(0.5), options)
    assert (slow.low, slow.high) == (0.9, pytest.approx(0.5 * ANY_HOST[1]))
    assert f"hosts that take {ANY_HOST[1]:.3g} times the assumed time" in slow.source
    known = with_slow_host(band, 1.0, host_of(0.9, known=True), options)
    assert known.high == pytest.approx(0.9 * KNOWN_HOST[1])


def test_stages_wait_for_each_others_hosts() -> None:
    options = MeshOptions(Mesh(pp=4), microbatches=8)
    assert turns(options) == pytest.approx((8 + 4 - 1) / 8)
    assert turns(MeshOptions(Mesh(dp=8))) == 1
    alone = with_slow_host(REPLAYED, 1.0, host_of(0.5), MeshOptions(Mesh(dp=8)))
    piped = with_slow_host(REPLAYED, 1.0, host_of(0.5), options)
    assert piped.high / alone.high == pytest.approx(turns(options))


def test_meshes_that_were_never_measured_are_wider_than_any() -> None:
    assert measured_band(Mesh(fsdp=8), A100, compiled=True) is None
    low, high = WHOLE_STEPS[ANY]
    for found in (
        unmeasured_band(Mesh(fsdp=4, tp=2), A100, REPLAYED),
        unmeasured_band(Mesh(fsdp=8), A100, REPLAYED, compiled=True),
    ):
        assert found.low < low
        assert found.high > high
        assert "was measured: the wider of" in found.source
