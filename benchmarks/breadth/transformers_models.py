"""Every model type of transformers as a tiny network with random weights; nothing is downloaded.

A type's configuration class is made small by rules that go by the names of its fields (widths 64,
two layers, a vocabulary of 256), and its inputs come from the signature of its ``forward``. Where
the first set of rules gives no network that runs, the next is tried. ``make_table.py`` writes what
was found into ``architectures.json``; the sweep builds from that table alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from benchmarks.breadth.case import Program, mean_squares

BATCH = 2
TOKENS = 16
MOST_PARAMETERS = 60_000_000

_WIDTH, _HEADS, _HEAD_WIDTH, _INNER, _LAYERS, _EXPERTS = 64, 4, 16, 128, 2, 4
_FIELDS: dict[int, str] = {
    _WIDTH: "hidden_size d_model n_embd embed_dim dim emb_dim model_dim hidden_dim "
    "encoder_hidden_size decoder_hidden_size embedding_size projection_dim text_embed_dim "
    "classifier_proj_size output_hidden_size out_hidden_size out_dim q_hidden_size lru_width "
    "attention_hidden_size",
    _HEADS: "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads "
    "num_heads attention_heads num_encoder_attention_heads num_decoder_attention_heads "
    "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts",
    _HEAD_WIDTH: "head_dim d_kv qk_head_dim attention_head_dim kv_channels v_head_dim "
    "kv_lora_rank mamba_d_state sliding_window",
    _INNER: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner mlp_dim "
    "dim_feedforward encoder_intermediate_size ffn_hidden_size decoder_intermediate_size "
    "feedforward_dim dense_intermediate_size max_position_embeddings n_positions "
    "max_target_positions n_ctx max_seq_len",
    _LAYERS: "num_hidden_layers n_layer n_layers encoder_layers decoder_layers num_layers "
    "num_decoder_layers num_encoder_layers depth encoder_num_hidden_layers "
    "decoder_num_hidden_layers num_key_value_heads num_kv_heads num_experts_per_tok moe_k "
    "top_k_experts moe_top_k experts_per_token",
    256: "vocab_size text_vocab_size",
    32: "moe_intermediate_size shared_expert_intermediate_size expert_ffn_dim image_size "
    "q_lora_rank",
    8: "patch_size qk_rope_head_dim qk_nope_head_dim state_size",
    5: "num_labels",
    1: "n_shared_experts num_shared_experts n_group topk_group first_k_dense_replace",
}
SIZES = {name: size for size, names in _FIELDS.items() for name in names.split()}
# These are lowered, never raised.
_AT_MOST = frozenset((
    "num_key_value_heads", "num_kv_heads", "num_experts_per_tok", "n_group", "topk_group",
    "first_k_dense_replace", "n_shared_experts", "num_shared_experts",
))  # fmt: skip
_TOKENS_OF_THEIR_OWN = frozenset((
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id",
    "cls_token_id", "mask_token_id", "unk_token_id", "image_token_id", "video_token_id",
    "audio_token_id", "image_token_index",
))  # fmt: skip


def _without(sizes: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name not in names}


_NO_HEADS = _without(SIZES, "head_dim", "d_kv", "attention_head_dim", "kv_channels")
_LAYERS_ONLY = {name: size for name, size in SIZES.items() if "layer" in name}
RULES: dict[str, dict[str, int]] = {
    "all": SIZES,
    "heads as they are": _NO_HEADS,
    "images as they are": _without(SIZES, "patch_size", "image_size"),
    "heads and images as they are": _without(_NO_HEADS, "patch_size", "image_size"),
    "layers as they are": {
        name: size for name, size in SIZES.items() if "layer" not in name and name != "depth"
    },
    "projections as they are": _without(
        _NO_HEADS, "projection_dim", "embedding_size", "embed_dim", "dim"
    ),
    "layers, vocabulary and experts": {
        name: size
        for name, size in SIZES.items()
        if "layer" in name or name == "vocab_size" or "expert" in name
    },
    "layers": _LAYERS_ONLY,
    "none": {},
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a type's network is built: the model class, the set of rules, which of its inputs."""

    model: str
    rules: str
    inputs: int
    parameters: int


def small_config(config_class: Any, sizes: Mapping[str, int], depth: int = 0) -> Any:
    """An instance of a configuration class, its fields (and its parts') lowered to ``sizes``."""
    from transformers.configuration_utils import PreTrainedConfig

    default = config_class()
    changed: dict[str, Any] = {}
    for name in _field_names(config_class):
        current = getattr(default, name, None)
        is_int = isinstance(current, int) and not isinstance(current, bool)
        if name in sizes and is_int:
            changed[name] = min(sizes[name], current) if name in _AT_MOST else sizes[name]
        elif name in _TOKENS_OF_THEIR_OWN and "vocab_size" in sizes:
            if is_int and current >= 256:
                changed[name] = 250 + sum(map(ord, name)) % 5
            elif isinstance(current, list) and any(
                isinstance(token, int) and token >= 256 for token in current
            ):
                changed[name] = [2]
        elif isinstance(current, PreTrainedConfig) and depth < 3:
            changed[name] = small_config(type(current), sizes, depth + 1)
    return config_class(**changed)


def _field_names(config_class: Any) -> list[str]:
    if dataclasses.is_dataclass(config_class):
        return [field.name for field in dataclasses.fields(config_class)]
    names = inspect.signature(config_class.__init__).parameters
    return [name for name in names if name not in ("self", "kwargs")]


