"""Twelve families of programs that nothing of a prediction was fitted on; fixed before any ran.

Some have so little data that their host decides, others so much that the device does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu.programs import Program

Build = Callable[[Any, str, Any], tuple[Any, Any]]


def _separable(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn
    layers: list[Any] = []
    for _ in range(5):
        layers += [nn.Conv2d(144, 144, 3, padding=1, groups=144), nn.BatchNorm2d(144), nn.ReLU6()]
        layers += [nn.Conv2d(144, 144, 1), nn.BatchNorm2d(144)]
    model = nn.Sequential(*layers).to(device, dtype)
    return model, torch.randn(2, 144, 48, 48, device=device, dtype=dtype)


def _unet(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(3, 48, 3, padding=1)
            self.down = nn.Conv2d(48, 96, 3, stride=2, padding=1)
            self.deep = nn.Conv2d(96, 96, 3, padding=1)
            self.up = nn.ConvTranspose2d(96, 48, 2, stride=2)
            self.leave = nn.Conv2d(96, 2, 3, padding=1)

        def forward(self, x: Any) -> Any:
            wide = torch.relu(self.enter(x))
            deep = torch.relu(self.deep(torch.relu(self.down(wide))))
            return self.leave(torch.cat((wide, torch.relu(self.up(deep))), 1))

    return UNet().to(device, dtype), torch.randn(12, 3, 160, 160, device=device, dtype=dtype)


def _gru(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Tagger(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20_000, 384)
            self.gru = nn.GRU(384, 384, num_layers=2, batch_first=True)
            self.head = nn.Linear(384, 50)

        def forward(self, ids: Any) -> Any:
            return self.head(self.gru(self.embedding(ids))[0])

    return Tagger().to(device, dtype), torch.randint(20_000, (48, 96), device=device)


def _experts(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Experts(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(640, 8)
            self.up = nn.Parameter(torch.randn(8, 640, 1280) * 0.02)
            self.down = nn.Parameter(torch.randn(8, 1280, 640) * 0.02)

        def forward(self, x: Any) -> Any:
            weight = self.gate(x).softmax(-1)
            # Each expert its best tokens.
            best, rows = weight.topk(512, dim=0)
            y = torch.bmm(x[rows.t()], self.up)
            y = torch.bmm(torch.nn.functional.silu(y), self.down) * best.t().unsqueeze(-1)
            return x.index_add(0, rows.t().reshape(-1), y.reshape(-1, x.shape[-1]))

    return Experts().to(device, dtype), torch.randn(4096, 640, device=device, dtype=dtype)


def _graph_network(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn
    nodes, edges = 20_000, 160_000
    source, target = (torch.randint(nodes, (edges,), device=device) for _ in range(2))

    class Convolution(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(3))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                sent = layer(x)[source]
                x = torch.relu(torch.zeros_like(x).index_add(0, target, sent))
            return x

    return Convolution().to(device, dtype), torch.randn(nodes, 128, device=device, dtype=dtype)


def _patches(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Patches(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv2d(3, 320, 16, stride=16)
            self.place = nn.Parameter(torch.zeros(1, 196, 320))
            layer = nn.TransformerEncoderLayer(320, 5, 960, dropout=0.0, batch_first=True)
            self.blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(320, 200)

        def forward(self, x: Any) -> Any:
            y = self.embed(x).flatten(2).transpose(1, 2) + self.place
            return self.head(self.blocks(y).mean(1))

    return Patches().to(device, dtype), torch.randn(4, 3, 224, 224, device=device, dtype=dtype)


def _dilated(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Waves(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Conv1d(96, 192, 2, dilation=2**n, padding=2**n) for n in range(7)
            )

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                signal, gate = layer(x)[..., : x.shape[-1]].chunk(2, 1)
                x = x + torch.tanh(signal) * torch.sigmoid(gate)
            return x

    return Waves().to(device, dtype), torch.randn(8, 96, 6000, device=device, dtype=dtype)


def _mixer(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Mixer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(448) for _ in range(8))
            self.tokens = nn.ModuleList(nn.Linear(224, 224) for _ in range(4))
            self.channels = nn.ModuleList(nn.Linear(448, 448) for _ in range(4))

        def forward(self, x: Any) -> Any:
            gelu = nn.functional.gelu
            for n in range(4):
                x = x + gelu(self.tokens[n](self.norms[2 * n](x).transpose(1, 2))).transpose(1, 2)
                x = x + gelu(self.channels[n](self.norms[2 * n + 1](x)))
            return x

    return Mixer().to(device, dtype), torch.randn(2, 224, 448, device=device, dtype=dtype)


def _decoder(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn, functional = torch.nn, torch.nn.functional
    width, heads, tokens = 896, 14, 640
    angle = torch.outer(
        torch.arange(tokens, device=device), 1e4 ** -torch.linspace(0, 1, 32, device=device)
    )
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 2 * 2432, bias=False)
            self.down = nn.Linear(2432, width, bias=False)

        def turned(self, x: Any) -> Any:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                part.unflatten(-1, (heads, -1)).transpose(1, 2)
                for part in self.qkv(self.norms[0](x)).chunk(3, -1)
            )
            y = functional.scaled_dot_product_attention(
                self.turned(q), self.turned(k), v, is_causal=True
            )
            x = x + self.out(y.transpose(1, 2).flatten(2))
            up, gate = self.up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    model = nn.Sequential(Block(), Block()).to(device, dtype)
    return model, torch.randn(6, tokens, width, device=device, dtype=dtype)


def _interactions(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Recommender(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(30_000, 48, mode="sum") for _ in range(12))
            self.top = nn.Sequential(nn.Linear(144, 256), nn.ReLU(), nn.Linear(256, 1))

        def forward(self, ids: Any) -> Any:
            bags = torch.stack([table(ids[n]) for n, table in enumerate(self.tables)], 1)
            pairs = torch.bmm(bags, bags.transpose(1, 2))
            return self.top(pairs.flatten(1))

    return Recommender().to(device, dtype), torch.randint(30_000, (12, 3000, 6), device=device)


def _diffusion(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.GroupNorm(32, 160) for _ in range(2))
            self.convs = nn.ModuleList(nn.Conv2d(160, 160, 3, padding=1) for _ in range(2))

        def forward(self, x: Any) -> Any:
            y = x
            for norm, conv in zip(self.norms, self.convs):
                y = conv(nn.functional.silu(norm(y)))
            return x + y

    model = nn.Sequential(Residual(), Residual(), Residual()).to(device, dtype)
    return model, torch.randn(1, 160, 40, 40, device=device, dtype=dtype)


def _contrast(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
    nn, functional = torch.nn, torch.nn.functional

    class Towers(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.towers = nn.ModuleList(
                nn.Sequential(nn.Linear(736, 1472), nn.GELU(), nn.Linear(1472, 352))
                for _ in range(2)
            )

        def forward(self, x: Any) -> Any:
            a, b = (functional.normalize(tower(x), dim=-1) for tower in self.towers)
            logits = a @ b.t() * 20.0
            return functional.log_softmax(logits, -1).diagonal()

    return Towers().to(device, dtype), torch.randn(3000, 736, device=device, dtype=dtype)


HELD_OUT: tuple[Program, ...] = tuple(
    Program(name, trains, build)
    for name, trains, build in (
        ("separable convolutions, training", True, _separable),
        ("u-net, training", True, _unet),
        ("gru tagger, training", True, _gru),
        ("experts by token, inference", False, _experts),
        ("graph convolution, training", True, _graph_network),
        ("patches, training", True, _patches),
        ("dilated convolutions, inference", False, _dilated),
        ("mixer, training", True, _mixer),
        ("decoder blocks, training", True, _decoder),
        ("interactions, inference", False, _interactions),
        ("diffusion blocks, inference", False, _diffusion),
        ("contrast, training", True, _contrast),
    )
)
