"""An image's pixels are optimised with L-BFGS through a frozen network."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim

torch.manual_seed(0)
cnn = nn.ModuleList(
    [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Conv2d(32, 32, 3, padding=1),
    ]
).requires_grad_(False)


def features(x):
    found = []
    for conv in cnn:
        x = F.relu(conv(x))
        found.append(x)
        x = F.avg_pool2d(x, 2)
    return found


def gram(x):
    flat = x.flatten(2)
    return flat @ flat.mT / flat[0].numel()


content, style = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)
wanted, styled = features(content)[1], [gram(x) for x in features(style)]
image = content.clone().requires_grad_(True)
optimizer = optim.LBFGS([image], max_iter=8)
mark("setup")
for run in range(70):

    def closure():
        optimizer.zero_grad()
        found = features(image)
        style_score = sum(F.mse_loss(gram(x), s) for x, s in zip(found, styled))
        loss = 1e5 * style_score + F.mse_loss(found[1], wanted)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    with torch.no_grad():
        image.clamp_(0, 1)
        image.add_(0.01 * torch.randn_like(image))
    mark()
    if run % 10 == 0:
        print(run, loss.item())
