"""Whole programs: generation, diffusion with its schedulers, reinforcement learning, trainers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from benchmarks.breadth.case import Program, Programs, whole_step
from torch import Tensor, nn, optim, randint, randn
from torch.distributions import Categorical, Independent, Normal, kl_divergence
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=128, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def _generation(**options: Any) -> Callable[[], Program]:
    def build() -> Program:
        model, ids = _llama().eval(), randint(3, 100, (2, 8))
        return whole_step(lambda: model.generate(ids, max_new_tokens=8, **options))

    return build


_GENERATIONS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 10, "top_p": 0.9},
    "beams": {"num_beams": 3},
    "static_cache": {"do_sample": False, "cache_implementation": "static"},
    "masked": {"do_sample": False, "attention_mask": torch.ones(2, 8, dtype=torch.long)},
}
for _name, _options in _GENERATIONS.items():
    PROGRAMS.register(f"generate_{_name}", _generation(**_options))


@program()
def generate_whisper() -> Program:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=256, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=100, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    return whole_step(lambda: model.generate(randn(1, 80, 200), max_new_tokens=6))


@program()
def generate_t5() -> Program:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=128, d_model=64, num_layers=2, num_heads=4, d_ff=64, d_kv=16,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model, ids = T5ForConditionalGeneration(config).eval(), randint(3, 100, (2, 8))
    return whole_step(lambda: model.generate(ids, max_new_tokens=6))


def _diffusion_parts() -> tuple[Any, Any]:
    from diffusers import AutoencoderKL, UNet2DConditionModel

    network = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(32, 64), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32,
        norm_num_groups=8,
    )  # fmt: skip
    autoencoder = AutoencoderKL(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8,
    )  # fmt: skip
    return network.eval(), autoencoder.eval()


def _denoising(scheduler_name: str) -> Callable[[], Program]:
    def build() -> Program:
        import diffusers

        network, autoencoder = _diffusion_parts()
        scheduler = getattr(diffusers, scheduler_name)()

        def step() -> Any:
            with torch.no_grad():
                x = randn(1, 4, 16, 16)
                scheduler.set_timesteps(4)
                for time in scheduler.timesteps:
                    scaled = scheduler.scale_model_input(x, time)
                    text = randn(1, 7, 32)
                    noise = network(scaled, time, encoder_hidden_states=text).sample
                    x = scheduler.step(noise, time, x).prev_sample
                return autoencoder.decode(x).sample

        return whole_step(step)

    return build


for _scheduler in (
    "DDIMScheduler", "DDPMScheduler", "PNDMScheduler", "LCMScheduler", "EulerDiscreteScheduler",
    "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "HeunDiscreteScheduler",
):  # fmt: skip
    PROGRAMS.register(f"denoise_{_scheduler}", _denoising(_scheduler))


@program()
def diffusion_pipeline() -> Program:
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    network, autoencoder = _diffusion_parts()
    pipeline = StableDiffusionPipeline(
        vae=autoencoder, text_encoder=None, tokenizer=None, unet=network,
        scheduler=DDIMScheduler(), safety_checker=None, feature_extractor=None,
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    text = randn(1, 7, 32)
    return whole_step(
        lambda: pipeline(
            prompt_embeds=text, negative_prompt_embeds=text, num_inference_steps=2,
            output_type="pt", height=32, width=32,
        ).images
    )  # fmt: skip


@program()
def diffusion_training() -> Program:
    from diffusers import DDPMScheduler

    network, _ = _diffusion_parts()
    scheduler, optimizer = DDPMScheduler(), optim.AdamW(network.parameters())

    def step() -> Tensor:
        x, times = randn(2, 4, 16, 16), randint(0, 1000, (2,))
        noise = torch.randn_like(x)
        noisy = scheduler.add_noise(x, noise, times)
        found = network(noisy, times, encoder_hidden_states=randn(2, 7, 32)).sample
        loss = functional.mse_loss(found, noise)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return whole_step(step)


@program()
def inner_step_of_a_trainer() -> Program:
    model, ids = _llama().train(), randint(3, 100, (2, 8))
    optimizer = optim.AdamW(model.parameters())
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)

    def step() -> tuple[float, float]:
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return loss.item(), norm.item()

    return whole_step(step)


@program()
def policy_gradient() -> Program:
    policy, x = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)), randn(64, 8)
    optimizer = optim.Adam(policy.parameters())

    def step() -> float:
        choices = Categorical(logits=policy(x))
        taken = choices.sample()
        loss = -(choices.log_prob(taken) * randn(64)).mean() - 0.01 * choices.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return whole_step(step)


@program()
def soft_actor() -> Program:
    policy = nn.Linear(8, 8)
    optimizer = optim.Adam(policy.parameters())

    def step() -> None:
        hidden = policy(randn(64, 8))
        actions = Independent(Normal(hidden[:, :4], hidden[:, 4:].exp()), 1)
        taken = actions.rsample().tanh()
        loss = (actions.log_prob(taken) + taken.sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return whole_step(step)


@program()
def autoencoder_with_distributions() -> Program:
    encoder, decoder = nn.Linear(64, 32), nn.Linear(16, 64)

    def step() -> Tensor:
        hidden = encoder(randn(8, 64))
        posterior = Normal(hidden[:, :16], hidden[:, 16:].exp())
        rebuilt = (decoder(posterior.rsample()) ** 2).mean()
        loss: Tensor = rebuilt + kl_divergence(posterior, Normal(0.0, 1.0)).mean()
        loss.backward()
        return loss

    return whole_step(step)


@program()
def metrics() -> Program:
    model = nn.Linear(32, 10)

    def step() -> float:
        predicted = model(randn(64, 32)).argmax(-1)
        return (predicted == randint(0, 10, (64,))).float().mean().item()

    return whole_step(step)


@program()
def speech_training() -> Program:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, vocab_size=20, apply_spec_augment=False,
    )  # fmt: skip
    model, sound, words = Wav2Vec2ForCTC(config).train(), randn(2, 2000), randint(1, 20, (2, 8))
    optimizer = optim.AdamW(model.parameters())

    def step() -> None:
        model(sound, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return whole_step(step)


@program()
def mixture_training() -> Program:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=64, num_local_experts=4,
    )  # fmt: skip
    model, ids = MixtralForCausalLM(config).train(), randint(3, 100, (2, 8))
    optimizer = optim.AdamW(model.parameters())

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return whole_step(step)
