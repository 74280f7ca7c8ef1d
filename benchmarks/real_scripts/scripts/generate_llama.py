"""``generate()`` of a small Llama on prompts of different lengths; a step is one token."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
model = LlamaForCausalLM(config).eval()


class Clock(StoppingCriteria):
    """Called after each token."""

    def __call__(self, input_ids, scores, **kwargs):
        clock.begin("step")
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


for n in (12, 25, 40, 8, 33, 18, 27, 50, 16, 21):
    prompt = torch.randint(3, 1000, (1, n))
    clock.begin("prefill")
    model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=32,
        min_new_tokens=32,
        do_sample=False,
        pad_token_id=0,
        stopping_criteria=StoppingCriteriaList([Clock()]),
    )
    # What follows the last token is the end of generate().
    clock.rename("prefill")
    clock.end()
