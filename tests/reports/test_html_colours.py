"""The page's colours under simulated colour blindness, and its text against its background."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gobrrr.reports.html import read_asset

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
# (https://doi.org/10.1109/TVCG.2009.113, table 1).
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868],
         [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968],
         [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779],
         [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
REGIMES = ("compute", "memory", "overhead", "unmodelled")


def themes() -> dict[str, dict[str, str]]:
    css = read_asset("report.css")
    light = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{3,6})", css.split("@media", 1)[0]))
    block = re.search(r"data-theme=\"?dark\"?\]\{(.*?)\}", css)
    assert block
    dark = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]+)", block[1]))
    return {"light": light, "dark": light | dark}


def linear(colour: str) -> np.ndarray:
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    rgb = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    # sRGB to CIE XYZ to L*a*b*, D65 (IEC 61966-2-1 and CIE 15).
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratios = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_regimes_differ(theme: str, vision: str) -> None:
    colours = {name: lab(VISION[vision] @ linear(themes()[theme][name])) for name in REGIMES}
    for a, b in itertools.combinations(REGIMES, 2):
        # A difference of 2.3 is just noticeable (Mahy et al. 1994).
        assert np.linalg.norm(colours[a] - colours[b]) > 15, (a, b)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable(theme: str) -> None:
    # WCAG 2.2, 1.4.3: at least 4.5 to 1.
    colours = themes()[theme]

    def contrast(a: str, b: str) -> float:
        high, low = sorted(
            (float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colours[n])) for n in (a, b)),
            reverse=True,
        )
        return (high + 0.05) / (low + 0.05)

    for ink, ground in (
        ("ink", "page"), ("ink", "panel"), ("muted", "page"), ("muted", "panel"), ("link", "page"),
        ("on-compute", "compute"), ("on-memory", "memory"), ("on-overhead", "overhead"),
    ):  # fmt: skip
        assert contrast(ink, ground) >= 4.5, (ink, ground)
