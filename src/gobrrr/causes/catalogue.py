"""Every cause, in the order in which causes of equal weight are told."""

from __future__ import annotations

from gobrrr.causes.cause import Cause
from gobrrr.causes.code.interpreter_lock import INTERPRETER_LOCK
from gobrrr.causes.code.logging_each_step import (
    FSYNC_EACH_STEP,
    HISTOGRAMS_EACH_STEP,
    LOGGING_EACH_STEP,
    PROGRESS_BAR,
)
from gobrrr.causes.code.loop_over_modules import LOOP_OVER_MODULES
from gobrrr.causes.code.made_of_lists import TENSOR_OF_ARRAYS, TENSOR_OF_TENSOR
from gobrrr.causes.code.per_tensor_loop import OPTIMIZER_LOOP, PER_TENSOR_LOOP
from gobrrr.causes.code.recompilation import (
    RAGGED_LAST_BATCH,
    RECOMPILATION_LIMIT,
    RECOMPILATIONS,
)
from gobrrr.causes.code.repeated_casts import REPEATED_CASTS
from gobrrr.causes.code.subnormal_numbers import SUBNORMAL_NUMBERS
from gobrrr.causes.code.sync_in_loop import SYNC_IN_LOOP
from gobrrr.causes.code.tensor_from_python import TENSOR_FROM_PYTHON
from gobrrr.causes.code.unequal_work import UNEQUAL_WORK
from gobrrr.causes.loading.image_decoding import IMAGE_DECODING
from gobrrr.causes.loading.no_workers import NO_WORKERS
from gobrrr.causes.loading.padding import PADDING
from gobrrr.causes.loading.per_sample_loop import PER_SAMPLE_LOOP
from gobrrr.causes.loading.sample_by_sample import SAMPLE_BY_SAMPLE
from gobrrr.causes.loading.started_workers import STARTED_WORKERS
from gobrrr.causes.loading.tokenizer_forks import TOKENIZER_FORKS
from gobrrr.causes.loading.workers_in_memory import WORKERS_IN_MEMORY
from gobrrr.causes.memory.allocator_retries import ALLOCATOR_RETRIES_CAUSE
from gobrrr.causes.memory.collector import COLLECTED_BY_HAND, COLLECTOR
from gobrrr.causes.memory.concatenated_cache import CONCATENATED_CACHE, CONCATENATED_HISTORY
from gobrrr.causes.memory.heap_trim import HEAP_TRIM
from gobrrr.causes.memory.needless_checkpointing import NEEDLESS_CHECKPOINTING
from gobrrr.causes.settings.data_parallel import FIND_UNUSED_PARAMETERS, NO_SYNC
from gobrrr.causes.settings.evaluation_gradients import EVALUATION_GRADIENTS
from gobrrr.causes.settings.gpu_settings import CUDNN_BENCHMARK, EMPTY_CACHE
from gobrrr.causes.settings.modes_left_on import (
    DETECT_ANOMALY,
    DETERMINISTIC_MODE,
    PROFILER_LEFT_ON,
)
from gobrrr.causes.settings.slow_half_precision import SLOW_HALF_PRECISION
from gobrrr.causes.settings.small_micro_batches import SMALL_MICRO_BATCHES
from gobrrr.causes.settings.thread_count import MORE_THREADS, ONE_THREAD_BY_LAUNCHER

CAUSES: tuple[Cause, ...] = (
    MORE_THREADS,
    ONE_THREAD_BY_LAUNCHER,
    STARTED_WORKERS,
    WORKERS_IN_MEMORY,
    SAMPLE_BY_SAMPLE,
    IMAGE_DECODING,
    NO_WORKERS,
    TOKENIZER_FORKS,
    TENSOR_OF_ARRAYS,
    TENSOR_OF_TENSOR,
    TENSOR_FROM_PYTHON,
    SYNC_IN_LOOP,
    PADDING,
    CONCATENATED_CACHE,
    CONCATENATED_HISTORY,
    LOOP_OVER_MODULES,
    PER_SAMPLE_LOOP,
    NEEDLESS_CHECKPOINTING,
    NO_SYNC,
    FIND_UNUSED_PARAMETERS,
    UNEQUAL_WORK,
    COLLECTOR,
    COLLECTED_BY_HAND,
    INTERPRETER_LOCK,
    FSYNC_EACH_STEP,
    HISTOGRAMS_EACH_STEP,
    LOGGING_EACH_STEP,
    PROGRESS_BAR,
    EVALUATION_GRADIENTS,
    SUBNORMAL_NUMBERS,
    SLOW_HALF_PRECISION,
    REPEATED_CASTS,
    PER_TENSOR_LOOP,
    OPTIMIZER_LOOP,
    SMALL_MICRO_BATCHES,
    RECOMPILATION_LIMIT,
    RAGGED_LAST_BATCH,
    RECOMPILATIONS,
    DETECT_ANOMALY,
    PROFILER_LEFT_ON,
    DETERMINISTIC_MODE,
    EMPTY_CACHE,
    ALLOCATOR_RETRIES_CAUSE,
    CUDNN_BENCHMARK,
    HEAP_TRIM,
)
