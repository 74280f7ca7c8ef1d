"""Model classes of diffusers as tiny networks with random weights; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.breadth.case import Program

MODELS: dict[str, Callable[[], Program]] = {}
