"""A DiT block of diffusers and its parts, with inputs. torch is imported when one is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.lab.networks import build
from gobrrr.lab.setting import Setting, torch_generator

# DiT-S on a CPU, DiT-XL on a GPU (https://arxiv.org/abs/2212.09748, table 1).
CPU_WIDTH, CPU_HEADS = 384, 6
GPU_WIDTH, GPU_HEADS = 1152, 16


@dataclass(frozen=True)
class AdaLn:
    """The chain around one sublayer: normalise, scale and shift; then gate and add.

    ``modulate`` takes (x, shift, scale), ``gate`` takes (x, sublayer's output, gate).
    """

    modulate: Callable[[Any, Any, Any], Any]
    gate: Callable[[Any, Any, Any], Any]
    modulate_inputs: tuple[Any, Any, Any]
    gate_inputs: tuple[Any, Any, Any]

    def run(self) -> tuple[Any, Any]:
        """Both parts, operator by operator."""
        return self.modulate(*self.modulate_inputs), self.gate(*self.gate_inputs)


@dataclass(frozen=True)
class Block:
    """The block, an input of (clips, tokens, width), and the inputs of its parts.

    ``heads`` are q, k and v of (clips, heads, tokens, width / heads).
    """

    module: Any
    forward: Callable[[Any], Any]
    x: Any
    heads: tuple[Any, Any, Any]
    ada_ln: AdaLn


def make_block(setting: Setting, tokens: int, clips: int = 1) -> Block:
    """A block with AdaLN-Zero on the setting's device, float32, weights from its seed."""
    import torch
    from diffusers.models.attention import BasicTransformerBlock

    width, heads = (GPU_WIDTH, GPU_HEADS) if setting.is_gpu else (CPU_WIDTH, CPU_HEADS)
    module = build(
        setting,
        lambda: BasicTransformerBlock(
            width, heads, width // heads, norm_type="ada_norm_zero", num_embeds_ada_norm=1000,
            attention_bias=True, activation_fn="gelu-approximate", norm_elementwise_affine=False,
        ),
    )  # fmt: skip
    generator = torch_generator(setting)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, device=setting.device)

    x = random(clips, tokens, width)
    timestep = torch.full((clips,), 500, device=setting.device)
    label = torch.full((clips,), 7, device=setting.device)

    def forward(given: Any) -> Any:
        return module(given, timestep=timestep, class_labels=label)

    shape = (clips, heads, tokens, width // heads)
    shift, scale, gate = (random(clips, 1, width) for _ in range(3))
    chain = AdaLn(_modulate, _gate, (x, shift, scale), (x, random(clips, tokens, width), gate))
    return Block(module, forward, x, (random(*shape), random(*shape), random(*shape)), chain)


def _modulate(x: Any, shift: Any, scale: Any) -> Any:
    import torch

    normal = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6)
    return normal * (1 + scale) + shift


def _gate(x: Any, output: Any, gate: Any) -> Any:
    return x + gate * output


def attend(q: Any, k: Any, v: Any, *, flash: bool) -> Any:
    """Attention by the flash kernel, or by two products and a softmax."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = SDPBackend.FLASH_ATTENTION if flash else SDPBackend.MATH
    if flash and q.is_cuda:
        # The flash kernels of a GPU take half precision alone; float32 has the efficient one.
        backend = SDPBackend.EFFICIENT_ATTENTION
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
