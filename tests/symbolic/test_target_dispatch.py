"""Operators with one kernel on CPUs and another on CUDA, from the tables that torch ships.

``native_functions.yaml`` comes with the wheel (``torchgen``): an operator that a GPU has a kernel
for and a CPU does not is captured as the GPU's, or stands here with the reason why it need not be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
torchgen = pytest.importorskip("torchgen")
yaml = pytest.importorskip("yaml")

from gobrrr.symbolic.target.kernels import WHOLE, Abilities, composites_of  # noqa: E402
from gobrrr.symbolic.target.recurrent import SHAPES  # noqa: E402

pytestmark = pytest.mark.torch

# Kernels of GPUs alone, by why a capture does right with them. A name ends in * for all that begin
# so; what a new version of torch adds is missing here, and the test says so.
REASONS: dict[str, tuple[str, ...]] = {
    "a composite that is replaced calls it": (
        "_cudnn_rnn", "_cudnn_rnn_backward", "_thnn_fused_*", "_scaled_dot_product_flash_*",
        "_scaled_dot_product_efficient_*", "_fused_rms_norm", "_fused_rms_norm_backward",
    ),
    "beneath an operator that is captured whole, with the same work": (
        "cudnn_convolution*", "miopen_convolution*", "miopen_depthwise_convolution",
        "_conv_depthwise2d", "conv_depthwise3d", "cudnn_batch_norm*", "miopen_batch_norm*",
        "miopen_rnn*", "cudnn_grid_sampler*", "_use_cudnn_ctc_loss*", "_cudnn_ctc_loss*",
        "_use_miopen_ctc_loss*", "miopen_ctc_loss*", "_flash_attention_*",
        "_efficient_attention_*", "_cudnn_attention_*",
    ),
    "only where the program, or a set-up step, calls it by name": (
        "_cudnn_rnn_flatten_weight", "_cudnn_init_dropout_state", "_masked_scale", "mm.dtype",
        "bmm.dtype", "addmm.dtype", "baddbmm.dtype", "cudnn_affine_grid_generator*", "_cslt_*",
        "_sparse_semi_structured_*", "_to_sparse_semi_structured", "_mixed_dtypes_linear",
        "_convert_weight_to_int4pack", "_weight_int4pack_mm", "batch_norm_*", "_philox_*",
        "_scaled_grouped_mm*", "record_stream", "_fill_mem_eff_dropout_mask_", "_triton_*",
    ),
    "off by default: cuDNN's attention is not preferred on most devices": (
        "_scaled_dot_product_cudnn_*",
    ),
    "captured as one operator; a CPU's kernel behind it is a loop": (
        "_foreach_*", "convolution_backward", "_chunk_cat", "_grouped_mm",
    ),
    "captured as one operator; a CPU has a kernel of it only in later versions": (
        "_scaled_mm_v2",
    ),
}  # fmt: skip


def kernels(entry: dict[str, Any]) -> set[str]:
    """The dispatch keys that an operator has kernels for."""
    return {key.strip() for keys in entry.get("dispatch") or {} for key in keys.split(",")}


def of_gpus_alone() -> list[str]:
    root = Path(torchgen.__file__).parent
    path = root / "packaged" / "ATen" / "native" / "native_functions.yaml"
    found = []
    for entry in yaml.safe_load(path.read_text()):
        keys = kernels(entry)
        name = entry["func"].partition("(")[0]
        # A structured operator has its kernels at its ``out`` variant.
        if "CUDA" in keys and "CPU" not in keys and not name.endswith(("out", "_out")):
            found.append(name)
    return found


def covers(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def test_every_kernel_of_gpus_alone_is_accounted_for() -> None:
    patterns = [pattern for group in REASONS.values() for pattern in group]
    found = of_gpus_alone()
    assert len(found) > 100
    missing = [name for name in found if not any(covers(p, name) for p in patterns)]
    assert missing == []


def test_every_reason_is_about_something() -> None:
    found = of_gpus_alone()
    patterns = [pattern for group in REASONS.values() for pattern in group]
    idle = [p for p in patterns if not any(covers(p, name) for name in found)]
    assert len(idle) < len(patterns) // 4  # names come and go with torch's versions


def test_composites_with_a_kernel_on_gpus_are_captured_whole() -> None:
    root = Path(torchgen.__file__).parent
    path = root / "packaged" / "ATen" / "native" / "native_functions.yaml"
    taken_apart = {
        "aten::" + entry["func"].partition("(")[0]
        for entry in yaml.safe_load(path.read_text())
        if {"CUDA", "CompositeImplicitAutograd"} <= (keys := kernels(entry)) and "CPU" not in keys
    }
    assert taken_apart <= WHOLE


def test_what_is_replaced_exists() -> None:
    names = [*composites_of(Abilities(frozenset(), frozenset())), *SHAPES]
    for name in names:
        packet, _, overload = name.partition(".")
        assert hasattr(getattr(torch.ops.aten, packet), overload or "default")
