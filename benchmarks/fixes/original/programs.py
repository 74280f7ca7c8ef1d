"""Small programs, most of them with one known flaw, as ``gobrrr fix file.py:function`` takes them.

``PROGRAMS`` says for each what its flaw's fix is called. Every function builds its program anew
from seed 0. A program with a flaw that only its author can mend has its mended form beside it.

These are the programs, flaws and keys as they were first written (commit 4431938), and they stay
so: fixes were built and constants fitted with them in sight, which is why they are scored apart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from program import Program  # noqa: E402

from gobrrr import Workload  # noqa: E402


class Attention(nn.Module):
    """Attention as it is written by hand."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (
            part.view(n, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        if self.causal:
            mask = torch.ones(t, t, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, c))


def attention_by_hand() -> Workload:
    torch.manual_seed(0)
    model = nn.Sequential(Attention(128, 8, False), Attention(128, 8, False)).eval()
    return Workload(model, torch.randn(2, 512, 128))


def causal_attention_by_hand() -> Workload:
    torch.manual_seed(0)
    return Workload(Attention(128, 8, True).eval(), torch.randn(2, 512, 128))


def attention_training() -> Workload:
    torch.manual_seed(0)
    model = Attention(64, 4, False)
    return Workload(
        model, torch.randn(2, 384, 64), loss=lambda y: y.square().mean(),
        optimizer=torch.optim.SGD(model.parameters(), 0.01),
    )  # fmt: skip


def _narrow(layers: int = 24, width: int = 32) -> nn.Module:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)),
        nn.Linear(width, 10),
    )


def _training(model: nn.Module, optimizer: Any, batch: int = 32, width: int = 32) -> Workload:
    return Workload(
        model, torch.randn(batch, width), loss=functional.cross_entropy, optimizer=optimizer,
        targets=torch.randint(10, (batch,)),
    )  # fmt: skip


def single_tensor_adamw() -> Workload:
    torch.manual_seed(0)
    model = _narrow()
    return _training(model, torch.optim.AdamW(model.parameters(), 1e-3, foreach=False))


def single_tensor_sgd() -> Workload:
    torch.manual_seed(0)
    model = _narrow(40)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, foreach=False)
    return _training(model, optimizer)


def single_tensor_rmsprop() -> Workload:
    torch.manual_seed(0)
    model = _narrow(40)
    return _training(model, torch.optim.RMSprop(model.parameters(), 1e-4, foreach=False))


def large_adamw() -> Workload:
    """An optimizer bound by memory: a dozen passes over parameters in place of one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))
    return Workload(
        model, torch.randn(4, 1024), loss=lambda y: y.square().mean(),
        optimizer=torch.optim.AdamW(model.parameters(), 1e-4, foreach=False),
    )  # fmt: skip


def images_nchw() -> Workload:
    torch.manual_seed(0)
    blocks: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(4):
        blocks += [nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1, groups=8),
                   nn.MaxPool2d(3, 1, 1)]  # fmt: skip
    return Workload(nn.Sequential(*blocks).eval(), torch.randn(4, 3, 96, 96))


def fresh_large_buffers() -> Callable[[], Tensor]:
    x = torch.linspace(0.0, 1.0, 16 << 20)
    return lambda: torch.relu(x * 2.0 + 1.0)


def pointwise_chain() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    x = torch.randn(2 << 20)

    def chain() -> Tensor:
        y = x * 1.5 + 0.5
        y = torch.sigmoid(y) * y
        return (y - 0.25).clamp(-1.0, 1.0) * 0.5 + x

    return chain


def small_ops() -> Workload:
    """A recurrent cell by hand: ops of a microsecond."""
    torch.manual_seed(0)

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(32, 64)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros(1, 16)
            for t in range(8):
                i, f, o, g = self.gates(torch.cat([x[:, t], h], dim=-1)).chunk(4, dim=-1)
                h = torch.sigmoid(o) * torch.tanh(
                    torch.sigmoid(f) * h + torch.sigmoid(i) * torch.tanh(g)
                )
            return h

    return Workload(Cell().eval(), torch.randn(1, 8, 16))


def loop_over_rows() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    table, weights = torch.randn(256, 64), torch.randn(64, 64)

    def rows() -> Tensor:
        return torch.stack([torch.tanh(weights @ table[i]) for i in range(len(table))])

    return rows


def loop_over_rows_mended() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    table, weights = torch.randn(256, 64), torch.randn(64, 64)
    return lambda: torch.tanh(table @ weights.T)


def decoding_without_cache() -> Callable[[], Tensor]:
    return _decoding(cached=False)


def decoding_without_cache_mended() -> Callable[[], Tensor]:
    return _decoding(cached=True)


def _decoding(*, cached: bool) -> Callable[[], Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=352, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        use_cache=cached,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(1000, (1, 64))

    @torch.no_grad()
    def decode() -> Tensor:
        tokens, kept = prompt, None
        for _ in range(8):
            out = model(tokens[:, -1:] if kept is not None else tokens, past_key_values=kept,
                        use_cache=cached)  # fmt: skip
            kept = out.past_key_values if cached else None
            tokens = torch.cat([tokens, out.logits[:, -1:].argmax(-1)], dim=1)
        return tokens

    return decode


class _Checkpointed(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def needless_checkpointing() -> Workload:
    torch.manual_seed(0)
    model = _Checkpointed(4, 384)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
    return _training(model, optimizer, 192, 384)


def gradients_nobody_uses() -> Workload:
    """A backbone that is not in the optimizer and yet gets gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(384, 384), nn.ReLU()) for _ in range(4)), nn.Linear(384, 10)
    )
    optimizer = torch.optim.SGD(model[-1].parameters(), 1e-2)
    return _training(model, optimizer, 128, 384)