_HEADS_FIRST = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION", "CTC", "SEMANTIC_SEGMENTATION", "OBJECT_DETECTION", "DEPTH_ESTIMATION",
    None, "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "PRETRAINING",
)  # fmt: skip


def model_class_of(config_class: Any) -> Any:
    """The class that is built for a configuration: with a head if it has one; ``None``: none."""
    from transformers.models.auto import modeling_auto

    for head in _HEADS_FIRST:
        name = "MODEL_MAPPING" if head is None else f"MODEL_FOR_{head}_MAPPING"
        mapping = getattr(modeling_auto, name, None)
        if mapping is None or config_class not in mapping:
            continue
        found = mapping[config_class]
        return found[0] if isinstance(found, (tuple, list)) else found
    return None


def _first_int(config: Any, names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (tuple, list)) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return default


def _part(config: Any, *names: str) -> Any:
    parts = (getattr(config, name, None) for name in names)
    return next((part for part in parts if part is not None), config)


def _token_ids(config: Any) -> torch.Tensor:
    text = _part(config, "text_config", "text_encoder_config", "decoder")
    vocabulary = _first_int(text, ("vocab_size", "text_vocab_size", "n_vocab"), 100)
    return torch.randint(3, max(5, min(vocabulary, 200)), (BATCH, TOKENS))


def _pixels(config: Any) -> torch.Tensor:
    vision = _part(config, "vision_config", "image_config", "backbone_config", "encoder")
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 64
    if isinstance(size, (list, tuple)):
        height, width = size[0], size[1]
    elif isinstance(size, dict):
        height, width = size["height"], size["width"]
    else:
        height = width = int(size)
    channels = _first_int(vision, ("num_channels", "in_channels", "in_chans"), 3)
    return torch.randn(BATCH, channels, height, width)


def _from_signature(model: Any, config: Any) -> dict[str, torch.Tensor]:
    names = list(inspect.signature(model.forward).parameters)
    main = getattr(model, "main_input_name", "input_ids")
    inputs: dict[str, torch.Tensor] = {}
    has_sound = "input_features" in names or "input_values" in names
    if "input_ids" in names and (main == "input_ids" or "pixel_values" in names or not has_sound):
        inputs["input_ids"] = _token_ids(config)
    if "pixel_values" in names and main in ("pixel_values", "input_ids"):
        inputs["pixel_values"] = _pixels(config)
    if main == "input_features" and main in names:
        sound = _part(config, "audio_config", "encoder_config", "audio_encoder_config")
        bins = ("num_mel_bins", "feature_size", "input_dim", "input_feat_per_channel", "n_mels")
        inputs[main] = torch.randn(BATCH, 128, _first_int(sound, bins, 80))
    if main == "input_values" and main in names:
        inputs[main] = torch.randn(BATCH, 4000)
    known = ("input_ids", "pixel_values", "input_features", "input_values")
    if main not in inputs and main in names and main not in known:
        inputs[main] = torch.randn(BATCH, TOKENS, _first_int(config, ("hidden_size",), 64))
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _token_ids(config)
    return inputs


def candidate_inputs(model: Any, config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Inputs to try, the likeliest first: all, one of two kinds, other layouts and sizes."""
    inputs = _from_signature(model, config)
    yield inputs
    if "input_ids" in inputs and "pixel_values" in inputs:
        yield {"input_ids": inputs["input_ids"]}
        yield {"pixel_values": inputs["pixel_values"]}
    if "input_features" in inputs:
        features = inputs["input_features"]
        yield {**inputs, "input_features": features.transpose(1, 2)}
        yield {**inputs, "input_features": torch.randn(BATCH, features.shape[2], 3000)}
    if "pixel_values" in inputs:
        for size in (64, 224):
            shape = (BATCH, inputs["pixel_values"].shape[1], size, size)
            yield {**inputs, "pixel_values": torch.randn(shape)}
    if "input_ids" in inputs:
        yield {"input_ids": inputs["input_ids"]}


def find_recipe(model_type: str) -> tuple[Recipe | None, str]:
    """The first way in which a type's network runs; ``None`` with the reasons if none does."""
    from transformers import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    model_class = model_class_of(config_class)
    if model_class is None:
        return None, "no model class stands for this configuration"
    reasons = []
    for rules, sizes in RULES.items():
        try:
            config = small_config(config_class, sizes)
            with torch.device("meta"):
                size = sum(p.numel() for p in model_class(config).parameters())
            if size > MOST_PARAMETERS:
                reasons.append(f"{rules}: {size / 1e6:.0f} M parameters are too many")
                continue
            torch.manual_seed(0)
            model = model_class(config).eval()
        except Exception as error:
            reasons.append(f"{rules}: {type(error).__name__}: {str(error)[:120]}")
            continue
        for index, inputs in enumerate(candidate_inputs(model, config)):
            try:
                with torch.no_grad():
                    model(**inputs)
            except Exception as error:
                reasons.append(f"{rules}, {list(inputs)}: {type(error).__name__}: {error}"[:160])
                continue
            return Recipe(model_class.__name__, rules, index, size), ""
    return None, "; ".join(reasons[:2])


def build(model_type: str, recipe: Recipe) -> Program:
    """A type's tiny network with its inputs."""
    import transformers
    from transformers import CONFIG_MAPPING

    config = small_config(CONFIG_MAPPING[model_type], RULES[recipe.rules])
    model = getattr(transformers, recipe.model)(config).eval()
    inputs = list(candidate_inputs(model, config))[recipe.inputs]
    return Program(model, inputs, mean_squares)
