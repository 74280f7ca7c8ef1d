"""Images are drawn by a noise schedule: a call of the UNet per step of it."""

import torch
from diffusers import DDIMScheduler, UNet2DModel
from own_clock import mark

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(32, 64),
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).eval()
scheduler = DDIMScheduler(num_train_timesteps=1000)
scheduler.set_timesteps(60)
mark("setup")
with torch.no_grad():
    for number in range(4):
        image = torch.randn(4, 3, 16, 16)
        for t in scheduler.timesteps:
            noise = unet(image, t).sample
            image = scheduler.step(noise, t, image).prev_sample
            mark()
        print(number, (image / 2 + 0.5).clamp(0, 1).mean().item())
        mark("image")
