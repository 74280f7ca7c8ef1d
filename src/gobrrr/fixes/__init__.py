"""Changes that make a step faster: one file each or one per family, all listed in ``FIXES``."""

from __future__ import annotations

from gobrrr.fixes.advice import (
    KV_CACHE,
    LARGER_BATCH,
    PADDED_SHAPES,
    REMOVE_SYNCS,
    REUSE,
    TRITON_KERNEL,
    VECTORISE_LOOP,
)
from gobrrr.fixes.allocator import GLIBC_TUNABLES, JEMALLOC, TCMALLOC
from gobrrr.fixes.aot_inductor import AOT_INDUCTOR
from gobrrr.fixes.attention import FUSED_ATTENTION
from gobrrr.fixes.channels_last import CHANNELS_LAST
from gobrrr.fixes.compilation import COMPILE_FIXES
from gobrrr.fixes.cuda_graph import CUDA_GRAPH
from gobrrr.fixes.data_loading import LOADER_WORKERS, PINNED_MEMORY
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix, Prospect, RuledOut
from gobrrr.fixes.generation import GENERATE_CACHE
from gobrrr.fixes.gradients import CHECKPOINTING, NO_CHECKPOINTING, SET_TO_NONE, UNUSED_GRADIENTS
from gobrrr.fixes.inference_mode import INFERENCE_MODE
from gobrrr.fixes.memory_budget import MEMORY_BUDGET_FIXES
from gobrrr.fixes.optimizers import FOREACH_OPTIMIZER, FUSED_OPTIMIZER
from gobrrr.fixes.precision import (
    BF16_AUTOCAST,
    BF16_MATMUL,
    BF16_STORAGE,
    FP8,
    FP16_AUTOCAST,
    TF32,
)
from gobrrr.fixes.threads import ALL_THREADS, ONE_THREAD
from gobrrr.fixes.weight_only import INT8_WEIGHTS

FIXES: tuple[Fix, ...] = (
    *COMPILE_FIXES,
    CUDA_GRAPH,
    AOT_INDUCTOR,
    INFERENCE_MODE,
    FUSED_OPTIMIZER,
    FOREACH_OPTIMIZER,
    SET_TO_NONE,
    LARGER_BATCH,
    LOADER_WORKERS,
    PINNED_MEMORY,
    REMOVE_SYNCS,
    VECTORISE_LOOP,
    ALL_THREADS,
    ONE_THREAD,
    FUSED_ATTENTION,
    CHANNELS_LAST,
    REUSE,
    TRITON_KERNEL,
    GLIBC_TUNABLES,
    JEMALLOC,
    TCMALLOC,
    BF16_STORAGE,
    INT8_WEIGHTS,
    GENERATE_CACHE,
    KV_CACHE,
    CHECKPOINTING,
    NO_CHECKPOINTING,
    *MEMORY_BUDGET_FIXES,
    TF32,
    BF16_MATMUL,
    BF16_AUTOCAST,
    FP16_AUTOCAST,
    FP8,
    PADDED_SHAPES,
    UNUSED_GRADIENTS,
)

__all__ = ["FIXES", "Facts", "Fix", "Prospect", "RuledOut"]
