"""Fixtures for all rooms: shared data and the skip rules of the job without torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
DATA = Path(__file__).parent / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs torch, a GPU or a model library where that is not installed."""
    no_torch = pytest.mark.skip(reason="torch is not installed")
    for item in items:
        needs_torch = any(item.get_closest_marker(name) for name in ("torch", "gpu", "models"))
        if needs_torch and not HAS_TORCH:
            item.add_marker(no_torch)
        elif item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA or ROCm device"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def no_formula_fails() -> Iterator[None]:
    """A formula that fails on a call recorded whole is a defect, whatever the test is about."""
    from gobrrr.work.registry import failed_formulas, forget_failures

    forget_failures()
    yield
    failed = failed_formulas()
    forget_failures()
    assert not failed


@pytest.fixture
def data() -> Path:
    """The folder of hand-written diagnoses."""
    return DATA
