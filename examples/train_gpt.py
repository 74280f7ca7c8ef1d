"""Train a small GPT, character by character, on the Python standard library's own source.

Plain PyTorch: nothing in here knows about gobrrr.

    python examples/train_gpt.py --steps 200
    gobrrr run examples/train_gpt.py --steps 200
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def standard_library_text(limit: int = 2_000_000) -> str:
    """The first ``limit`` characters of the standard library's top-level modules."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    parts: list[str] = []
    for path in sorted(folder.glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="ignore"))
        if sum(map(len, parts)) >= limit:
            break
    return "".join(parts)[:limit]


def get_batch(data: Tensor, batch: int, context: int) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(data) - context - 1, (batch,))
    inputs = torch.stack([data[s : s + context] for s in starts])
    targets = torch.stack([data[s + 1 : s + context + 1] for s in starts])
    return inputs, targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    text = standard_library_text()
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    data = torch.tensor([index[character] for character in text])

    model = GPT(len(characters), args.width, args.layers, args.heads, args.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} characters")

    for step in range(1, args.steps + 1):
        inputs, targets = get_batch(data, args.batch, args.context)
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
