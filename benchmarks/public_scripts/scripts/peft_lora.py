"""LoRA: low-rank adapters on a frozen transformer."""

import torch
from own_clock import mark
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scaling, self.dropout = alpha / rank, nn.Dropout(0.1)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(self.dropout(x))) * self.scaling


class Block(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(500, 128), *[Block() for _ in range(4)], nn.Linear(128, 500))
model.requires_grad_(False)
for block in model[1:-1]:
    block.qkv, block.out = LoraLinear(block.qkv), LoraLinear(block.out)
trained = [p for p in model.parameters() if p.requires_grad]
print(f"trainable params: {sum(map(torch.numel, trained))}")
optimizer = torch.optim.AdamW(trained, lr=1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 100)
mark("setup")
for step in range(100):
    tokens = torch.randint(0, 500, (4, 96))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    mark()
    if step % 25 == 0:
        print(step, loss.item())
