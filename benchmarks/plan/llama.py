"""Training steps of decoders to plan for: Llama's architecture from its configuration class.

Parameters have shapes and no values (the meta device): nothing is downloaded or allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Of a decoder, and of the batch of one data-parallel rank (sequences, tokens of each)."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    batch: int
    length: int

    @property
    def parameters(self) -> int:
        """Embedding and head; attention, MLP and two norms of each layer; the last norm."""
        layer = 4 * self.width**2 + 3 * self.width * self.inner + 2 * self.width
        return 2 * self.vocabulary * self.width + self.layers * layer + self.width


# Llama 2 7B: https://arxiv.org/abs/2307.09288, table 1 and the published configuration.
SEVEN_BILLION = Sizes(32000, 4096, 11008, 32, 32, batch=1, length=4096)
# For --quick.
TINY = Sizes(1000, 256, 512, 4, 4, batch=2, length=128)


def seven_billion() -> Callable[[], None]:
    """A step of AdamW in bfloat16, 4,096 tokens a rank."""
    return _step(SEVEN_BILLION)


def tiny() -> Callable[[], None]:
    """The same of a small decoder."""
    return _step(TINY)


def _step(sizes: Sizes) -> Callable[[], None]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes.vocabulary, hidden_size=sizes.width, intermediate_size=sizes.inner,
        num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
        max_position_embeddings=sizes.length, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        tokens = torch.empty(sizes.batch, sizes.length, dtype=torch.long)
        targets = torch.empty(sizes.batch * sizes.length, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(tokens).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets).backward()
        optimizer.step()

    return step