def one_of_two_processors() -> Workload:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 768)).eval()
    return Workload(model, torch.randn(512, 768))


def gradients_recorded() -> Callable[[], Tensor]:
    """Inference that records a graph for a backward pass that never comes."""
    torch.manual_seed(0)
    model, x = _narrow(30, 16).eval(), torch.randn(1, 16)
    return lambda: model(x)


def _network(name: str, *, train: bool) -> Workload:
    from zoo import build

    torch.manual_seed(0)
    model, inputs, loss = build(name, tiny=True)
    if not train:
        return Workload(model.eval(), inputs)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    return Workload(model, inputs, loss=loss, optimizer=optimizer)


def bert_inference() -> Workload:
    return _network("bert", train=False)


def gpt2_training() -> Workload:
    return _network("gpt2", train=True)


def llama_inference() -> Workload:
    return _network("llama", train=False)


def unet_inference() -> Workload:
    return _network("unet", train=False)


COMPILED = ("compile", "compile_cpp_wrapper", "compile_max_autotune", "compile_freezing",
            "aot_inductor")  # fmt: skip
ALLOCATORS = ("glibc_tunables", "jemalloc", "tcmalloc")

PROGRAMS: tuple[Program, ...] = (
    Program("attention_by_hand", "attention that writes its scores", ("fused_attention",)),
    Program("causal_attention_by_hand", "masked attention that writes its scores",
            ("fused_attention",)),
    Program("attention_training", "attention that writes its scores", ("fused_attention",)),
    Program("single_tensor_adamw", "an optimizer tensor by tensor", ("fused_optimizer",)),
    Program("single_tensor_sgd", "an optimizer tensor by tensor", ("fused_optimizer",)),
    Program("single_tensor_rmsprop", "an optimizer tensor by tensor", ("foreach_optimizer",)),
    Program("large_adamw", "an optimizer that passes over its tensors again and again",
            ("fused_optimizer",)),
    Program("images_nchw", "convolutions of NCHW tensors", ("channels_last",)),
    Program("fresh_large_buffers", "fresh large buffers", (*ALLOCATORS, *COMPILED)),
    Program("pointwise_chain", "ops that are not fused", COMPILED),
    Program("small_ops", "ops that are all dispatch", COMPILED),
    Program("loop_over_rows", "a Python loop over rows", ("vectorise_loop",),
            mended="loop_over_rows_mended"),
    Program("decoding_without_cache", "the prefix computed again for each token", ("kv_cache",),
            mended="decoding_without_cache_mended"),
    Program("needless_checkpointing", "activations computed twice", ("no_checkpointing",)),
    Program("gradients_nobody_uses", "gradients of what does not train", ("unused_gradients",)),
    Program("one_of_two_processors", "one thread where there are two processors",
            ("all_threads",)),
    Program("gradients_recorded", "inference that records gradients",
            ("inference_mode", *COMPILED)),
    Program("loader_without_workers", "a loader in the training process", ("loader_workers",),
            kind="script"),
    Program("gradients_zeroed", "gradients filled with zeros", ("set_to_none",), kind="script"),
    Program("bert_inference"),
    Program("gpt2_training", "an optimizer tensor by tensor", ("fused_optimizer",)),
    Program("llama_inference"),
    Program("unet_inference"),
)  # fmt: skip
