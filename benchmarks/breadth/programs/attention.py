"""Attention in all its forms: modules, fused kernels, masks, flex_attention, linear attention."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, inference, trained
from torch import Tensor, nn, randn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

PROGRAMS = Programs()
program = PROGRAMS.add


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


def _scaled(function: Any) -> FunctionModule:
    """The function of an input times a parameter, so that there is something to train."""
    return FunctionModule(
        lambda self, x, *rest: function(x * self.scale, x, *rest), scale=torch.ones(1)
    )


@program()
def transformer() -> Program:
    model = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)
    return trained(model, randn(4, 16, 64), randn(4, 16, 64))


@program()
def encoder_fast_path() -> Program:
    return trained(_encoder(), randn(4, 32, 64))


@program()
def encoder_padding_mask() -> Program:
    mask = torch.zeros(4, 32, dtype=torch.bool)
    mask[1, 20:] = True
    mask[2, 5:] = True
    model = FunctionModule(
        lambda self, x, mask: self.encoder(x, src_key_padding_mask=mask), encoder=_encoder()
    )
    return trained(model, randn(4, 32, 64), mask)


@program()
def multihead_with_weights() -> Program:
    model = FunctionModule(
        lambda self, x: self.attention(x, x, x, need_weights=True),
        attention=nn.MultiheadAttention(64, 4, batch_first=True),
    )
    return trained(model, randn(4, 32, 64))


@program()
def multihead_fast_path() -> Program:
    model = FunctionModule(
        lambda self, x: self.attention(x, x, x, need_weights=False)[0],
        attention=nn.MultiheadAttention(64, 4, batch_first=True).eval(),
    )
    return trained(model, randn(4, 32, 64))


@program()
def causal() -> Program:
    def attend(query: Tensor, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, x, x, is_causal=True)

    return trained(_scaled(attend), randn(2, 4, 128, 64))


@program()
def grouped_queries() -> Program:
    def attend(query: Tensor, _: Tensor, key: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    return trained(_scaled(attend), randn(2, 8, 128, 64), randn(2, 2, 128, 64))


@program()
def float_mask() -> Program:
    def attend(query: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, x, x, attn_mask=mask)

    return trained(_scaled(attend), randn(2, 4, 64, 32), randn(64, 64))


@program()
def math_backend() -> Program:
    def attend(query: Tensor, x: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(query, x, x)

    return trained(_scaled(attend), randn(2, 4, 64, 32))


@program()
def flex_attention_eager() -> Program:
    from torch.nn.attention.flex_attention import flex_attention

    def distance(score: Tensor, _b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + (query - key) * 0.01

    def attend(query: Tensor, x: Tensor) -> Any:
        return flex_attention(query, x, x, score_mod=distance)

    return trained(_scaled(attend), randn(2, 2, 128, 32))


@program()
def flex_attention_block_mask() -> Program:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(
        lambda _b, _h, query, key: query >= key, None, None, 128, 128, device="cpu"
    )
    return trained(
        _scaled(lambda query, x: flex_attention(query, x, x, block_mask=mask)),
        randn(2, 2, 128, 32),
    )


@program()
def flex_attention_compiled() -> Program:
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention)
    return inference(_scaled(lambda query, x: compiled(query, x, x)), randn(2, 2, 128, 32))


@program()
def linear_attention() -> Program:
    def attend(query: Tensor, _: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = functional.elu(query) + 1, functional.elu(key) + 1
        products = torch.einsum("bhnd,bhne->bhde", key, value)
        scale = 1 / (torch.einsum("bhnd,bhd->bhn", query, key.sum(2)) + 1e-6)
        return torch.einsum("bhnd,bhde,bhn->bhne", query, products, scale)

    inputs = [randn(2, 4, 128, 32) for _ in range(3)]
    return trained(_scaled(attend), *inputs)


@program()
def mask_of_a_closure() -> Program:
    mask = torch.ones(128, 128, dtype=torch.bool)

    def attend(query: Tensor, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, x, x, attn_mask=mask)

    return trained(_scaled(attend), randn(2, 4, 128, 64))
