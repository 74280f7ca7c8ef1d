from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("ray")

from fleet_making import write_ranks
from gobrrr.fleet.build import FleetOptions, build_fleet
from gobrrr.timeline.errors import InputError


def test_ray_finds_what_processes_find(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    (tmp_path / "run" / "rank7.json").write_text("{")
    here = build_fleet([str(tmp_path / "run")], tmp_path / "here", FleetOptions(workers=1))
    there = build_fleet([str(tmp_path / "run")], tmp_path / "there", FleetOptions(engine="ray"))
    assert there.runs == here.runs
    assert there.errors == here.errors


def test_an_address_without_a_cluster_is_said(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    options = FleetOptions(engine="ray", address="ray://127.0.0.1:1")
    with pytest.raises(InputError, match="no Ray cluster at"):
        build_fleet([str(tmp_path / "run")], tmp_path / "fleet", options)
