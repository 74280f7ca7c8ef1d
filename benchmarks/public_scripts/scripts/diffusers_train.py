"""A small UNet2DModel learns to predict noise; a moving average of its weights is kept."""

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from own_clock import mark

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 32),
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
average = [p.detach().clone() for p in model.parameters()]
mark("setup")
for step in range(70):
    clean = torch.rand(4, 3, 16, 16) * 2 - 1
    noise = torch.randn_like(clean)
    timesteps = torch.randint(0, 1000, (4,)).long()
    noisy = scheduler.add_noise(clean, noise, timesteps)
    loss = F.mse_loss(model(noisy, timesteps).sample, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for kept, new in zip(average, model.parameters()):
            kept.sub_((1 - 0.995) * (kept - new))
    mark()
    if step % 20 == 0:
        print(step, loss.item())
