"""Networks and loops that people write by hand."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import (
    FunctionModule,
    Program,
    Programs,
    as_is,
    mlp,
    trained,
    whole_step,
)
from torch import Tensor, nn, randint, randn
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add


class _Experts(nn.Module):
    """Four experts, each sees the rows that chose it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(mlp(64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        output = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, column = torch.where(chosen == number)
            output.index_add_(0, row, expert(x[row]) * weights[row, column, None])
        return output


@program(size_hint=32)
def experts_by_rows() -> Program:
    return trained(_Experts(), randn(64, 64))


@program()
def experts_grouped() -> Program:
    ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32)
    model = FunctionModule(
        lambda self, x: torch._grouped_mm(x, self.w, offs=ends), w=randn(4, 64, 64).bfloat16()
    )
    return trained(model, randn(64, 64).bfloat16())


@program()
def graph_network() -> Program:
    edges = randint(0, 100, (2, 500))

    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        received = torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]])
        degree = torch.bincount(edges[1], minlength=100).clamp(min=1)
        return functional.relu(received / degree[:, None])

    return trained(FunctionModule(forward, linear=nn.Linear(32, 32)), randn(100, 32))


@program()
def neural_ode() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        f = self.mlp
        for _ in range(8):
            k1 = f(x)
            k2 = f(x + 0.05 * k1)
            k3 = f(x + 0.05 * k2)
            k4 = f(x + 0.1 * k3)
            x = x + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    return trained(FunctionModule(forward, mlp=mlp(32)), randn(16, 32))


@program()
def spline_layer() -> Program:
    knots = torch.linspace(-2, 2, 12)

    def forward(self: Any, x: Tensor) -> Tensor:
        x = x.unsqueeze(-1)
        basis = ((x >= knots[:-1]) & (x < knots[1:])).float()
        for k in range(1, 4):
            rising = (x - knots[: -(k + 1)]) / (knots[k:-1] - knots[: -(k + 1)])
            falling = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
            basis = rising * basis[..., :-1] + falling * basis[..., 1:]
        return torch.einsum("bik,oik->bo", basis, self.coefficients)

    return trained(FunctionModule(forward, coefficients=randn(16, 32, 8)), randn(16, 32))


@program()
def capsules() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        votes = torch.einsum("bid,ijde->bije", x, self.w)
        logits = torch.zeros(x.shape[0], 16, 5)
        for _ in range(3):
            output = (logits.softmax(2)[..., None] * votes).sum(1)
            output = output / (1 + output.norm(dim=-1, keepdim=True))
            logits = logits + (votes * output[:, None]).sum(-1)
        return output

    return trained(FunctionModule(forward, w=randn(16, 5, 8, 12)), randn(4, 16, 8))


@program()
def variational_autoencoder() -> Program:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        divergence = (-0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp())).mean()
        return self.decoder(sample), divergence

    parts = {"encoder": nn.Linear(64, 32), "decoder": nn.Linear(16, 64)}
    return trained(FunctionModule(forward, **parts), randn(16, 64))


@program()
def radiance_field() -> Program:
    network = nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self: Any, origins: Tensor, directions: Tensor) -> Tensor:
        depths = torch.linspace(0, 1, 32) + torch.rand(64, 32) / 32
        points = origins[:, None] + directions[:, None] * depths[..., None]
        waves = (torch.sin, torch.cos)
        encoded = torch.cat([wave(points * 2**k) for k in range(10) for wave in waves], -1)
        raw = self.network(encoded)
        opacity = 1 - torch.exp(-functional.relu(raw[..., 3]) / 32)
        passed = torch.cat([torch.ones(64, 1), 1 - opacity + 1e-10], -1)
        weights = opacity * torch.cumprod(passed, -1)[:, :-1]
        return (weights[..., None] * raw[..., :3].sigmoid()).sum(1)

    return trained(FunctionModule(forward, network=network), randn(64, 3), randn(64, 3))


@program()
def vector_quantisation() -> Program:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        nearest = torch.cdist(x, self.codes).argmin(-1)
        quantised = functional.embedding(nearest, self.codes)
        return x + (quantised - x).detach(), functional.mse_loss(quantised, x.detach())

    return trained(FunctionModule(forward, codes=randn(64, 16)), randn(128, 16))


@program()
def optimal_transport() -> Program:
    def forward(self: Any, x: Tensor, y: Tensor) -> Tensor:
        cost = torch.cdist(x @ self.w, y) ** 2
        u = v = torch.zeros(64)
        for _ in range(10):
            u = -torch.logsumexp(-cost + v, 1)
            v = -torch.logsumexp(-cost + u[:, None], 0)
        return (torch.exp(u[:, None] + v - cost) * cost).sum()

    model = FunctionModule(forward, w=randn(8, 8))
    return trained(model, randn(64, 8), randn(64, 8), loss=as_is)


@program()
def growing_cache() -> Program:
    query, key, value = (randn(64, 64) for _ in range(3))

    def step() -> Tensor:
        x = randn(1, 1, 64)
        keys, values = torch.empty(1, 0, 64), torch.empty(1, 0, 64)
        for _ in range(16):
            keys, values = torch.cat([keys, x @ key], 1), torch.cat([values, x @ value], 1)
            x = functional.scaled_dot_product_attention(x @ query, keys, values)
        return x

    return whole_step(step)


@program()
def beam_search() -> Program:
    def step() -> Tensor:
        scores, chosen = torch.zeros(4), torch.zeros(4, 0, dtype=torch.long)
        for _ in range(8):
            logits = randn(4, 100).log_softmax(-1) + scores[:, None]
            scores, index = logits.flatten().topk(4)
            chosen = torch.cat([chosen[index // 100], (index % 100)[:, None]], 1)
        return chosen

    return whole_step(step)


@program(size_hint=5)
def suppression_of_boxes() -> Program:
    def step() -> Tensor:
        boxes, order = torch.rand(50, 4), torch.rand(50).argsort(descending=True)
        kept: list[Tensor] = []
        while order.numel() > 0 and len(kept) < 10:
            best = order[0]
            kept.append(best)
            distance = (boxes[order[1:]] - boxes[best]).abs().sum(1)
            order = order[1:][distance > 0.5]
        return torch.stack(kept)

    return whole_step(step)


@program()
def worker_thread() -> Program:
    from threading import Thread

    model = mlp(64)

    def step() -> Tensor:
        results: list[Tensor] = []
        thread = Thread(target=lambda: results.append(model(randn(4, 64))))
        thread.start()
        thread.join()
        return results[0] * 2

    return whole_step(step)


@program()
def profiler_in_the_step() -> Program:
    from torch.profiler import profile

    def step() -> Tensor:
        with profile():
            return randn(64, 64) @ randn(64, 64)

    return whole_step(step)
