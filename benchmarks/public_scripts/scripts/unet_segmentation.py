"""A UNet with cross-entropy and Dice loss; validation four times an epoch."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(True),
        )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.low = DoubleConv(3, 16), DoubleConv(16, 32), DoubleConv(32, 64)
        self.up1, self.up2 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.conv1, self.conv2 = DoubleConv(64, 32), DoubleConv(32, 16)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(F.max_pool2d(x1, 2))
        x3 = self.low(F.max_pool2d(x2, 2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], 1))
        return self.out(self.conv2(torch.cat([x1, self.up2(x)], 1)))


def dice_loss(probabilities, target):
    inter = 2 * (probabilities * target).sum((-1, -2))
    sets = probabilities.sum((-1, -2)) + target.sum((-1, -2))
    return 1 - ((inter + 1e-6) / (sets + 1e-6)).mean()


torch.manual_seed(0)
model = UNet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
mark("setup")
for step in range(60):
    images = torch.rand(4, 3, 64, 64)
    masks = (images.mean(1) > 0.5).long()
    predicted = model(images)
    loss = F.cross_entropy(predicted, masks)
    one_hot = F.one_hot(masks, 2).permute(0, 3, 1, 2).float()
    loss = loss + dice_loss(F.softmax(predicted, 1), one_hot)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mark()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            print(step, loss.item(), dice_loss(F.softmax(model(images), 1), one_hot).item())
        model.train()
        mark("evaluation")
