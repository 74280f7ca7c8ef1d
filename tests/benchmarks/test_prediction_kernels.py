"""The benchmark of the kernel model: its bands, and what it says of a wrong folder."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.prediction_kernels.residuals import bands_of_others

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "benchmarks" / "prediction_kernels" / "run.py"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_folder_without_measured_ops_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    (tmp_path / "add_fp32_abacus.csv").write_text("ms,B,H\n1,2,3\n")
    out = tmp_path / "result.json"
    done = _run("--shared", str(tmp_path), "--out", str(out))
    assert done.returncode == 1
    assert "no measured ops in" in done.stderr and "OP_DTYPE_DEVICE.csv" in done.stderr
    assert not out.exists() and not done.stdout


def test_a_kind_that_nothing_is_of_is_an_error(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "add_fp32_t4.csv.gz", "wt") as stream:
        stream.write("ms,kernel,kernels,B,H\n0.1,k,k,1024,1024\n")
    done = _run("--shared", str(tmp_path), "--only", "T4 conv3d")
    assert done.returncode == 1
    assert "is of 'T4 conv3d'" in done.stderr


def test_bands_of_borrowed_constants_hold_devices_that_were_left_out() -> None:
    """Devices whose medians scatter: a band of the others holds about 8 in 10 of one's rows."""
    random = np.random.default_rng(0)
    kinds = ("linear fp32", "bmm fp32", "conv fp32", "softmax fp32", "ln fp32")
    held = []
    for _ in range(40):
        ratios = {
            (device, kind): list(np.exp(random.normal(random.normal(0, 0.2), 0.15, 40)))
            for device in ("P100-PCIe", "P4", "V100-PCIe", "T4", "A100-PCIe-40GB")
            for kind in kinds
        }
        for (device, kind), values in ratios.items():
            named = {
                "linear fp32": "products in float32",
                "bmm fp32": "batched products in float32",
            }
            if kind not in named:
                continue
            low, high, chips = bands_of_others(ratios, without=device)[named[kind]]
            assert chips == 4
            held.append(np.mean([low <= value <= high for value in values]))
    assert np.mean(held) == pytest.approx(0.8, abs=0.06)


def test_devices_of_one_chip_are_left_out_together() -> None:
    ratios = {
        (device, "linear fp32"): [1.0 + i / 100 for i in range(20)]
        for device in ("P100-PCIe", "T4", "A100-PCIe-40GB", "A100-PCIe-80GB")
    }
    assert bands_of_others(ratios)["products in float32"][2] == 3
    assert bands_of_others(ratios, without="A100-PCIe-80GB")["products in float32"][2] == 2
    # One chip tells nothing of a spread between chips.
    alone = {("T4", "linear fp32"): [1.0] * 20}
    assert bands_of_others(alone) == {}
