"""The least an operator must do: FLOPs by unit and bytes moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The three classes of Ivanov et al., "Data Movement Is All You Need" (MLSys 2021), and what moves
# or fetches data without arithmetic.
OpClass = Literal["contraction", "normalisation", "elementwise", "movement", "other"]


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one operator call.

    Attributes:
        matrix_flops: multiply-adds count two, on the matrix unit; ``None`` if unknown.
        vector_flops: everything else, transcendentals at their stated weight; ``None`` if unknown.
        special: evaluations of a transcendental (``work.weights.TRANSCENDENTALS``: exp, log, tanh,
            erf, sin, not division or square root) among ``vector_flops``.
        bytes_read: unique bytes read, from real dtypes and strides; ``None`` if unknown.
        bytes_written: unique bytes written; ``None`` if unknown.
        unique_bytes: bytes of distinct memory touched (an in-place op reads and writes the same
            bytes: they count once here). Decides which memory level can hold the op.
        compute_dtype: dtype the arithmetic is done in, ``"float32"``.
        op_class: one of the classes of ``OpClass``.
        fresh_bytes: bytes of newly allocated output (what a CPU must page-fault in).
    """

    matrix_flops: float | None
    vector_flops: float | None
    bytes_read: int | None
    bytes_written: int | None
    unique_bytes: int | None
    compute_dtype: str
    op_class: OpClass
    special: float = 0.0
    fresh_bytes: int = 0

    @property
    def flops(self) -> float | None:
        """All FLOPs; ``None`` if either part is unknown."""
        if self.matrix_flops is None or self.vector_flops is None:
            return None
        return self.matrix_flops + self.vector_flops

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written; ``None`` if either is unknown."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte; ``None`` if unknown or nothing moves."""
        flops, moved = self.flops, self.bytes_moved
        return None if flops is None or not moved else flops / moved
