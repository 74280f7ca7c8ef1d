"""Matrix FLOPs of a step, and the dtype whose peak they are held against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gobrrr.work.estimate import Work


class MatrixWork(NamedTuple):
    """FLOPs of matrix products in all dtypes; ``dtype`` does most of them, ``None`` without any."""

    flops: float
    dtype: str | None


def matrix_work(works: Iterable[tuple[Work, float]]) -> MatrixWork:
    """Of work and how often it is done (Chowdhery et al., "PaLM", appendix B)."""
    by_dtype: dict[str, float] = {}
    for work, times in works:
        if work.matrix_flops:
            done = by_dtype.get(work.compute_dtype, 0.0)
            by_dtype[work.compute_dtype] = done + work.matrix_flops * times
    most = max(by_dtype, key=lambda name: by_dtype[name], default=None)
    return MatrixWork(sum(by_dtype.values()), most)
