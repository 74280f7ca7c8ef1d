"""An LSTM reads digits row by row."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(input_size=28, hidden_size=64, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(64)
        self.dropout1, self.dropout2 = nn.Dropout2d(0.25), nn.Dropout2d(0.5)
        self.fc1, self.fc2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = x.reshape(-1, 28, 28)
        output, _ = self.rnn(x)
        output = self.batchnorm(output[:, -1, :])
        output = F.relu(self.fc1(self.dropout1(output)))
        return F.log_softmax(self.fc2(self.dropout2(output)), dim=1)


torch.manual_seed(1)
data = TensorDataset(torch.rand(6400, 1, 28, 28), torch.randint(0, 10, (6400,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = Net()
optimizer = optim.Adadelta(model.parameters(), lr=0.1)
for epoch in range(3):
    model.train()
    for images, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), target)
        loss.backward()
        optimizer.step()
        mark()
    model.eval()
    with torch.no_grad():
        print(epoch, F.nll_loss(model(data.tensors[0][:1000]), data.tensors[1][:1000]).item())
    mark("evaluation")
