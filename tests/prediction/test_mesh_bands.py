"""Intervals of steps on a mesh: those of measured steps, and wider where none were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.models.host_lane import TYPICAL_HOST
from gobrrr.models.residuals import ErrorBand
from gobrrr.models.target import target_device
from gobrrr.prediction.mesh import Mesh
from gobrrr.prediction.mesh_bands import (
    ANOTHER_DEGREE,
    ANY,
    SOURCE,
    WHOLE_STEPS,
    kind_of,
    measured_band,
    unmeasured_band,
)
from gobrrr.prediction.mesh_costs import CostedMesh
from gobrrr.prediction.mesh_step import mesh_band

ROOT = Path(__file__).resolve().parents[2]
REPLAYED = ErrorBand(0.95, 1.05, "kernels and collectives")
WIDE = ErrorBand(0.3, 3.0, "kernels and collectives")
A100 = "A100-SXM-80GB"


def test_intervals_are_those_of_the_result_file() -> None:
    found = json.loads((ROOT / SOURCE).read_text())["intervals"]
    for kind, (low, high) in WHOLE_STEPS.items():
        # Constants of kernels change now and then: within what nobody would notice.
        stated = found[kind]["low"], found[kind]["high"]
        assert (low, high) == pytest.approx(stated, abs=0.03)
        assert found[kind]["models"] > 1


@pytest.mark.parametrize(
    ("mesh", "kind"),
    [
        (Mesh(fsdp=8), "shards on one host"),
        (Mesh(fsdp=16, hosts=2), "shards on several hosts"),
        (Mesh(tp=2, dp=4), "tensor"),
        (Mesh(tp=4, dp=2), ""),
        (Mesh(pp=8), ""),
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


def test_another_number_of_ranks_that_share_a_layer_is_as_far_off_as_one_left_out() -> None:
    for mesh, device in ((Mesh(tp=4), A100), (Mesh(tp=4, pp=2, dp=2), "H100-SXM")):
        assert measured_band(mesh, device) is None
        found = unmeasured_band(mesh, device, REPLAYED)
        assert (found.low, found.high) == WHOLE_STEPS[ANOTHER_DEGREE]
    other = unmeasured_band(Mesh(pp=8, tp=4), A100, REPLAYED)
    assert (other.low, other.high) != WHOLE_STEPS[ANOTHER_DEGREE]


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
