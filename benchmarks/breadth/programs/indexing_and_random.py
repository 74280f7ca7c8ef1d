"""Indexing, sorting, counting, random numbers, and sizes that depend on data."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, as_is, trained
from torch import Tensor, nn, randint, randn
from torch.distributions import Beta, Dirichlet, Gamma, Normal
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add


def _sum_of_squares(outputs: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([part.pow(2).mean() for part in outputs if part.requires_grad]).sum()


def _scaled(function: Any) -> FunctionModule:
    return FunctionModule(
        lambda self, x, *rest: function(x * self.scale, *rest), scale=torch.ones(1)
    )


@program()
def index_operators() -> Program:
    columns, rows = randint(0, 64, (64, 64)), randint(0, 64, (32,))

    def forward(x: Tensor) -> tuple[Tensor, ...]:
        zeros = torch.zeros_like(x)
        return (
            x.gather(1, columns), zeros.scatter_add(1, columns, x),
            zeros.scatter_reduce(1, columns, x, "amax"), x.index_select(0, rows),
            zeros.index_add(0, rows, x[:32]), x[rows], x.take_along_dim(columns, 1),
            zeros.index_put((rows, rows), x[:32, 0], accumulate=True),
            zeros.index_copy(0, rows[:5], x[:5]), zeros.index_fill(0, rows, 1.0) + x,
            x.masked_fill(x > 0, 0), torch.where(x > 0, x, -x), zeros.scatter(1, columns, x),
            zeros.index_reduce(0, rows, x[:32], "prod"), x.take(columns),
        )  # fmt: skip

    return trained(_scaled(forward), randn(64, 64), loss=_sum_of_squares)


@program()
def sorting() -> Program:
    edges = torch.linspace(-1, 1, 9)

    def forward(x: Tensor) -> tuple[Tensor, ...]:
        fixed = x.detach()
        return (
            x.sort(-1)[0], x.topk(5)[0], x.kthvalue(3)[0], x.median(-1)[0], x.mode(-1)[0],
            x.quantile(0.5, -1), x.cummax(-1)[0], x.cumsum(-1), x.cumprod(-1),
            x.logcumsumexp(-1), x.argsort(-1).float(), x.msort(), x.aminmax()[0],
            x.nanmedian(-1)[0], torch.searchsorted(fixed.sort(-1)[0], fixed).float(),
            torch.bucketize(fixed, edges).float(),
        )  # fmt: skip

    return trained(_scaled(forward), randn(64, 64), loss=_sum_of_squares)


@program()
def counting() -> Program:
    def forward(self: Any, x: Tensor, i: Tensor) -> Tensor:
        torch.histc(x * self.scale)
        torch.bincount(i, minlength=50)
        torch.histogram(x.detach(), 10)
        return functional.one_hot(i, 50).float().mean(0) @ self.scale.expand(50, 1)

    model = FunctionModule(forward, scale=torch.ones(1))
    return trained(model, randn(256), randint(0, 50, (256,)))


@program()
def random_numbers() -> Program:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        p, positive = x.softmax(-1), x.abs() + 1
        return (
            Normal(x, 1.0).rsample(), Gamma(positive, positive).rsample(),
            torch.bernoulli(p.detach()), functional.dropout(x, 0.3),
            functional.alpha_dropout(x, 0.3, training=True),
            functional.feature_alpha_dropout(x, 0.3, training=True),
            torch.randperm(64).float(), torch.poisson(p.detach()), Dirichlet(positive).rsample(),
            Beta(positive, positive).rsample(), torch.multinomial(p, 4).float(),
        )  # fmt: skip

    return trained(_scaled(forward), randn(32, 64), loss=_sum_of_squares)


@program(size_hint=2000)
def mask_of_data() -> Program:
    def forward(x: Tensor) -> Tensor:
        return x[x > 0].sum() + x.nonzero().float().sum()

    return trained(_scaled(forward), randn(64, 64), loss=as_is)


@program()
def mask_that_is_constant() -> Program:
    mask = torch.arange(64) % 3 == 0
    return trained(_scaled(lambda x: x[mask]), randn(64, 64))


@program()
def list_of_a_constant() -> Program:
    sizes = torch.tensor([10, 20, 34])
    return trained(
        _scaled(lambda x: [part.sum() for part in x.split(sizes.tolist())]), randn(64, 8)
    )


@program()
def array_of_a_constant() -> Program:
    weights = torch.linspace(0, 1, 64)

    def forward(x: Tensor) -> Tensor:
        return x * float(weights.numpy().mean())

    return trained(_scaled(forward), randn(64, 64))


@program(size_hint=40)
def unique() -> Program:
    def forward(x: Tensor, i: Tensor) -> Tensor:
        values, inverse, _ = torch.unique(i, return_inverse=True, return_counts=True)
        return x.index_add(0, inverse, x).sum() + values.float().sum()

    return trained(_scaled(forward), randn(100, 8), randint(0, 40, (100,)), loss=as_is)


@program()
def item_decides() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = x @ self.w
        if y.mean().item() > 0:
            y = y * 2
        return y

    return trained(FunctionModule(forward, w=randn(64, 64)), randn(64, 64))


@program()
def distances() -> Program:
    def forward(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        product = x @ self.w
        return (
            torch.cdist(product, y), functional.pairwise_distance(x, y[:32]),
            functional.cosine_similarity(x, y[:32]), functional.pdist(product),
            torch.cdist(x, y, p=1),
        )  # fmt: skip

    model = FunctionModule(forward, w=randn(32, 32))
    return trained(model, randn(32, 32), randn(64, 32), loss=_sum_of_squares)


@program()
def bilinear_and_einsum() -> Program:
    def forward(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            self.bilinear(x, y),
            torch.einsum("bi,ijk,bk->bj", x, self.t, y),
            torch.tensordot(x, self.t, 1),
        )

    model = FunctionModule(forward, bilinear=nn.Bilinear(32, 32, 16), t=randn(32, 8, 32))
    return trained(model, randn(16, 32), randn(16, 32))


@program()
def segment_reduce() -> Program:
    lengths = torch.tensor([10, 20, 34])
    return trained(
        _scaled(lambda x: torch.segment_reduce(x, "sum", lengths=lengths, axis=0)), randn(64, 8)
    )
