"""Two LSTM cells learn sine waves with L-BFGS in double precision."""

import math

import torch
from own_clock import mark
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2 = nn.LSTMCell(1, 32), nn.LSTMCell(32, 32)
        self.linear = nn.Linear(32, 1)

    def forward(self, values, future=0):
        outputs = []
        h1 = c1 = h2 = c2 = torch.zeros(values.size(0), 32, dtype=torch.double)
        for value in values.split(1, dim=1):
            h1, c1 = self.lstm1(value, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs.append(output)
        for _ in range(future):
            h1, c1 = self.lstm1(output, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs.append(output)
        return torch.cat(outputs, dim=1)


torch.manual_seed(0)
start = torch.randint(-80, 80, (40, 1)).double()
data = torch.sin((torch.arange(41).double() + start) * 2 * math.pi / 20)
inputs, target = data[:, :-1], data[:, 1:]
seq = Sequence().double()
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.4, max_iter=4)
mark("setup")
for i in range(50):

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(inputs), target)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    mark()
    if i % 10 == 0:
        with torch.no_grad():
            print("test loss:", criterion(seq(inputs[:3], future=20)[:, :40], target[:3]).item())
        mark("evaluation")
