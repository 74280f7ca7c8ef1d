from __future__ import annotations

import pytest

pytest.importorskip("torch")

from fixes.facts import facts, product
from gobrrr.fixes.advice import KV_CACHE
from gobrrr.fixes.fix import Prospect, RuledOut
from gobrrr.fixes.generation import GENERATE_CACHE


def _call(rows: int) -> object:
    return product(
        kernel_s=0.1, roof_s=0.08, module="layers.0.mlp", shapes=((rows, 64), (64, 64)),
        source="decode.py:9 main",
    )  # fmt: skip


def test_calls_that_grow_by_a_token_promise_what_was_done_before() -> None:
    pytest.importorskip("transformers")
    step = facts([_call(99), _call(100), _call(101)], step_s=0.3)
    found = GENERATE_CACHE.consider(step)
    assert isinstance(found, Prospect)
    # Of the second and third call all but one row: 0.1 * (99/100 + 100/101).
    assert found.high_s == pytest.approx(0.1 * (99 / 100 + 100 / 101))
    advice = KV_CACHE.consider(step)
    assert isinstance(advice, Prospect)
    assert advice.expected_s == found.expected_s


def test_calls_of_one_length_have_nothing_to_keep() -> None:
    step = facts([_call(64), _call(64), _call(64)], step_s=0.3)
    assert isinstance(GENERATE_CACHE.consider(step), RuledOut)


def test_generate_keeps_its_cache_while_the_fix_is_applied() -> None:
    transformers = pytest.importorskip("transformers")
    import torch
    from transformers.generation.utils import GenerationMixin

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.use_cache = False
    lengths: list[int] = []
    model.model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    prompt = torch.randint(50, (1, 6))

    def decode() -> torch.Tensor:
        tokens: torch.Tensor = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        return tokens

    plain = decode()
    assert lengths == [6, 7, 8, 9]
    lengths.clear()
    before = GenerationMixin.generate
    assert GENERATE_CACHE.apply is not None
    with GENERATE_CACHE.apply(decode) as work:  # type: ignore[arg-type]
        kept = work.step()
    assert lengths == [6, 1, 1, 1]
    assert torch.equal(kept, plain)
    assert GenerationMixin.generate is before
