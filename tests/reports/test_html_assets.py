"""What ships is what its sources build."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "assets"
BUILT = ROOT / "src" / "gobrrr" / "reports" / "html"
OUTPUTS = ("report.js", "report.css", "LICENSES.txt")


def test_built_assets_are_current(tmp_path: Path) -> None:
    if not (ASSETS / "node_modules" / "esbuild").is_dir():
        pytest.skip("assets/node_modules is not installed (make assets installs it)")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=ASSETS, check=True)
    for name in OUTPUTS:
        assert (tmp_path / name).read_text() == (BUILT / name).read_text(), name


def test_every_bundled_package_brings_its_licence() -> None:
    lock = json.loads((ASSETS / "package-lock.json").read_text())
    wanted = {
        path.removeprefix("node_modules/"): entry["version"]
        for path, entry in lock["packages"].items()
        if path.startswith("node_modules/d3-") and not entry.get("dev")
    }
    licences = (BUILT / "LICENSES.txt").read_text()
    # d3-scale brings d3-time-format and others; all that is named must be at the locked version.
    for name in ("d3-scale", "d3-hierarchy", "d3-shape", "d3-zoom", "d3-selection"):
        assert f"{name} {wanted[name]} (ISC)" in licences
