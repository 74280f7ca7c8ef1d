"""Fourier transforms, complex numbers, and torch.linalg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, trained
from torch import Tensor, linalg, nn, randn

PROGRAMS = Programs()
program = PROGRAMS.add


def _scaled(function: Callable[..., Any]) -> FunctionModule:
    return FunctionModule(lambda self, x: function(x * self.scale), scale=torch.ones(1))


@program()
def fft_and_back() -> Program:
    return trained(_scaled(lambda x: torch.fft.ifft(torch.fft.fft(x)).real), randn(16, 1024))


@program()
def fourier_neural_operator() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.fft.irfft2(torch.fft.rfft2(x) * torch.view_as_complex(self.weights))

    return trained(FunctionModule(forward, weights=randn(32, 17, 2)), randn(4, 8, 32, 32))


@program()
def stft_and_back() -> Program:
    window = torch.hann_window(256)

    def forward(x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 256, 64, window=window, return_complex=True)
        turned = spectrum * torch.exp(1j * spectrum.angle())
        return torch.istft(turned, 256, 64, window=window)

    return trained(_scaled(forward), randn(4, 8000))


@program()
def long_convolution() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        product = torch.fft.rfft(x, n=1024) * torch.fft.rfft(self.kernel, n=1024)
        return torch.fft.irfft(product, n=1024)[..., :512]

    return trained(FunctionModule(forward, kernel=randn(64, 512)), randn(8, 64, 512))


class _ComplexLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(64, 64, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x @ self.weight).abs()


@program()
def complex_linear() -> Program:
    return trained(_ComplexLinear(), randn(32, 64, dtype=torch.cfloat))


def _newton_schulz(x: Tensor) -> Tensor:
    x = x / x.norm()
    for _ in range(5):
        square = x @ x.mT
        x = 3.4 * x + (-4.77 * square + 2.03 * square @ square) @ x
    return x


def _several_norms(x: Tensor) -> tuple[Tensor, ...]:
    return (
        linalg.matrix_power(x / 64, 5), linalg.norm(x[0], 2), linalg.matrix_norm(x, "nuc"),
        linalg.cond(x),
    )  # fmt: skip


def _several_products(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.kron(x[0], x[1]).sum(),
        linalg.multi_dot([x[0], x[1], x[2]]),
        torch.cross(x[..., :3], x[..., 3:6], -1),
    )


def _of_matrices(
    function: Callable[[Tensor], Any], size: int, positive_definite: bool
) -> Callable[[], Program]:
    def build() -> Program:
        x = randn(4, size, size)
        if positive_definite:
            x = x @ x.mT + size * torch.eye(size)
        return trained(_scaled(function), x)

    return build


# name: function of a batch of four square matrices, their size, whether positive definite
_MATRIX_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], int, bool]] = {
    "svd": (lambda x: linalg.svd(x, full_matrices=False), 64, False),
    "svdvals": (linalg.svdvals, 64, False),
    "qr": (linalg.qr, 64, False),
    "cholesky": (linalg.cholesky, 64, True),
    "cholesky_solve": (lambda x: torch.cholesky_solve(x, linalg.cholesky(x)), 64, True),
    "eigh": (linalg.eigh, 64, True),
    "eig": (lambda x: linalg.eig(x)[0].abs(), 64, False),
    "solve": (lambda x: linalg.solve(x, x.mT), 64, False),
    "inverse": (linalg.inv, 64, False),
    "determinants": (lambda x: (linalg.det(x / 8), linalg.slogdet(x)[1]), 64, False),
    "lstsq": (lambda x: linalg.lstsq(x, x[..., :4])[0], 64, False),
    "pinv": (linalg.pinv, 32, False),
    "matrix_exp": (lambda x: linalg.matrix_exp(x / 64), 64, False),
    "powers_and_norms": (_several_norms, 32, False),
    "lu": (linalg.lu, 64, False),
    "solve_triangular": (
        lambda x: linalg.solve_triangular(x.triu() + 8 * torch.eye(64), x, upper=True), 64, False,
    ),
    "products": (_several_products, 24, False),
    "newton_schulz": (_newton_schulz, 64, False),
}  # fmt: skip
for _name, (_function, _size, _positive) in _MATRIX_FUNCTIONS.items():
    PROGRAMS.register(f"linalg_{_name}", _of_matrices(_function, _size, _positive))
