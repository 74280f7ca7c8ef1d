"""Nine programs as users write them, for a live diagnosis beside one of a recorded trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.clocks import captured
from benchmarks.gpu.setting import Setting

import gobrrr


@dataclass(frozen=True)
class LiveProgram:
    """``build`` gives what ``gobrrr.diagnose`` takes; not every one is for a processor."""

    name: str
    build: Callable[[Setting], Any]
    needs_cuda: bool = False


def _resnet(setting: Setting) -> gobrrr.Workload:
    import torch

    nn = torch.nn
    width, size = setting.scaled(128), setting.scaled(64)

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(x + self.norms[1](self.second(y)))

    model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *(Residual() for _ in range(6)))
    model = model.to(setting.device, memory_format=torch.channels_last)
    x = torch.randn(32, 3, size, size, device=setting.device)
    x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return gobrrr.Workload(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)


def _lstm(setting: Setting) -> gobrrr.Workload:
    import torch

    width = setting.scaled(512)
    model = torch.nn.LSTM(width, width, 2, batch_first=True).to(setting.device)
    x = torch.randn(32, setting.scaled(128), width, device=setting.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return gobrrr.Workload(model, x, loss=lambda y: y[0].square().mean(), optimizer=optimizer)


def _mlp(setting: Setting, width: int, depth: int) -> Any:
    import torch

    nn = torch.nn
    width = setting.scaled(width)
    layers: list[Any] = []
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers).to(setting.device), width


def _accumulation(setting: Setting) -> Callable[[], None]:
    import torch

    model, width = _mlp(setting, 2048, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = torch.randn(4, 512, width, device=setting.device)

    def step() -> None:
        optimizer.zero_grad()
        for batch in batches:
            (model(batch).square().mean() / 4).backward()
        optimizer.step()

    return step


def _compiled(mode: str | None) -> Callable[[Setting], gobrrr.Workload]:
    def build(setting: Setting) -> gobrrr.Workload:
        import torch

        model, width = _mlp(setting, 1024, 3)
        x = torch.randn(2048 if mode is None else 64, width, device=setting.device)
        model = torch.compile(model, mode=mode)
        if mode is not None:
            return gobrrr.Workload(model.eval(), x)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        return gobrrr.Workload(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)

    return build


def _whole_step_graph(setting: Setting) -> Callable[[], Any]:
    import torch

    model, width = _mlp(setting, 512, 12)
    x = torch.randn(256, width, device=setting.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return captured(step)


def _two_streams(setting: Setting) -> Callable[[], Any]:
    import torch

    side = setting.scaled(2048)
    a, b = (torch.randn(side, side, device=setting.device) for _ in range(2))
    stream = torch.cuda.Stream()

    def step() -> Any:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first = torch.softmax(torch.mm(a, a), -1)
        second = torch.mm(b, b)
        torch.cuda.current_stream().wait_stream(stream)
        first.record_stream(torch.cuda.current_stream())
        return first + second

    return step


def _generate(setting: Setting) -> Callable[[], Any]:
    import torch

    nn, functional = torch.nn, torch.nn.functional
    width, heads, vocabulary = setting.scaled(1024), 8, setting.scaled(32_000)
    tokens, prompt = (2, 4) if setting.small else (16, 64)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, cache: list[Any]) -> Any:
            q, k, v = (
                part.unflatten(-1, (heads, -1)).transpose(1, 2)
                for part in self.qkv(self.norm(x)).chunk(3, -1)
            )
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = k, v
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(4))
            self.head = nn.Linear(width, vocabulary)

        def forward(self, ids: Any, caches: list[list[Any]]) -> Any:
            x = self.embedding(ids)
            for block, cache in zip(self.blocks, caches):
                x = block(x, cache)
            return self.head(x[:, -1])

    model = Decoder().to(setting.device).eval()
    start = torch.randint(vocabulary, (1, prompt), device=setting.device)

    def step() -> list[int]:
        caches: list[list[Any]] = [[] for _ in model.blocks]
        ids, made = start, []
        with torch.no_grad():
            for _ in range(tokens):
                ids = model(ids, caches).argmax(-1, keepdim=True)
                # As loops do that look for the end of the text.
                made.append(int(ids))
        return made

    return step


# Those likeliest to fail come last.
PROGRAMS = (
    LiveProgram("transformer training", Setting.transformer),
    LiveProgram("resnet channels-last", _resnet),
    LiveProgram("lstm", _lstm),
    LiveProgram("accumulation x 4", _accumulation),
    LiveProgram("generate loop", _generate),
    LiveProgram("two streams", _two_streams, needs_cuda=True),
    LiveProgram("compile default", _compiled(None), needs_cuda=True),
    LiveProgram("whole-step graph", _whole_step_graph, needs_cuda=True),
    LiveProgram("compile reduce-overhead", _compiled("reduce-overhead"), needs_cuda=True),
)
