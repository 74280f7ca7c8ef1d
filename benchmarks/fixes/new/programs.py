"""The new programs with their flaws and keys, as they were written before any of them was run.

Twenty-four have one flaw each, six have none. Their sizes and kinds are ones that no fix and no
constant was fitted on. A key holds every fix that removes the flaw itself, known then or not:

- A compiler is in a key where it removes the flaw by itself: it drops what is not read, lays
  convolutions out in channels-last order (``torch._inductor.config.layout_optimization``), runs a
  loop over time without Python. Not where it only makes the rest of the program faster.
- ``only_user``: the change needs the program's author; then the fix has to be ranked first and
  to name a line of the flaw.

A program or a key is not changed for what came out.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from program import Program

COMPILED = ("compile", "compile_cpp_wrapper", "compile_max_autotune", "compile_freezing",
            "aot_inductor")  # fmt: skip


def _of(file: str, name: str, flaw: str, *fixed_by: str, only_user: bool = False) -> Program:
    return Program(name, flaw, fixed_by, mended=f"{name}_mended", file=f"{file}.py",
                   only_user=only_user)  # fmt: skip


def _script(name: str, flaw: str, *fixed_by: str, only_user: bool = False) -> Program:
    return Program(name, flaw, fixed_by, "script", f"{name}_mended", only_user=only_user)


PROGRAMS: tuple[Program, ...] = (
    _of("inference", "float64_by_accident", "everything in float64", "float32"),
    _of("inference", "unread_head", "a result that nobody reads", "unread_results", *COMPILED),
    _of("inference", "scores_row_by_row", "a Python loop over rows", "vectorise_loop",
        only_user=True),
    _of("inference", "attention_in_einsum", "attention with a bias, written in einsum",
        "fused_attention"),
    _of("inference", "depthwise_images", "depthwise convolutions of NCHW tensors",
        "channels_last", *COMPILED),
    _of("inference", "sine_table_each_step", "a positional table computed again at each step",
        "constants_each_step", only_user=True),
    _of("inference", "band_each_step", "a band mask computed again at each step",
        "constants_each_step", only_user=True),
    _of("inference", "gradients_in_evaluation", "evaluation that records gradients",
        "inference_mode"),
    _of("inference", "weights_cast_each_step", "many small copies to another dtype",
        "constants_each_step", "compile_freezing", only_user=True),
    _of("inference", "recurrence_in_python", "a loop over time that a fused layer replaces",
        "fused_rnn", *COMPILED),
    _of("inference", "all_sorted_for_a_dozen", "sorting where the top is enough", "topk",
        only_user=True),
    _of("inference", "weight_norm_in_inference", "a weight norm computed again at each step",
        "fixed_parametrizations", "constants_each_step", "compile_freezing"),
    _of("inference", "spectral_norm_in_inference", "a spectral norm computed again at each step",
        "fixed_parametrizations", "constants_each_step", "compile_freezing"),
    _of("inference", "heads_copied_out", "views copied at each step", "layout_copies",
        only_user=True),
    _of("training", "dense_embedding_gradient", "a dense gradient of a large embedding",
        "sparse_gradients"),
    _of("training", "adagrad_by_hand", "Adagrad by hand, tensor by tensor",
        "optimizer_by_hand", only_user=True),
    _of("training", "nadam_tensor_by_tensor", "NAdam tensor by tensor",
        "foreach_optimizer", "compiled_optimizer"),
    _of("training", "lamb_by_hand", "LAMB by hand, tensor by tensor",
        "optimizer_by_hand", "compiled_optimizer", only_user=True),
    _of("training", "checkpointing_for_nothing", "activations computed twice for nothing",
        "no_checkpointing"),
    _of("training", "graph_kept_for_two_losses", "a graph kept and gone through twice",
        "one_backward", only_user=True),
    _script("prints_gradient_norms", ".item() and prints in the loop", "remove_syncs",
            only_user=True),
    _script("tokenises_in_main", "texts taken apart in the training process", "loader_workers"),
    _script("crowded_processors", "torch's threads and loader workers crowd the processors",
            "one_thread", "fewer_workers"),
    _script("one_thread_by_hand", "torch.set_num_threads(1) where there are two processors",
            "all_threads"),
    Program("spectrum", file="sound.py"),
    Program("eigenvalues", file="sound.py"),
    Program("sorted_keys", file="sound.py"),
    Program("fused_recurrence", file="sound.py"),
    Program("one_convolution", file="sound.py"),
    Program("compiled_training", file="sound.py"),
)  # fmt: skip
