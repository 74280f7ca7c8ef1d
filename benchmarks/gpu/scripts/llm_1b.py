"""Training steps of a language model of a thousand million parameters in bfloat16."""

import os

import torch
from step_clock import ready, step_done
from transformers import LlamaConfig, LlamaForCausalLM

ready()
device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
steps = int(os.environ.get("STEPS", "40"))
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1000 if small else 32000,
    hidden_size=64 if small else 2048,
    intermediate_size=128 if small else 8192,
    num_hidden_layers=2 if small else 16,
    num_attention_heads=4 if small else 32,
    num_key_value_heads=2 if small else 8,
    max_position_embeddings=2048,
    attn_implementation="sdpa",
    use_cache=False,
)
before = torch.get_default_dtype()
torch.set_default_dtype(torch.bfloat16)
with torch.device(device):
    model = LlamaForCausalLM(config)
torch.set_default_dtype(before)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")
batch, length = (2, 32) if small else (4, 1024)
step_done()
for i in range(steps):
    tokens = torch.randint(0, config.vocab_size, (batch, length)).to(device)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step_done()
    if i % 10 == 9:
        print(f"step {i + 1}: loss {loss.item():.3f}")
