"""An image-to-image network is trained by the features of a frozen second one."""

import torch
from own_clock import mark
from torch import nn
from torch.optim import Adam


def conv(a, b, stride=1):
    return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(a, b, 3, stride))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = conv(width, width), conv(width, width)
        self.in1, self.in2 = (nn.InstanceNorm2d(width, affine=True) for _ in range(2))

    def forward(self, x):
        return x + self.in2(self.two(torch.relu(self.in1(self.one(x)))))


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([conv(3, 16), conv(16, 32, 2), conv(32, 32)])
        self.requires_grad_(False)

    def forward(self, x):
        found = []
        for stage in self.stages:
            x = torch.relu(stage(x))
            found.append(x)
        return found


def gram_matrix(y):
    features = y.flatten(2)
    return features.bmm(features.transpose(1, 2)) / features[0].numel()


torch.manual_seed(42)
transformer = nn.Sequential(
    conv(3, 24, 2), nn.ReLU(), Residual(24), Residual(24), nn.Upsample(scale_factor=2), conv(24, 3)
)
vgg = Features()
optimizer = Adam(transformer.parameters(), 1e-3)
mse = nn.MSELoss()
style = [gram_matrix(y) for y in vgg(torch.rand(4, 3, 64, 64))]
mark("setup")
for batch in range(70):
    x = torch.rand(4, 3, 64, 64)
    optimizer.zero_grad()
    y = transformer(x)
    features_y, features_x = vgg(y), vgg(x)
    content = 1e5 * mse(features_y[1], features_x[1])
    styled = 1e5 * sum(mse(gram_matrix(f), g) for f, g in zip(features_y, style))
    total = content + styled
    total.backward()
    optimizer.step()
    mark()
    if batch % 20 == 0:
        print(batch, content.item(), styled.item())
