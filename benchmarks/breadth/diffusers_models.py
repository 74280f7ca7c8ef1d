"""Model classes of diffusers as tiny networks with random weights; nothing is downloaded.

Autoencoders and convolutional networks stand here, transformers in ``diffusers_transformers.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.breadth.case import Program, mean_squares
from torch import Tensor, randn

Inputs = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Tiny:
    """A class's configuration, and its inputs by name."""

    config: Mapping[str, Any]
    inputs: Inputs


def build(class_name: str, tiny: Tiny) -> Program:
    """The network of a class with its inputs."""
    import diffusers

    model = getattr(diffusers, class_name)(**tiny.config).eval()
    return Program(model, tiny.inputs(), mean_squares)


def times() -> Tensor:
    """Time steps of a batch of two."""
    return torch.tensor([10, 10])


def images(channels: int = 3, size: int = 32) -> Tensor:
    return randn(2, channels, size, size)


def videos(channels: int = 3, frames: int = 5, size: int = 32) -> Tensor:
    return randn(2, channels, frames, size, size)


def _image_sample() -> Mapping[str, Any]:
    return {"sample": images()}


def _latents_with_text(**more: Callable[[], Any]) -> Inputs:
    def inputs() -> Mapping[str, Any]:
        made = {name: make() for name, make in more.items()}
        text = randn(2, 7, 32)
        return {"sample": images(4), "timestep": times(), "encoder_hidden_states": text, **made}

    return inputs


