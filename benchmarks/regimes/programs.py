"""Programs whose regime is known, which other tools call wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import relu

Step = Callable[[], Any]


def linear_batch_1() -> Step:
    """268 MB of weights are read for one row: memory, though it is a matmul."""
    layer, x = nn.Linear(8192, 8192), torch.randn(1, 8192)
    return torch.no_grad()(lambda: layer(x))


def matmuls_and_tiny_adds() -> Step:
    """80 matmuls of 1024 against 1500 adds of 4 elements: compute, though most ops are tiny."""
    a, b, small = torch.randn(512, 512), torch.randn(512, 512), torch.randn(4)

    def step() -> Any:
        for _ in range(80):
            c = a @ b
        d = small
        for _ in range(1500):
            d = d + small
        return c, d

    return step


def matmuls_between_python() -> Step:
    """Two matmuls around a Python loop that takes far longer: the loop is Python overhead."""
    a, b = torch.randn(256, 256), torch.randn(256, 256)

    def step() -> Any:
        c = a @ b
        total = 0
        for i in range(200_000):
            total += i & 7
        return c @ b, total

    return step


def layer_norms() -> Step:
    """Normalisation of more data than the caches hold: memory."""
    norm, x = nn.LayerNorm(1024), torch.randn(32768, 1024)

    def step() -> Any:
        with torch.no_grad():
            return norm(norm(x))

    return step


def transposes_and_casts() -> Step:
    """Copies that change layout or dtype compute nothing: memory."""
    x = torch.randn(4096, 4096)
    return lambda: (x.t().contiguous(), x.to(torch.bfloat16), x.to(torch.float64))


def small_relus(count: int) -> Step:
    """A row of small ops: overhead, whether there are 499 or 500."""
    x = torch.randn(64)

    def step() -> Any:
        y = x
        for _ in range(count):
            y = relu(y)
        return y

    return step


def pointwise_chain() -> Step:
    """A chain of large pointwise ops: memory."""
    x = torch.randn(16 * 2**20)
    return lambda: ((x * 2 + 1) * x - 3).abs_()


def tiny_ops() -> Step:
    """A loop of tiny ops: overhead."""
    x = torch.randn(8)

    def step() -> Any:
        y = x
        for _ in range(300):
            y = (y * 0.5 + x).clamp(-1, 1)
        return y

    return step


PROGRAMS: dict[str, tuple[Callable[[], Step], str]] = {
    "linear_batch_1": (linear_batch_1, "memory"),
    "matmuls_and_tiny_adds": (matmuls_and_tiny_adds, "compute"),
    "matmuls_between_python": (matmuls_between_python, "overhead"),
    "layer_norms": (layer_norms, "memory"),
    "transposes_and_casts": (transposes_and_casts, "memory"),
    "relu_499": (lambda: small_relus(499), "overhead"),
    "relu_500": (lambda: small_relus(500), "overhead"),
    "pointwise_chain": (pointwise_chain, "memory"),
    "tiny_ops": (tiny_ops, "overhead"),
}
