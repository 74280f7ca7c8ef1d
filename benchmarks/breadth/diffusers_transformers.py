"""Transformers of diffusers for images, video and sound, as tiny networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from benchmarks.breadth.diffusers_models import Inputs, Tiny, images, times, videos
from torch import randn

_TEXT = 32
_SMALL: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}


def _text() -> torch.Tensor:
    return randn(2, 7, _TEXT)


def _image(channels: int, size: int = 16, **more: Any) -> Inputs:
    """Latents of an image, a time, a text; what is callable in ``more`` is called."""

    def inputs() -> Mapping[str, Any]:
        made = {name: make() if callable(make) else make for name, make in more.items()}
        named = {
            "hidden_states": images(channels, size), "timestep": times(),
            "encoder_hidden_states": _text(), **made,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value is not None}

    return inputs


def _video(channels: int, frames: int = 2, size: int = 16, **more: Any) -> Inputs:
    return _image(channels, hidden_states=lambda: videos(channels, frames, size), **more)


def _packed(channels: int, **more: Any) -> Inputs:
    """Sixteen tokens of an image with the positions of Flux and its kin."""
    return _image(
        channels,
        hidden_states=lambda: randn(2, 16, channels),
        img_ids=lambda: torch.zeros(16, more.pop("axes", 3)),
        txt_ids=lambda: torch.zeros(7, 3),
        **more,
    )


def _ones_mask() -> torch.Tensor:
    return torch.ones(2, 7)


def _float_times() -> torch.Tensor:
    return torch.tensor([10.0, 10.0])


def _pooled() -> torch.Tensor:
    return randn(2, _TEXT)


def _sizes() -> torch.Tensor:
    return torch.tensor([[32, 32]] * 2)


_FLUX = {
    **_SMALL, "num_single_layers": 2, "in_channels": 4, "joint_attention_dim": _TEXT,
    "axes_dims_rope": (4, 4, 8),
}  # fmt: skip
_WAN = {
    **_SMALL, "text_dim": _TEXT, "freq_dim": 32, "ffn_dim": 64, "rope_max_seq_len": 32,
}  # fmt: skip
_SD3 = {
    **_SMALL, "sample_size": 16, "in_channels": 4, "joint_attention_dim": _TEXT,
    "caption_projection_dim": 32, "pooled_projection_dim": _TEXT, "pos_embed_max_size": 16,
}  # fmt: skip
_SANA = {
    **_SMALL, "in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 2,
    "cross_attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": _TEXT,
    "sample_size": 16,
}  # fmt: skip
_COGVIDEO = {
    **_SMALL, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": _TEXT,
    "sample_width": 16, "sample_height": 16, "sample_frames": 5, "max_text_seq_length": 7,
}  # fmt: skip
_COGVIEW = {
    **_SMALL, "in_channels": 4, "out_channels": 4, "text_embed_dim": _TEXT, "time_embed_dim": 16,
    "condition_dim": 8, "pos_embed_max_size": 16, "sample_size": 16,
}  # fmt: skip
_COGVIEW_SIZES = {"original_size": _sizes, "target_size": _sizes, "crop_coords": _sizes}

TRANSFORMERS: dict[str, Tiny] = {
    "DiTTransformer2DModel": Tiny(
        {**_SMALL, "sample_size": 16, "num_embeds_ada_norm": 10, "norm_num_groups": 2},
        _image(4, encoder_hidden_states=None, class_labels=lambda: torch.tensor([1, 2]),
               timestep=lambda: torch.tensor([3, 3])),
    ),
    "PixArtTransformer2DModel": Tiny(
        {**_SMALL, "sample_size": 16, "cross_attention_dim": 32, "caption_channels": _TEXT,
         "use_additional_conditions": False},
        _image(4, added_cond_kwargs=lambda: {"resolution": None, "aspect_ratio": None}),
    ),
    "SD3Transformer2DModel": Tiny(
        {**_SD3, "out_channels": 4}, _image(4, pooled_projections=_pooled)
    ),
    "SD3ControlNetModel": Tiny(
        {**_SD3, "out_channels": 4},
        _image(4, pooled_projections=_pooled, controlnet_cond=lambda: images(4, 16)),
    ),
    "FluxTransformer2DModel": Tiny(
        {**_FLUX, "pooled_projection_dim": _TEXT}, _packed(4, pooled_projections=_pooled)
    ),
    "FluxControlNetModel": Tiny(
        {**_FLUX, "pooled_projection_dim": _TEXT},
        _packed(4, pooled_projections=_pooled, controlnet_cond=lambda: randn(2, 16, 4)),
    ),
    "Flux2Transformer2DModel": Tiny(
        {**_FLUX, "axes_dims_rope": (4, 4, 4, 4), "timestep_guidance_channels": 32,
         "guidance_embeds": False},
        _image(4, hidden_states=lambda: randn(2, 16, 4), img_ids=lambda: torch.zeros(16, 4),
               txt_ids=lambda: torch.zeros(7, 4)),
    ),
    "ChromaTransformer2DModel": Tiny(
        {**_FLUX, "approximator_num_channels": 8, "approximator_hidden_dim": 32,
         "approximator_layers": 1},
        _packed(4, attention_mask=lambda: torch.ones(2, 23)),
    ),
    "BriaTransformer2DModel": Tiny({**_FLUX, "axes_dims_rope": [4, 4, 8]}, _packed(4)),
    "OvisImageTransformer2DModel": Tiny({**_FLUX, "out_channels": 4}, _packed(4)),
    "LongCatImageTransformer2DModel": Tiny({**_FLUX, "axes_dims_rope": [4, 4, 8]}, _packed(4)),
    "AuraFlowTransformer2DModel": Tiny(
        {"sample_size": 16, "num_mmdit_layers": 1, "num_single_dit_layers": 1,
         "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": _TEXT,
         "caption_projection_dim": 32, "pos_embed_max_size": 256},
        _image(4),
    ),
    "CogVideoXTransformer3DModel": Tiny(
        _COGVIDEO, _image(4, hidden_states=lambda: randn(2, 2, 4, 16, 16))
    ),
    "ConsisIDTransformer3DModel": Tiny(
        _COGVIDEO, _image(4, hidden_states=lambda: randn(2, 2, 4, 16, 16))
    ),
    "CogView3PlusTransformer2DModel": Tiny(_COGVIEW, _image(4, **_COGVIEW_SIZES)),
    "CogView4Transformer2DModel": Tiny(
        {**_COGVIEW, "rope_axes_dim": (16, 16)}, _image(4, **_COGVIEW_SIZES)
    ),
    "HunyuanDiT2DModel": Tiny(
        {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "hidden_size": 32,
         "in_channels": 4, "patch_size": 2, "sample_size": 16, "cross_attention_dim": _TEXT,
         "cross_attention_dim_t5": _TEXT, "pooled_projection_dim": 32, "text_len": 7,
         "text_len_t5": 7, "use_style_cond_and_image_meta_size": False},
        _image(4, timestep=_float_times, text_embedding_mask=_ones_mask,
               encoder_hidden_states_t5=_text,
               text_embedding_mask_t5=_ones_mask,
               image_rotary_emb=lambda: (torch.ones(64, 16), torch.ones(64, 16))),
    ),
    "HunyuanVideoTransformer3DModel": Tiny(
        {**_SMALL, "num_single_layers": 2, "num_refiner_layers": 1, "in_channels": 4,
         "out_channels": 4, "text_embed_dim": _TEXT, "pooled_projection_dim": _TEXT,
         "rope_axes_dim": (4, 4, 8), "guidance_embeds": False},
        _video(4, encoder_attention_mask=_ones_mask, pooled_projections=_pooled),
    ),
    "HunyuanImageTransformer2DModel": Tiny(
        {**_SMALL, "num_single_layers": 2, "num_refiner_layers": 1, "in_channels": 4,
         "out_channels": 4, "text_embed_dim": _TEXT, "rope_axes_dim": (8, 8)},
        _image(4, timestep=_float_times, encoder_attention_mask=_ones_mask),
    ),
    "LTXVideoTransformer3DModel": Tiny(
        {**_SMALL, "in_channels": 8, "out_channels": 8, "cross_attention_dim": 32,
         "caption_channels": _TEXT},
        _image(8, hidden_states=lambda: randn(2, 32, 8), encoder_attention_mask=_ones_mask,
               num_frames=2, height=4, width=4),
    ),
    "Lumina2Transformer2DModel": Tiny(
        {"sample_size": 16, "in_channels": 4, "hidden_size": 24, "num_layers": 1,
         "num_refiner_layers": 1, "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2,
         "axes_dim_rope": (4, 2, 2), "axes_lens": (128, 128, 128), "cap_feat_dim": _TEXT},
        _image(4, encoder_attention_mask=lambda: torch.ones(2, 7, dtype=torch.bool)),
    ),
    "LuminaNextDiT2DModel": Tiny(
        {"sample_size": 16, "hidden_size": 24, "num_layers": 2, "num_attention_heads": 3,
         "num_kv_heads": 1, "multiple_of": 16, "ffn_dim_multiplier": None,
         "cross_attention_dim": _TEXT},
        _image(4, encoder_mask=lambda: torch.ones(2, 7),
               image_rotary_emb=lambda: torch.ones(384, 384, 4, dtype=torch.complex64),
               cross_attention_kwargs=dict),
    ),
    "MochiTransformer3DModel": Tiny(
        {**_SMALL, "pooled_projection_dim": 16, "in_channels": 4, "text_embed_dim": _TEXT,
         "time_embed_dim": 4, "max_sequence_length": 7},
        _video(4, encoder_attention_mask=lambda: torch.ones(2, 7, dtype=torch.bool)),
    ),
    "LatteTransformer3DModel": Tiny(
        {**_SMALL, "sample_size": 8, "in_channels": 4, "out_channels": 8, "patch_size": 2,
         "caption_channels": _TEXT, "cross_attention_dim": 32, "norm_type": "ada_norm_single",
         "norm_elementwise_affine": False, "num_embeds_ada_norm": 1000, "attention_bias": True,
         "video_length": 2, "activation_fn": "gelu-approximate"},
        _video(4, 2, 8),
    ),
    "SanaTransformer2DModel": Tiny(_SANA, _image(4)),
    "SanaControlNetModel": Tiny(_SANA, _image(4, controlnet_cond=lambda: images(4, 16))),
    "SanaVideoTransformer3DModel": Tiny({**_SANA, "rope_max_seq_len": 32}, _video(4)),
    "WanTransformer3DModel": Tiny({**_WAN, "in_channels": 4, "out_channels": 4}, _video(4)),
    "WanVACETransformer3DModel": Tiny(
        {**_WAN, "in_channels": 4, "out_channels": 4, "vace_layers": [0], "vace_in_channels": 8},
        _video(4, control_hidden_states=lambda: videos(8, 2, 16)),
    ),
    "SkyReelsV2Transformer3DModel": Tiny({**_WAN, "in_channels": 4, "out_channels": 4}, _video(4)),
    "ChronoEditTransformer3DModel": Tiny({**_WAN, "in_channels": 4, "out_channels": 4}, _video(4)),
    "EasyAnimateTransformer3DModel": Tiny(
        {**_SMALL, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
         "text_embed_dim": _TEXT, "sample_width": 16, "sample_height": 16, "patch_size": 2,
         "mmdit_layers": 1},
        _video(4),
    ),
    "OmniGenTransformer2DModel": Tiny(
        {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
         "intermediate_size": 64, "num_layers": 1, "pad_token_id": 0, "vocab_size": 128,
         "time_step_dim": 32,
         "rope_scaling": {"long_factor": [1.0] * 4, "short_factor": [1.0] * 4}},
        _image(4, encoder_hidden_states=None, input_ids=lambda: torch.randint(0, 100, (2, 9)),
               input_img_latents=list, input_image_sizes=dict,
               attention_mask=lambda: torch.ones(2, 74, 74),
               position_ids=lambda: torch.arange(74).repeat(2, 1)),
    ),
    "QwenImageTransformer2DModel": Tiny(
        {**_SMALL, "in_channels": 16, "out_channels": 4, "joint_attention_dim": _TEXT,
         "axes_dims_rope": (4, 4, 8)},
        _image(16, hidden_states=lambda: randn(2, 16, 16), encoder_hidden_states_mask=_ones_mask,
               img_shapes=lambda: [[(1, 4, 4)]] * 2),
    ),
    "HiDreamImageTransformer2DModel": Tiny(
        {**_SMALL, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 1,
         "num_single_layers": 1, "caption_channels": [32, 16], "text_emb_dim": 64,
         "axes_dims_rope": (4, 2, 2), "attention_head_dim": 8, "num_attention_heads": 4,
         "max_resolution": (32, 32), "llama_layers": (0, 1), "force_inference_output": True},
        lambda: {
            "hidden_states": randn(2, 4, 32, 32), "timesteps": times(),
            "encoder_hidden_states_t5": randn(2, 8, 32),
            "encoder_hidden_states_llama3": randn(2, 2, 8, 16), "pooled_embeds": randn(2, 64),
        },
    ),
    "PriorTransformer": Tiny(
        {**_SMALL, "embedding_dim": 8, "num_embeddings": 7},
        lambda: {
            "hidden_states": randn(2, 8), "timestep": times(), "proj_embedding": randn(2, 8),
            "encoder_hidden_states": randn(2, 7, 8),
        },
    ),
    "UVit2DModel": Tiny(
        {"hidden_size": 32, "cond_embed_dim": _TEXT, "micro_cond_encode_dim": 16,
         "micro_cond_embed_dim": 80, "encoder_hidden_size": _TEXT, "vocab_size": 64,
         "codebook_size": 60, "in_channels": 32, "block_out_channels": 32, "num_res_blocks": 1,
         "block_num_heads": 2, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 64, "sample_size": 8},
        lambda: {
            "input_ids": torch.randint(0, 60, (2, 8, 8)), "encoder_hidden_states": _text(),
            "pooled_text_emb": _pooled(), "micro_conds": randn(2, 5),
        },
    ),
    "StableAudioDiTModel": Tiny(
        {**_SMALL, "sample_size": 4, "in_channels": 4, "out_channels": 4,
         "num_key_value_attention_heads": 1, "cross_attention_dim": 16, "time_proj_dim": 8,
         "global_states_input_dim": 8, "cross_attention_input_dim": _TEXT},
        _image(4, hidden_states=lambda: randn(2, 4, 16),
               global_hidden_states=lambda: randn(2, 1, 8),
               rotary_embedding=lambda: (torch.ones(17, 8), torch.ones(17, 8))),
    ),
    "ZImageTransformer2DModel": Tiny(
        {"in_channels": 4, "dim": 32, "n_layers": 1, "n_refiner_layers": 1, "n_heads": 2,
         "n_kv_heads": 2, "cap_feat_dim": _TEXT, "axes_dims": [8, 4, 4],
         "axes_lens": [256, 32, 32]},
        lambda: {
            "x": [randn(4, 1, 16, 16) for _ in range(2)], "t": torch.tensor([0.5, 0.5]),
            "cap_feats": [randn(7, _TEXT) for _ in range(2)],
        },
    ),
    "PRXTransformer2DModel": Tiny(
        {"in_channels": 4, "context_in_dim": _TEXT, "hidden_size": 32, "num_heads": 2, "depth": 2,
         "axes_dim": [8, 8]},
        _image(4, timestep=lambda: torch.tensor([0.5, 0.5])),
    ),
    "Kandinsky5Transformer3DModel": Tiny(
        {"in_text_dim": _TEXT, "in_text_dim2": _TEXT, "time_dim": 32, "model_dim": 32,
         "ff_dim": 64, "num_text_blocks": 1, "num_visual_blocks": 1, "axes_dims": (8, 4, 4)},
        _image(4, hidden_states=lambda: randn(1, 2, 8, 8, 4), timestep=lambda: torch.tensor([10]),
               encoder_hidden_states=lambda: randn(1, 7, _TEXT),
               pooled_projections=lambda: randn(1, _TEXT),
               visual_rope_pos=lambda: [torch.arange(2), torch.arange(4), torch.arange(4)],
               text_rope_pos=lambda: torch.arange(7)),
    ),
    "Transformer2DModel": Tiny(
        {**_SMALL, "in_channels": 32, "norm_num_groups": 8, "cross_attention_dim": _TEXT},
        _image(32, timestep=None),
    ),
    "TransformerTemporalModel": Tiny(
        {**_SMALL, "in_channels": 32, "norm_num_groups": 8},
        _image(32, timestep=None, encoder_hidden_states=None, num_frames=2),
    ),
    "T5FilmDecoder": Tiny(
        {"input_dims": 16, "targets_length": 8, "d_model": 32, "num_layers": 2, "num_heads": 2,
         "d_kv": 16, "d_ff": 64},
        lambda: {
            "encodings_and_masks": [(randn(2, 7, 32), torch.ones(2, 7))],
            "decoder_input_tokens": randn(2, 8, 16), "decoder_noise_time": torch.rand(2),
        },
    ),
}  # fmt: skip
