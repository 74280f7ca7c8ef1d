"""MPT's training step as a PyTorch program that shards its model itself: what is captured.

Written after llm-foundry's models (``llmfoundry/models``), as the README beside the measured rows
describes them: pre-norm decoder blocks, learned positions, biases, an MLP of four widths, tied
embeddings. What differs from the measured program, and what neither says, is in README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import fsdp
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

# ``gradient_clipping`` of llm-foundry's recipes, by norm.
CLIP_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Network:
    """The shape of a decoder: widths in elements, ``length`` in tokens."""

    width: int
    heads: int
    layers: int
    vocabulary: int
    length: int


class RowsTaken(torch.autograd.Function):
    """``IndexFirstAxis`` of flash-attn 1 (flash_attn/bert_padding.py): rows without padding.

    Forward ``torch.gather`` by an index that is expanded along the rows, backward ``scatter_``.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = rows.shape[0]
        return torch.gather(rows, 0, index[:, None].expand(-1, rows.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        whole = grad.new_zeros(ctx.rows, grad.shape[1])
        whole.scatter_(0, index[:, None].expand(-1, grad.shape[1]), grad)
        return whole, None


class RowsPut(torch.autograd.Function):
    """``IndexPutFirstAxis`` of the same file: rows put back among zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(index)
        whole = rows.new_zeros(count, rows.shape[1])
        whole[index] = rows
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return grad[index], None, None


class Attention(nn.Module):
    """Causal attention of heads, around which all tokens are taken out of their padding."""

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.heads = of.heads
        self.Wqkv = nn.Linear(of.width, 3 * of.width)
        self.out_proj = nn.Linear(of.width, of.width)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        batch, length, width = x.shape
        rows = batch * length
        taken = [
            RowsTaken.apply(each.reshape(rows, width), index)
            .view(batch, length, self.heads, -1)
            .transpose(1, 2)
            for each in self.Wqkv(x).chunk(3, dim=2)
        ]
        out = scaled_dot_product_attention(*taken, is_causal=True)
        out = out.transpose(1, 2).reshape(rows, width)
        return self.out_proj(RowsPut.apply(out, index, rows).view(batch, length, width))


class Block(nn.Module):
    """A decoder block, norms before what they feed."""

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(of.width)
        self.attn = Attention(of)
        self.norm_2 = nn.LayerNorm(of.width)
        self.up_proj = nn.Linear(of.width, 4 * of.width)
        self.down_proj = nn.Linear(4 * of.width, of.width)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        x = x + self.attn(self.norm_1(x), index)
        hidden = nn.functional.gelu(self.up_proj(self.norm_2(x)))
        return x + self.down_proj(hidden)


class Decoder(nn.Module):
    """Embeddings of tokens and positions, blocks, a norm, logits by the tokens' embedding."""

    def __init__(self, of: Network, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.wte = nn.Embedding(of.vocabulary, of.width)
        self.wpe = nn.Embedding(of.length, of.width)
        self.blocks = nn.ModuleList(Block(of) for _ in range(of.layers))
        self.norm_f = nn.LayerNorm(of.width)

    def forward(self, tokens: Tensor, index: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, index, use_reentrant=False)
            else:
                x = block(x, index)
        return linear(self.norm_f(x), self.wte.weight)


def make_step(
    of: Network, microbatch: int, *, recompute: bool, reduce_float32: bool
) -> Callable[[], None]:
    """A step of one microbatch on the rank it runs on, its model sharded over all ranks.

    Args:
        of: the network.
        microbatch: sequences.
        recompute: blocks are computed again in the backward pass.
        reduce_float32: gradients are reduced in float32 rather than bfloat16.
    """
    with torch.device("meta"):
        model = Decoder(of, recompute=recompute)
        tokens = torch.empty(microbatch, of.length, dtype=torch.long)
        targets = torch.empty(microbatch * of.length, dtype=torch.long)
        index = torch.empty(microbatch * of.length, dtype=torch.long)
    policy = fsdp.MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32 if reduce_float32 else torch.bfloat16,
    )
    for block in model.blocks:
        fsdp.fully_shard(block, mp_policy=policy)
    fsdp.fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        logits = model(tokens, index)
        cross_entropy(logits.flatten(0, 1), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()

    return step
