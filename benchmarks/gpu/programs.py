"""Programs whose time on a GPU is predicted and then measured: 38 networks, each four times.

Each in float32 and bfloat16, eager and compiled: 152 programs. They are fixed before they are run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

DTYPES, MODES = ("float32", "bfloat16"), ("eager", "compiled")


@dataclass(frozen=True)
class Program:
    """One network with its data: ``build(torch, device, dtype)`` gives (model, inputs)."""

    name: str
    trains: bool
    build: Callable[[Any, str, Any], tuple[Any, Any]]


def _mlp(width: int, depth: int, batch: int) -> Callable[[Any, str, Any], tuple[Any, Any]]:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        nn = torch.nn
        layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
        model = nn.Sequential(*layers).to(device, dtype)
        return model, torch.randn(batch, width, device=device, dtype=dtype)

    return build


def _block(width: int, heads: int, tokens: int, batch: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        model = layer.to(device, dtype)
        return model, torch.randn(batch, tokens, width, device=device, dtype=dtype)

    return build


def _convolutions(channels: int, size: int, depth: int, batch: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        nn = torch.nn
        layers: list[Any] = []
        for _ in range(depth):
            layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        model = nn.Sequential(*layers).to(device, dtype)
        return model, torch.randn(batch, channels, size, size, device=device, dtype=dtype)

    return build


def _chain(elements: int, depth: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        class Chain(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                for _ in range(depth):
                    x = torch.tanh(x * 1.01 + 0.1)
                return x

        return Chain(), torch.randn(elements, device=device, dtype=dtype)

    return build


def _norms(rows: int, width: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        nn = torch.nn
        model = nn.Sequential(nn.LayerNorm(width), nn.Softmax(-1), nn.LayerNorm(width))
        return model.to(device, dtype), torch.randn(rows, width, device=device, dtype=dtype)

    return build


def _embedding(entries: int, width: int, tokens: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        nn = torch.nn
        model = nn.Sequential(nn.Embedding(entries, width), nn.Linear(width, width))
        return model.to(device, dtype), torch.randint(entries, (tokens,), device=device)

    return build


def _lstm(width: int, tokens: int, batch: int) -> Any:
    def build(torch: Any, device: str, dtype: Any) -> tuple[Any, Any]:
        lstm = torch.nn.LSTM(width, width, batch_first=True).to(device, dtype)

        class Last(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.lstm = lstm

            def forward(self, x: Any) -> Any:
                return self.lstm(x)[0]

        return Last(), torch.randn(batch, tokens, width, device=device, dtype=dtype)

    return build


def _programs() -> tuple[Program, ...]:
    found: list[Program] = []
    for width, batch in product((512, 2048), (32, 4096)):
        for trains in (False, True):
            name = f"mlp {width}, batch {batch}, {'training' if trains else 'inference'}"
            found.append(Program(name, trains, _mlp(width, 4, batch)))
    for (width, heads), (tokens, batch) in product(((512, 8), (2048, 16)), ((128, 8), (1024, 4))):
        for trains in (False, True):
            what = "training" if trains else "inference"
            name = f"block {width}, {tokens} tokens x {batch}, {what}"
            found.append(Program(name, trains, _block(width, heads, tokens, batch)))
    for channels, size, batch in ((32, 64, 8), (64, 56, 32), (256, 14, 64)):
        for trains in (False, True):
            what = "training" if trains else "inference"
            name = f"convolutions {channels} x {size}, batch {batch}, {what}"
            found.append(Program(name, trains, _convolutions(channels, size, 4, batch)))
    for elements, depth in product((1 << 16, 1 << 24), (4, 16)):
        name = f"chain of {depth}, {elements} elements"
        found.append(Program(name, False, _chain(elements, depth)))
    for rows, width in product((256, 16384), (512, 4096)):
        found.append(Program(f"norms {rows} x {width}", False, _norms(rows, width)))
    for entries, width in product((1000, 100_000), (256, 2048)):
        found.append(
            Program(f"embedding {entries} x {width}", True, _embedding(entries, width, 4096))
        )
    for width, tokens in ((256, 64), (1024, 256)):
        found.append(Program(f"lstm {width}, {tokens} tokens", False, _lstm(width, tokens, 16)))
    for width in (1024, 8192):
        found.append(Program(f"one product {width}", False, _mlp(width, 1, width)))
    return tuple(found)


PROGRAMS = _programs()
# A few small ones, for a run of the script itself.
SMALL = (
    Program("small mlp", True, _mlp(32, 2, 8)),
    Program("small chain", False, _chain(1 << 10, 4)),
)
