"""``generate()`` in a capture: as many decoding steps as the program asks for."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.models]

CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 10}])
def test_every_token_is_a_step(options: dict[str, Any]) -> None:
    config = transformers.LlamaConfig(
        vocab_size=120, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=48, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.randint(3, 100, (2, 8))
    graph = capture_op_graph(
        lambda: lambda: model.generate(tokens, max_new_tokens=5, **options), CPU
    )
    heads = [op for op in graph.ops if op.module == "lm_head" and op.call.name == "aten::mm"]
    assert len(heads) == 5
