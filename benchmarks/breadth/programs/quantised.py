"""8-bit and 4-bit weights and activations, 8-bit floating point."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import Expected, Program, Programs, inference, mlp, trained
from torch import Tensor, nn, randint, randn
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add

PACKED = "the packed 8-bit weights of torch.ao are a CPU library's own, no other device has kernels"


@program(expected=Expected.REFUSED, because=PACKED)
def dynamic_int8_linear() -> Program:
    quantise = torch.ao.quantization.quantize_dynamic
    return inference(quantise(mlp(128), {nn.Linear}, dtype=torch.qint8), randn(16, 128))


@program(expected=Expected.REFUSED, because=PACKED)
def dynamic_int8_lstm() -> Program:
    quantise = torch.ao.quantization.quantize_dynamic
    return inference(quantise(nn.LSTM(32, 32), {nn.LSTM}, dtype=torch.qint8), randn(8, 4, 32))


class _FakeQuantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        scales, zeros = torch.full((64,), 0.1), torch.zeros(64, dtype=torch.int32)
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        weight = torch.fake_quantize_per_channel_affine(
            self.linear.weight, scales, zeros, 0, -128, 127
        )
        return functional.linear(x, weight, self.linear.bias)


@program()
def quantisation_aware_training() -> Program:
    return trained(_FakeQuantised(), randn(16, 64))


@program()
def int8_product() -> Program:
    a, b = (randint(-8, 8, (64, 64), dtype=torch.int8) for _ in range(2))
    return inference(lambda a, b: torch._int_mm(a, b).float(), a, b)


def _torchao(config: Any, model: nn.Module, x: Tensor) -> Program:
    from torchao.quantization import quantize_

    quantize_(model, config)
    return inference(model, x)


@program()
def torchao_int8_weights() -> Program:
    from torchao.quantization import Int8WeightOnlyConfig

    return _torchao(Int8WeightOnlyConfig(), mlp(256), randn(16, 256))


@program()
def torchao_int8_dynamic() -> Program:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return _torchao(Int8DynamicActivationInt8WeightConfig(), mlp(256), randn(16, 256))


@program()
def torchao_int4_weights() -> Program:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )
    return _torchao(config, mlp(256), randn(16, 256))


@program()
def torchao_float8_weights() -> Program:
    from torchao.quantization import Float8WeightOnlyConfig

    return _torchao(Float8WeightOnlyConfig(), mlp(256).bfloat16(), randn(16, 256).bfloat16())


@program()
def int8_weights_by_hand() -> Program:
    weights, scales = randint(-127, 127, (64, 128), dtype=torch.int8), torch.ones(64).bfloat16()
    x = randn(16, 128).bfloat16()
    return inference(lambda x, w, s: torch._weight_int8pack_mm(x, w, s), x, weights, scales)


@program()
def float8_product() -> Program:
    a, b = (randn(64, 128).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.tensor(1.0)

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return inference(multiply, a, b.t())


@program()
def float8_storage() -> Program:
    weights = randn(128, 128).to(torch.float8_e4m3fn)
    return inference(lambda x: x @ weights.to(torch.bfloat16), randn(32, 128).bfloat16())


@program()
def float8_formats() -> Program:
    def convert(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.to(torch.float8_e5m2).float(), x.abs().to(torch.float8_e8m0fnu).float()

    return inference(convert, randn(32, 128))