_TWO_LEVELS: dict[str, Any] = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8,
}  # fmt: skip
_ENCODER = {
    **_TWO_LEVELS,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
_CONDITIONED = {
    **_TWO_LEVELS, "cross_attention_dim": 32, "attention_head_dim": 8,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
}  # fmt: skip
_CONTROL = {**_CONDITIONED, "conditioning_embedding_out_channels": (16, 32)}

_AUTOENCODERS: dict[str, Tiny] = {
    "AutoencoderKL": Tiny(_ENCODER, _image_sample),
    "AsymmetricAutoencoderKL": Tiny(
        {
            "down_block_types": ("DownEncoderBlock2D",) * 2, "down_block_out_channels": (32, 64),
            "up_block_types": ("UpDecoderBlock2D",) * 2, "up_block_out_channels": (32, 64),
            "norm_num_groups": 8,
        },
        _image_sample,
    ),
    "AutoencoderTiny": Tiny(
        {
            "encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1),
        },
        _image_sample,
    ),
    "VQModel": Tiny({**_ENCODER, "num_vq_embeddings": 64}, _image_sample),
    "AutoencoderKLTemporalDecoder": Tiny(
        {
            "block_out_channels": (32, 64), "layers_per_block": 1,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
        },
        lambda: {"sample": images(), "num_frames": 2},
    ),
    "AutoencoderKLFlux2": Tiny({**_ENCODER, "latent_channels": 4}, _image_sample),
    "AutoencoderDC": Tiny(
        {
            "latent_channels": 4, "attention_head_dim": 8,
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "encoder_block_out_channels": (16, 32), "decoder_block_out_channels": (16, 32),
            "encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,)),
            "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1),
            "downsample_block_type": "conv", "upsample_block_type": "interpolate",
        },
        _image_sample,
    ),
    "AutoencoderOobleck": Tiny(
        {
            "encoder_hidden_size": 12, "decoder_channels": 12, "decoder_input_channels": 6,
            "audio_channels": 2, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2],
        },
        lambda: {"sample": randn(2, 2, 256)},
    ),
    "AutoencoderKLWan": Tiny(
        {"base_dim": 8, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
        lambda: {"sample": videos()},
    ),
    "AutoencoderKLQwenImage": Tiny(
        {"base_dim": 8, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
        lambda: {"sample": videos(frames=1)},
    ),
    "AutoencoderKLCogVideoX": Tiny(
        {
            "block_out_channels": (8, 8, 8, 8), "latent_channels": 4, "layers_per_block": 1,
            "norm_num_groups": 2,
        },
        lambda: {"sample": videos(size=16)},
    ),
    "AutoencoderKLHunyuanVideo": Tiny(
        {
            "block_out_channels": (8, 8, 8, 8), "latent_channels": 4, "layers_per_block": 1,
            "norm_num_groups": 2,
        },
        lambda: {"sample": videos(size=16)},
    ),
    "AutoencoderKLLTXVideo": Tiny(
        {
            "latent_channels": 8, "block_out_channels": (8, 8, 8, 8),
            "decoder_block_out_channels": (8, 8, 8, 8), "layers_per_block": (1, 1, 1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1, 1, 1),
        },
        lambda: {"sample": videos(frames=9)},
    ),
    "AutoencoderKLMagvit": Tiny(
        {
            "block_out_channels": [8, 8, 8, 8], "latent_channels": 4, "layers_per_block": 1,
            "norm_num_groups": 2,
        },
        lambda: {"sample": videos(frames=9, size=16)},
    ),
    "AutoencoderKLMochi": Tiny(
        {
            "encoder_block_out_channels": (32, 32, 32, 32), "latent_channels": 4,
            "decoder_block_out_channels": (32, 32, 32, 32), "layers_per_block": (1, 1, 1, 1, 1),
        },
        lambda: {"sample": videos(frames=7, size=16)},
    ),
    "AutoencoderKLCosmos": Tiny(
        {
            "latent_channels": 4, "encoder_block_out_channels": (8, 8, 8, 8),
            "decode_block_out_channels": (8, 8, 8, 8), "attention_resolutions": (8,),
            "resolution": 64, "num_layers": 2, "patch_size": 4,
        },
        lambda: {"sample": videos(frames=9)},
    ),
}  # fmt: skip

_NETWORKS: dict[str, Tiny] = {
    "UNet2DModel": Tiny(
        {
            **_TWO_LEVELS, "attention_head_dim": 8,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        lambda: {"sample": images(), "timestep": times()},
    ),
    "UNet2DConditionModel": Tiny(
        {**_CONDITIONED, "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")},
        _latents_with_text(),
    ),
    "UNet1DModel": Tiny(
        {"sample_size": 64, "in_channels": 4, "out_channels": 4, "extra_in_channels": 64},
        lambda: {"sample": randn(2, 4, 64), "timestep": torch.tensor([10])},
    ),
    "UNet3DConditionModel": Tiny(
        {
            **_TWO_LEVELS, "cross_attention_dim": 32, "attention_head_dim": 8,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        _latents_with_text(sample=lambda: videos(4, 4)),
    ),
    "I2VGenXLUNet": Tiny(
        {
            **_TWO_LEVELS, "cross_attention_dim": 32, "attention_head_dim": 8,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        _latents_with_text(
            sample=lambda: videos(4, 4),
            fps=lambda: torch.tensor([2, 2]),
            image_latents=lambda: videos(4, 4),
            image_embeddings=lambda: randn(2, 32),
        ),
    ),
    "UNetMotionModel": Tiny(
        {
            **_TWO_LEVELS, "cross_attention_dim": 32, "num_attention_heads": 2,
            "motion_num_attention_heads": 2,
            "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
            "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion"),
        },
        _latents_with_text(
            sample=lambda: videos(4, 4), encoder_hidden_states=lambda: randn(8, 7, 32)
        ),
    ),
    "UNetSpatioTemporalConditionModel": Tiny(
        {
            "block_out_channels": (32, 64), "layers_per_block": 1, "num_attention_heads": (2, 2),
            "cross_attention_dim": 32, "addition_time_embed_dim": 32,
            "projection_class_embeddings_input_dim": 96,
            "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        },
        lambda: {
            "sample": randn(2, 2, 8, 32, 32), "timestep": torch.tensor([10]),
            "encoder_hidden_states": randn(2, 1, 32),
            "added_time_ids": torch.tensor([[6, 127, 0.02]] * 2),
        },
    ),
    "StableCascadeUNet": Tiny(
        {
            "block_out_channels": (32, 64), "num_attention_heads": (2, 2), "conditioning_dim": 32,
            "down_num_layers_per_block": (1, 1), "up_num_layers_per_block": (1, 1),
            "clip_text_pooled_in_channels": 32,
        },
        lambda: {
            "sample": images(16), "timestep_ratio": torch.tensor([0.5, 0.5]),
            "clip_text_pooled": randn(2, 1, 32),
        },
    ),
    "ControlNetModel": Tiny(
        _CONTROL, _latents_with_text(controlnet_cond=lambda: images(3, 64))
    ),
    "SparseControlNetModel": Tiny(
        {
            **_TWO_LEVELS, "cross_attention_dim": 32, "num_attention_heads": 2,
            "motion_num_attention_heads": 2, "conditioning_embedding_out_channels": (16, 32),
            "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
        },
        _latents_with_text(
            sample=lambda: videos(4, 4),
            encoder_hidden_states=lambda: randn(8, 7, 32),
            controlnet_cond=lambda: videos(4, 4),
            conditioning_mask=lambda: torch.ones(2, 1, 4, 32, 32),
        ),
    ),
    "T2IAdapter": Tiny(
        {"channels": [32, 64], "num_res_blocks": 1, "downscale_factor": 4},
        lambda: {"x": images()},
    ),
}  # fmt: skip


def _all() -> dict[str, Tiny]:
    from benchmarks.breadth.diffusers_transformers import TRANSFORMERS

    return {**_AUTOENCODERS, **_NETWORKS, **TRANSFORMERS}


def all_models() -> dict[str, Callable[[], Program]]:
    """The builder of every class, by the class's name."""
    return {name: functools.partial(build, name, tiny) for name, tiny in _all().items()}
