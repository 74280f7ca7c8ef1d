"""A server's loop: one request at a time through a wide model, under autocast."""

import torch
from torch import nn

REQUESTS, ITERATIONS = 500, 4


class Refiner(nn.Module):
    """The same weights are used in each of a request's iterations."""

    def __init__(self, width=1_536):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        for _ in range(ITERATIONS):
            x = x + self.two(torch.relu(self.one(x)))
        return x


def main():
    torch.manual_seed(0)
    model = Refiner().eval()
    total = 0.0
    with torch.inference_mode():
        for _ in range(REQUESTS):
            request = torch.randn(4, 1_536)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                answer = model(request)
            total += float(answer.float().mean())
    print(total)


main()
