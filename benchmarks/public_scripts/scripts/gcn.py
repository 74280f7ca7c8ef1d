"""Two graph convolutions with a sparse adjacency; the whole graph is one batch."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, outputs))
        nn.init.xavier_normal_(self.kernel)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, adjacency):
        return torch.spmm(adjacency, torch.mm(x, self.kernel)) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConv(300, 64), GraphConv(64, 7)

    def forward(self, x, adjacency):
        x = F.dropout(F.relu(self.gc1(x, adjacency)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adjacency), dim=1)


torch.manual_seed(42)
nodes, edges = 4000, 20_000
places = torch.randint(0, nodes, (2, edges))
adjacency = torch.sparse_coo_tensor(places, torch.full((edges,), 0.2), (nodes, nodes)).coalesce()
features, labels = torch.rand(nodes, 300), torch.randint(0, 7, (nodes,))
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
mark("setup")
for epoch in range(220):
    model.train()
    optimizer.zero_grad()
    output = model(features, adjacency)
    loss = F.nll_loss(output[:2000], labels[:2000])
    loss.backward()
    optimizer.step()
    mark()
    if epoch % 20 == 0:
        model.eval()
        with torch.no_grad():
            right = model(features, adjacency).argmax(1)[2000:] == labels[2000:]
        print(epoch, loss.item(), right.float().mean().item())
        mark("evaluation")
