"""The least work of an operator call: FLOPs by unit, and bytes moved.

Formulas register themselves when the package is imported; ``work_of`` looks one up.
"""

from __future__ import annotations

from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.formulas import (
    attention,
    attention_kernels,
    batch_norms,
    communication,
    composites,
    contractions,
    convolution,
    copies,
    gated,
    indexing,
    linear_algebra,
    losses,
    normalisations,
    optimizers,
    ordering,
    pointwise,
    pooling,
    quantised,
    random_numbers,
    recurrent,
    reductions,
    sharding,
    sparse,
    spectral,
    transformer_layers,
    views,
)
from gobrrr.work.fused import work_of_fused
from gobrrr.work.registry import (
    formula_names,
    has_formula,
    is_composite,
    register_work,
    unregister_work,
    work_of,
)

# Imported for the formulas that they register.
FORMULA_MODULES = (
    attention,
    attention_kernels,
    batch_norms,
    communication,
    composites,
    contractions,
    convolution,
    copies,
    gated,
    indexing,
    linear_algebra,
    losses,
    normalisations,
    optimizers,
    ordering,
    pointwise,
    pooling,
    random_numbers,
    quantised,
    recurrent,
    reductions,
    sharding,
    sparse,
    spectral,
    transformer_layers,
    views,
)

__all__ = [
    "FORMULA_MODULES",
    "OpClass",
    "Work",
    "formula_names",
    "has_formula",
    "is_composite",
    "register_work",
    "unregister_work",
    "work_of",
    "work_of_fused",
]
