"""Graph attention over a dense adjacency, several heads."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class GraphAttentionLayer(nn.Module):
    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.heads, self.hidden = heads, outputs // heads
        self.W = nn.Parameter(torch.empty(inputs, outputs))
        self.a = nn.Parameter(torch.empty(heads, 2 * self.hidden, 1))
        nn.init.xavier_normal_(self.W)
        nn.init.xavier_normal_(self.a)

    def forward(self, h, adjacency):
        h = torch.mm(h, self.W).view(-1, self.heads, self.hidden).permute(1, 0, 2)
        source = torch.matmul(h, self.a[:, : self.hidden])
        target = torch.matmul(h, self.a[:, self.hidden :])
        e = F.leaky_relu(source + target.mT, 0.2)
        attention = torch.where(adjacency > 0, e, torch.full_like(e, -9e16))
        attention = F.dropout(F.softmax(attention, dim=-1), 0.6, training=self.training)
        return torch.matmul(attention, h).permute(1, 0, 2).reshape(len(adjacency), -1)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat1, self.gat2 = GraphAttentionLayer(100, 32, 4), GraphAttentionLayer(32, 7, 1)

    def forward(self, x, adjacency):
        return F.log_softmax(self.gat2(F.elu(self.gat1(x, adjacency)), adjacency), dim=1)


torch.manual_seed(13)
nodes = 500
adjacency = (torch.rand(nodes, nodes) < 0.02).float() + torch.eye(nodes)
features, labels = torch.rand(nodes, 100), torch.randint(0, 7, (nodes,))
model = GAT()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
mark("setup")
for epoch in range(90):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(features, adjacency), labels)
    loss.backward()
    optimizer.step()
    mark()
    if epoch % 20 == 0:
        print(epoch, loss.item())
