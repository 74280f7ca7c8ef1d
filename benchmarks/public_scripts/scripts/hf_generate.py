"""generate() with a small GPT-2, greedy, several prompts."""

import torch
from own_clock import mark
from transformers import GPT2Config, GPT2LMHeadModel, StoppingCriteria, StoppingCriteriaList


class Clock(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        mark("prompt" if input_ids.shape[1] == 17 else "step")
        return torch.zeros(len(input_ids), dtype=torch.bool)


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=2000,
    n_embd=128,
    n_layer=4,
    n_head=4,
    bos_token_id=1,
    eos_token_id=1999,
    pad_token_id=0,
)
model = GPT2LMHeadModel(config).eval()
mark("setup")
for request in range(7):
    prompt = torch.randint(2, 1990, (2, 16))
    tokens = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=64,
        min_new_tokens=64,
        do_sample=False,
        stopping_criteria=StoppingCriteriaList([Clock()]),
    )
    print(request, tokens[0, -5:].tolist())
