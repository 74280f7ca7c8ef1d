"""Losses, activations, special functions, integer arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, as_is, trained
from torch import Tensor, nn, randint, randn, special
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add


def _sum_of_squares(outputs: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([part.pow(2).mean() for part in outputs if part.requires_grad]).sum()


@program()
def ctc_loss() -> Program:
    targets = randint(1, 20, (4, 10))
    input_lengths, target_lengths = torch.full((4,), 50), torch.tensor([10, 8, 6, 9])

    def forward(self: Any, x: Tensor) -> Tensor:
        logits = self.linear(x).log_softmax(-1)
        return functional.ctc_loss(logits, targets, input_lengths, target_lengths)

    model = FunctionModule(forward, linear=nn.Linear(32, 20))
    return trained(model, randn(50, 4, 32), loss=as_is)


def _all_losses(x: Tensor, y: Tensor, classes: Tensor, signs: Tensor) -> list[Tensor]:
    p, log_p = x.softmax(-1), x.log_softmax(-1)
    several_classes = randint(0, 9, (32, 10))
    return [
        functional.mse_loss(x, y), functional.l1_loss(x, y), functional.smooth_l1_loss(x, y),
        functional.huber_loss(x, y), functional.cross_entropy(x, classes, label_smoothing=0.1),
        functional.nll_loss(log_p, classes),
        functional.kl_div(log_p, y.softmax(-1), reduction="batchmean"),
        functional.binary_cross_entropy(p, y.sigmoid()),
        functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        functional.poisson_nll_loss(x, y.abs()), functional.gaussian_nll_loss(x, y, p + 0.1),
        functional.hinge_embedding_loss(x, torch.sign(y)),
        functional.multi_margin_loss(x, classes),
        functional.multilabel_margin_loss(x, several_classes),
        functional.multilabel_soft_margin_loss(x, (y > 0).float()),
        functional.soft_margin_loss(x, torch.sign(y)),
        functional.cosine_embedding_loss(x, y, signs),
        functional.triplet_margin_loss(x, y, y + 1),
        functional.margin_ranking_loss(x[:, 0], y[:, 0], signs),
    ]  # fmt: skip


@program()
def losses() -> Program:
    y, classes, signs = randn(32, 10), randint(0, 10, (32,)), torch.sign(randn(32))

    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.stack(_all_losses(self.linear(x), y, classes, signs)).sum()

    return trained(FunctionModule(forward, linear=nn.Linear(32, 10)), randn(32, 32), loss=as_is)


@program()
def linear_cross_entropy() -> Program:
    classes = randint(0, 1000, (64,))
    model = FunctionModule(
        lambda self, x: functional.linear_cross_entropy(x, self.w, classes), w=randn(1000, 64)
    )
    return trained(model, randn(64, 64), loss=as_is)


@program()
def adaptive_softmax() -> Program:
    classes = randint(0, 1000, (64,))
    model = FunctionModule(
        lambda self, x: self.softmax(x, classes).loss,
        softmax=nn.AdaptiveLogSoftmaxWithLoss(64, 1000, [100, 500]),
    )
    return trained(model, randn(64, 64), loss=as_is)


_ACTIVATIONS: list[Any] = [
    functional.relu, functional.relu6, functional.elu, functional.selu, functional.celu,
    functional.gelu, lambda x: functional.gelu(x, approximate="tanh"), functional.silu,
    functional.mish, functional.softplus, functional.softsign, functional.hardtanh,
    functional.hardswish, functional.hardsigmoid, functional.logsigmoid, functional.tanhshrink,
    functional.softshrink, functional.hardshrink, functional.leaky_relu, functional.rrelu,
    functional.glu, lambda x: functional.threshold(x, 0.1, 0), functional.normalize,
    functional.gumbel_softmax, lambda x: functional.softmin(x, -1),
]  # fmt: skip


@program()
def activations() -> Program:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x * self.scale) for function in _ACTIVATIONS)

    model = FunctionModule(forward, scale=torch.ones(1))
    return trained(model, randn(64, 64), loss=_sum_of_squares)


_SPECIAL: list[Any] = [
    torch.erf, torch.erfc, lambda x: special.erfinv(x.tanh() * 0.9), torch.lgamma, torch.digamma,
    lambda x: torch.polygamma(1, x.abs() + 1), special.bessel_j0, special.bessel_j1, special.i0e,
    special.i1, special.ndtr, special.log_ndtr, special.entr, lambda x: special.logit(x.sigmoid()),
    special.expit, special.exp2, special.sinc, lambda x: special.xlogy(x, x.abs() + 1),
    lambda x: special.gammaincc(x.detach().abs() + 1, x.abs() + 1),
    lambda x: special.modified_bessel_k0(x.detach().abs() + 1),
    lambda x: special.zeta(x.detach().abs() + 2, 2.0), torch.asinh,
    lambda x: torch.atanh(x.tanh() * 0.9), torch.sinc, lambda x: torch.logit(x.sigmoid()),
]  # fmt: skip


@program()
def special_functions() -> Program:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x * self.scale) for function in _SPECIAL)

    model = FunctionModule(forward, scale=torch.ones(1))
    return trained(model, randn(64, 64), loss=_sum_of_squares)


@program()
def integers_and_bits() -> Program:
    def forward(self: Any, x: Tensor, i: Tensor) -> Tensor:
        bits = (i << 2) ^ (i >> 1) & 7 | (~i)
        divisors = torch.gcd(i, bits.abs() + 1).float()
        masked = x * self.scale * ((bits % 3) == 0).float()
        return masked + divisors + torch.bitwise_and(i, 3).float() + (i // 3).float()

    model = FunctionModule(forward, scale=torch.ones(1))
    return trained(model, randn(64, 64), randint(0, 100, (64, 64)))
