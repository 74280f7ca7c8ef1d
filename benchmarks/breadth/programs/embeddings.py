"""Embeddings, bags, sparse gradients, sparse tensors."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, trained
from torch import Tensor, nn, randint, randn
from torch.optim import SGD, SparseAdam

PROGRAMS = Programs()
program = PROGRAMS.add


@program()
def bag_sum() -> Program:
    return trained(
        nn.EmbeddingBag(1000, 64, mode="sum"), randint(0, 1000, (200,)), torch.arange(0, 200, 10)
    )


@program()
def bag_mean() -> Program:
    return trained(nn.EmbeddingBag(1000, 64, mode="mean"), randint(0, 1000, (32, 8)))


@program()
def bag_max() -> Program:
    return trained(nn.EmbeddingBag(1000, 64, mode="max"), randint(0, 1000, (32, 8)))


@program()
def bag_weighted() -> Program:
    model = FunctionModule(
        lambda self, ids, weights: self.bag(ids, per_sample_weights=weights),
        bag=nn.EmbeddingBag(1000, 64, mode="sum"),
    )
    return trained(model, randint(0, 1000, (32, 8)), randn(32, 8))


@program()
def bag_sparse_sgd() -> Program:
    return trained(
        nn.EmbeddingBag(1000, 64, mode="sum", sparse=True),
        randint(0, 1000, (32, 8)),
        optimizer=lambda model: SGD(model.parameters(), 0.1),
    )


@program()
def embedding_sparse_adam() -> Program:
    return trained(
        nn.Embedding(1000, 64, sparse=True),
        randint(0, 1000, (32, 8)),
        optimizer=lambda model: SparseAdam(list(model.parameters())),
    )


@program()
def embedding_scaled_gradient() -> Program:
    model = nn.Embedding(1000, 64, padding_idx=0, scale_grad_by_freq=True, max_norm=1.0)
    return trained(model, randint(0, 1000, (32, 8)))


class _Recommender(nn.Module):
    """DLRM: dense features and eight bags, all pairs of products."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(8))
        self.top = nn.Sequential(nn.Linear(32 + 36, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, *ids: Tensor) -> Any:
        x = self.dense(dense)
        rows = [bag(row) for bag, row in zip(self.bags, ids)]
        features = torch.stack([x, *rows], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(9, 9, -1)
        return self.top(torch.cat([x, products[:, row, column]], 1))


@program()
def recommender() -> Program:
    ids = [randint(0, 1000, (64, 4)) for _ in range(8)]
    return trained(_Recommender(), randn(64, 13), *ids)


def _mostly_zeros() -> Tensor:
    dense = randn(200, 200)
    dense[dense.abs() < 1.5] = 0
    return dense


@program()
def sparse_coo_product() -> Program:
    sparse = _mostly_zeros().to_sparse()
    model = FunctionModule(lambda self, x: torch.sparse.mm(sparse, x @ self.w), w=randn(64, 64))
    return trained(model, randn(200, 64))


@program()
def sparse_csr_product() -> Program:
    sparse = _mostly_zeros().to_sparse_csr()
    model = FunctionModule(lambda self, x: sparse @ (x @ self.w), w=randn(64, 64))
    return trained(model, randn(200, 64))


@program(size_hint=1300)
def dense_to_sparse_in_the_step() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = x * self.scale
        return y.masked_fill(y.abs() < 1, 0).to_sparse().to_dense()

    return trained(FunctionModule(forward, scale=torch.ones(1)), randn(64, 64))


@program()
def two_of_four_pruned() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        groups = self.w.view(-1, 4)
        largest = groups.abs().topk(2, 1).indices
        mask = torch.zeros_like(groups).scatter_(1, largest, 1.0).view_as(self.w)
        return x @ (self.w * mask)

    return trained(FunctionModule(forward, w=randn(64, 64)), randn(32, 64))
