"""Every fix, in the order in which they are listed, considered and applied."""

from __future__ import annotations

from gobrrr.fixes.advice import (
    KV_CACHE,
    PADDED_SHAPES,
    REMOVE_SYNCS,
    REUSE,
    TRITON_KERNEL,
)
from gobrrr.fixes.allocator import GLIBC_TUNABLES, JEMALLOC, TCMALLOC
from gobrrr.fixes.attention.attention import FUSED_ATTENTION
from gobrrr.fixes.attention.dropout import ATTENTION_DROPOUT
from gobrrr.fixes.attention.layout import ATTENTION_LAYOUT
from gobrrr.fixes.channels_last import CHANNELS_LAST
from gobrrr.fixes.compilation.aot_inductor import AOT_INDUCTOR
from gobrrr.fixes.compilation.compile import COMPILE_FIXES
from gobrrr.fixes.compilation.cuda_graph import CUDA_GRAPH
from gobrrr.fixes.compilation.memory_budget import MEMORY_BUDGET_FIXES
from gobrrr.fixes.data_loading import LOADER_WORKERS, PINNED_MEMORY
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.generation import GENERATE_CACHE
from gobrrr.fixes.gradients import CHECKPOINTING, NO_CHECKPOINTING, SET_TO_NONE, UNUSED_GRADIENTS
from gobrrr.fixes.inference_mode import INFERENCE_MODE
from gobrrr.fixes.larger_batch import LARGER_BATCH
from gobrrr.fixes.optimizers import FOREACH_OPTIMIZER, FUSED_OPTIMIZER
from gobrrr.fixes.parametrizations import FIXED_PARAMETRIZATIONS
from gobrrr.fixes.patterns.layout_copies import LAYOUT_COPIES
from gobrrr.fixes.patterns.loops import VECTORISE_LOOP
from gobrrr.fixes.patterns.recurrence import FUSED_RNN
from gobrrr.fixes.patterns.training_by_hand import ONE_BACKWARD, OPTIMIZER_BY_HAND
from gobrrr.fixes.patterns.unneeded_work import CONSTANTS_EACH_STEP, TOPK, UNREAD_RESULTS
from gobrrr.fixes.patterns.written_out import LOOK_UP, SOFTMAX_BY_HAND
from gobrrr.fixes.precision.autocast import BF16_AUTOCAST, FP16_AUTOCAST
from gobrrr.fixes.precision.precision import BF16_MATMUL, BF16_STORAGE, FP8, TF32
from gobrrr.fixes.precision.single_precision import FLOAT32
from gobrrr.fixes.precision.weight_only import INT8_WEIGHTS
from gobrrr.fixes.sparse_gradients import SPARSE_GRADIENTS
from gobrrr.fixes.threads import ALL_THREADS, ONE_THREAD

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
    SPARSE_GRADIENTS,
    FIXED_PARAMETRIZATIONS,
    FLOAT32,
    UNREAD_RESULTS,
    CONSTANTS_EACH_STEP,
    TOPK,
    LAYOUT_COPIES,
    FUSED_RNN,
    OPTIMIZER_BY_HAND,
    ONE_BACKWARD,
    ATTENTION_DROPOUT,
    ATTENTION_LAYOUT,
    SOFTMAX_BY_HAND,
    LOOK_UP,
)
