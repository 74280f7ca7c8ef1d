"""A retrieval model beside an index of Python objects; each step makes graphs of small objects."""

import gc

import torch
from torch import nn

STEPS = 160


class Node:
    """One record of the index, linked with its parent."""

    def __init__(self, number, parent):
        self.number, self.parent, self.tags = number, parent, [number % 7, str(number)]


def built_index(size=500_000):
    nodes = [Node(0, None)]
    for number in range(1, size):
        nodes.append(Node(number, nodes[number // 2]))
    return nodes


def candidates(nodes, step):
    """Scored neighbours as records that point to each other (a cycle each)."""
    found = []
    for offset in range(1_500):
        record = {"node": nodes[(step * 977 + offset) % len(nodes)], "score": [offset / 1_500]}
        record["self"] = record
        found.append(record)
    return found


def main():
    torch.manual_seed(0)
    nodes = built_index()
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        records = candidates(nodes, step)
        rows = [[r["score"][0], r["node"].number % 97, r["node"].tags[0]] for r in records]
        values = torch.tensor(rows) / 100
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            # The records hold each other: without this, memory grows.
            gc.collect()
        if step % 50 == 0:
            print(step, loss.item())


main()
