"""The operators that a capture finds beside those that a GPU was recorded to launch.

``tests/data/recorded_ops.json`` is read from profiler traces of an H100 by
``tests/data/extract_recorded_ops.py``; the same architectures are built here without their weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from gobrrr.symbolic.op_graph import capture_op_graph  # noqa: E402

from .test_op_graph import GPU  # noqa: E402

pytestmark = pytest.mark.torch

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "recorded_ops.json").read_text())
# What launches nothing.
VIEWS = frozenset(
    {
        "_unsafe_view", "alias", "as_strided", "detach", "empty", "expand", "lift_fresh", "permute",
        "select", "slice", "split", "squeeze", "t", "transpose", "unsqueeze", "view", "unbind",
        "_local_scalar_dense",
    }
)  # fmt: skip
# Operators under which the profiler saw others launch.
LAUNCHED = {
    "embedding": ("index_select",),
    "_to_copy": ("copy_",),
    "clone": ("copy_",),
    "_scaled_dot_product_flash_attention": ("_flash_attention_forward",),
}


def launched(model: Callable[[], Any], inputs: Callable[[], dict[str, Any]]) -> list[str]:
    """Names of the operators that would launch a kernel, in order."""

    def make() -> Callable[[], object]:
        with torch.device("meta"):
            network = model().to(torch.bfloat16).eval()
        given = inputs()

        def step() -> object:
            with torch.no_grad():
                return network(**given)

        return step

    graph = capture_op_graph(make, GPU)
    found: list[str] = []
    for op in graph.ops:
        name = op.call.name.removeprefix("aten::")
        if name in VIEWS:
            continue
        if name == "convolution":
            found += ["cudnn_convolution", *(["add_"] if op.call.args[2] is not None else [])]
        else:
            found += LAUNCHED.get(name, (name,))
    return found


def recorded(name: str) -> list[str]:
    return [op for op, count in RECORDED[name] for _ in range(count)]


def vit() -> tuple[Any, Any]:
    config = transformers.ViTConfig()
    return (
        lambda: transformers.ViTModel(config),
        lambda: {"pixel_values": torch.empty(4, 3, 224, 224, dtype=torch.bfloat16)},
    )


def bert() -> tuple[Any, Any]:
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    ids = torch.zeros(1, 141, dtype=torch.long)
    return (
        lambda: transformers.BertForMaskedLM(config),
        lambda: {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
    )


def qwen() -> tuple[Any, Any]:
    config = transformers.Qwen2Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24,
        num_attention_heads=16, num_key_value_heads=16,
    )  # fmt: skip
    ids = torch.zeros(16, 559, dtype=torch.long)
    return (
        lambda: transformers.Qwen2Model(config),
        lambda: {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False},
    )


def test_a_vision_transformer_is_what_was_recorded() -> None:
    assert launched(*vit()) == recorded("h100_vit_nsfw_inference")


def test_an_encoder_with_a_mask_of_ones_is_what_was_recorded() -> None:
    found, expected = launched(*bert()), recorded("h100_bert_small_inference")
    # The mask is looked at, and found to hide nothing. (How it is looked at, and how embeddings are
    # added, is another in each version of transformers; what the layers do is not.)
    assert "all" in found[: found.index("addmm")]
    assert "all" in expected[: expected.index("addmm")]
    assert found[found.index("addmm") :] == expected[expected.index("addmm") :]


def test_a_decoder_with_a_mask_of_ones_is_what_was_recorded() -> None:
    found, expected = launched(*qwen()), recorded("h100_qwen1.5_0.5b_inference")
    found, expected = found[found.index("pow") :], expected[expected.index("pow") :]
    # The version that was recorded made queries, keys, values and results contiguous: four copies
    # in each of 24 layers that the installed one does without.
    assert expected.count("copy_") - found.count("copy_") == 4 * 24
    without_copies = [[op for op in ops if op != "copy_"] for ops in (found, expected)]
    assert without_copies[0] == without_copies[1]
