"""A GPT's training step as a plain PyTorch program, after Megatron-LM's model: what is captured.

It knows nothing of parallelism: ``--mesh`` divides it. Half precision as Megatron has it: weights
and gradients in float16, Adam on float32 copies. Each layer is computed again in the backward pass.
What differs from the measured program, and what its source does not say, is in README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from benchmarks.prediction_captured.mpt import Network
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, gelu, linear
from torch.utils.checkpoint import checkpoint

DROPOUT = 0.1
BETAS, EPSILON, RATE, DECAY = (0.9, 0.999), 1e-8, 1e-4, 0.01


class Attention(nn.Module):
    """Causal attention that writes its scores.

    The fused softmax with its mask is one pass over the scores, as is a softmax without a mask;
    that mask is left out.
    """

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.heads = of.heads
        self.query_key_value = nn.Linear(of.width, 3 * of.width)
        self.dense = nn.Linear(of.width, of.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        mixed = self.query_key_value(x).view(batch, length, self.heads, -1)
        q, k, v = mixed.transpose(1, 2).chunk(3, dim=-1)
        scores = dropout(torch.softmax(q @ k.transpose(-1, -2), dim=-1), DROPOUT)
        return self.dense((scores @ v).transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    """A decoder layer, norms before what they feed."""

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(of.width)
        self.attention = Attention(of)
        self.post_attention_layernorm = nn.LayerNorm(of.width)
        self.dense_h_to_4h = nn.Linear(of.width, 4 * of.width)
        self.dense_4h_to_h = nn.Linear(4 * of.width, of.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + dropout(self.attention(self.input_layernorm(x)), DROPOUT)
        hidden = gelu(self.dense_h_to_4h(self.post_attention_layernorm(x)))
        return x + dropout(self.dense_4h_to_h(hidden), DROPOUT)


class Gpt(nn.Module):
    """Embeddings of tokens and positions, layers, a norm, logits by the tokens' embedding."""

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(of.vocabulary, of.width)
        self.position_embeddings = nn.Embedding(of.length, of.width)
        self.layers = nn.ModuleList(Layer(of) for _ in range(of.layers))
        self.final_layernorm = nn.LayerNorm(of.width)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = dropout(self.word_embeddings(tokens) + self.position_embeddings(positions), DROPOUT)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return linear(self.final_layernorm(x), self.word_embeddings.weight)


class MasterAdam(torch.optim.Optimizer):
    """Adam on float32 copies of float16 parameters, in torch's fused kernel, norm clipped to 1."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        parameters = self.param_groups[0]["params"]
        for each in parameters:
            state = self.state[each]
            if not state:
                state["master"] = each.float()
                state["exp_avg"] = torch.zeros_like(each, dtype=torch.float32)
                state["exp_avg_sq"] = torch.zeros_like(each, dtype=torch.float32)
                state["step"] = torch.zeros((), dtype=torch.float32, device=each.device)
        states = [self.state[each] for each in parameters]
        gradients = [each.grad.float() for each in parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
        masters = [state["master"] for state in states]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            masters, gradients, [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states], [], steps,
            lr=RATE, beta1=BETAS[0], beta2=BETAS[1], weight_decay=DECAY, eps=EPSILON,
            amsgrad=False, maximize=False,
        )  # fmt: skip
        torch._foreach_copy_(parameters, masters)


def make_step(of: Network, micro_batch: int, *, whole_step: bool) -> Callable[[], None]:
    """A step of one microbatch.

    Args:
        of: the network.
        micro_batch: sequences.
        whole_step: with clipping and the optimizer; otherwise a microbatch whose gradients are
            added to those of one before.
    """
    with torch.device("meta"):
        model = Gpt(of).half()
        tokens = torch.empty(micro_batch, of.length, dtype=torch.long)
        targets = torch.empty(micro_batch * of.length, dtype=torch.long)
        if not whole_step:
            for each in model.parameters():
                each.grad = torch.empty_like(each)
    optimizer = MasterAdam(model.parameters())

    def one_pass() -> None:
        logits = model(tokens)
        cross_entropy(logits.flatten(0, 1).float(), targets).backward()

    def step() -> None:
        one_pass()
        optimizer.step()
        optimizer.zero_grad()

    return step if whole_step else one_pass
