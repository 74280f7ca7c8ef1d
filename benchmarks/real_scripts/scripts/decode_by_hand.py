"""A decode loop of one's own with a key-value cache; a step is one token of four sequences."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=2000, n_positions=256, n_embd=256, n_layer=4, n_head=4)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for _ in range(6):
        with clock.part("prefill"):
            out = model(torch.randint(0, 2000, (4, 48)), use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        for _ in range(60):
            with clock.part("step"):
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
