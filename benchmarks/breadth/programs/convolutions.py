"""Convolutions, pooling, resampling, padding, normalisation."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, trained
from torch import Tensor, nn, randn
from torch.nn import functional
from torch.nn.utils import parametrizations

PROGRAMS = Programs()
program = PROGRAMS.add


def _scaled(function: Any) -> FunctionModule:
    return FunctionModule(
        lambda self, x, *rest: function(x * self.scale, *rest), scale=torch.ones(1)
    )


@program()
def conv1d() -> Program:
    model = nn.Sequential(
        nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 16, 3, stride=2)
    )
    return trained(model, randn(4, 16, 200))


@program()
def conv3d() -> Program:
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(8, 16, 3, groups=4),
    )  # fmt: skip
    return trained(model, randn(2, 3, 16, 16, 16))


@program()
def conv_transpose() -> Program:
    model = nn.Sequential(
        nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ConvTranspose2d(8, 4, 3, 2, output_padding=1)
    )
    return trained(model, randn(2, 8, 16, 16))


@program()
def conv_transpose3d() -> Program:
    return trained(nn.ConvTranspose3d(4, 8, 3, 2), randn(2, 4, 8, 8, 8))


@program()
def dilated_depthwise() -> Program:
    model = nn.Sequential(
        nn.Conv2d(16, 16, 3, dilation=2, groups=16, padding=2),
        nn.Conv2d(16, 32, 1),
        nn.Conv2d(32, 32, 5, padding="same", padding_mode="reflect"),
    )
    return trained(model, randn(2, 16, 32, 32))


@program()
def channels_last() -> Program:
    model = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3)
    )
    form = torch.channels_last
    return trained(model.to(memory_format=form), randn(2, 16, 32, 32).to(memory_format=form))


@program()
def channels_last_3d() -> Program:
    form = torch.channels_last_3d
    model = nn.Conv3d(8, 16, 3, padding=1).to(memory_format=form)
    return trained(model, randn(2, 8, 8, 8, 8).to(memory_format=form))


@program()
def unfold_and_fold() -> Program:
    def forward(x: Tensor) -> Tensor:
        return functional.fold(functional.unfold(x, 3, padding=1), (16, 16), 3, padding=1)

    return trained(_scaled(forward), randn(2, 8, 16, 16))


@program()
def locally_connected() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        windows = x.unfold(2, 3, 1).unfold(3, 3, 1)
        return torch.einsum("bchwij,chwij->bhw", windows, self.weights)

    return trained(FunctionModule(forward, weights=randn(4, 14, 14, 3, 3)), randn(2, 4, 16, 16))


@program()
def resampling() -> Program:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, ...]:
        x = functional.pixel_shuffle(self.conv(x), 2)
        modes = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
        return (
            *(functional.interpolate(x, scale_factor=2, mode=mode) for mode in modes),
            functional.interpolate(x, size=(9, 9), mode="bilinear", antialias=True),
            functional.pixel_unshuffle(x, 2),
        )

    model = FunctionModule(forward, conv=nn.Conv2d(8, 8, 3, padding=1))
    return trained(model, randn(2, 8, 16, 16))


@program()
def resampling_1d_and_3d() -> Program:
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (
            functional.interpolate(x, scale_factor=2, mode="trilinear"),
            functional.interpolate(y, scale_factor=2, mode="linear"),
        )

    return trained(_scaled(forward), randn(1, 4, 8, 8, 8), randn(2, 4, 32))


@program()
def pooling() -> Program:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        pooled, where = functional.max_pool2d(x, 2, return_indices=True)
        return (
            functional.max_unpool2d(pooled, where, 2),
            functional.avg_pool2d(x, 3, 2, 1),
            functional.adaptive_avg_pool2d(x, 5),
            functional.adaptive_max_pool2d(x, 5),
            functional.lp_pool2d(x.abs() + 1, 2, 2),
            functional.fractional_max_pool2d(x, 2, output_size=(8, 8)),
        )

    return trained(_scaled(forward), randn(2, 8, 16, 16))


@program()
def pooling_1d_and_3d() -> Program:
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.max_pool1d(x, 2), functional.avg_pool1d(x, 2),
            functional.adaptive_avg_pool1d(x, 5), functional.avg_pool3d(y, 2),
            functional.adaptive_avg_pool3d(y, 3), functional.adaptive_max_pool3d(y, 3),
            functional.max_pool3d(y, 2),
        )  # fmt: skip

    return trained(_scaled(forward), randn(2, 8, 64), randn(2, 4, 8, 8, 8))


@program()
def padding() -> Program:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        modes = ("constant", "reflect", "replicate", "circular")
        return tuple(functional.pad(x, (1, 2, 3, 1), mode=mode) for mode in modes)

    return trained(_scaled(forward), randn(2, 4, 16, 16))


@program()
def grid_sample() -> Program:
    def forward(x: Tensor, transform: Tensor) -> Tensor:
        grid = functional.affine_grid(transform, [2, 8, 16, 16], align_corners=False)
        return functional.grid_sample(x, grid, align_corners=False)

    return trained(_scaled(forward), randn(2, 8, 16, 16), randn(2, 2, 3))


@program()
def grid_sample_3d() -> Program:
    def forward(x: Tensor, grid: Tensor) -> Tensor:
        return functional.grid_sample(x, grid, align_corners=False)

    return trained(_scaled(forward), randn(2, 4, 8, 8, 8), randn(2, 8, 8, 8, 3))


@program()
def grid_sample_bicubic() -> Program:
    def forward(x: Tensor, grid: Tensor) -> Tensor:
        return functional.grid_sample(x, grid, mode="bicubic", align_corners=False)

    return trained(_scaled(forward), randn(2, 8, 16, 16), randn(2, 16, 16, 2))


def _all_norms() -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(8), nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True),
        nn.LocalResponseNorm(3), nn.LayerNorm([8, 16, 16]), nn.RMSNorm([16]),
    )  # fmt: skip


@program()
def norms() -> Program:
    return trained(_all_norms().eval(), randn(2, 8, 16, 16))


@program()
def norms_in_training() -> Program:
    return trained(_all_norms().train(), randn(2, 8, 16, 16))


@program()
def synchronised_batch_norm() -> Program:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    return trained(nn.SyncBatchNorm.convert_sync_batchnorm(model).eval(), randn(2, 3, 16, 16))


@program()
def weight_and_spectral_norm() -> Program:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(64, 64)),
        parametrizations.spectral_norm(nn.Linear(64, 64)),
        parametrizations.orthogonal(nn.Linear(64, 64)),
    )
    return trained(model, randn(8, 64))
