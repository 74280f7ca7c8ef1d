"""New programs that train, one flaw each; lines with it are marked.

``<name>_mended`` is the same by hand without the flaw. Every function builds its program anew from
seed 0, with the same weights and inputs as its mended form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential

from gobrrr import Workload


class _Bags(nn.Module):
    """Few words of a large vocabulary are read per step."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(150_000, 24, sparse=sparse)
        self.head = nn.Linear(24, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).mean(dim=1))  # flaw: a gradient of all words


def _bags(*, sparse: bool) -> Workload:
    torch.manual_seed(0)
    model = _Bags(sparse=sparse)
    return Workload(
        model, torch.randint(150_000, (48, 11)), loss=functional.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), 0.05), targets=torch.randint(6, (48,)),
    )  # fmt: skip


def dense_embedding_gradient() -> Workload:
    return _bags(sparse=False)


def dense_embedding_gradient_mended() -> Workload:
    return _bags(sparse=True)


def _towers(layers: int, width: int) -> nn.Sequential:
    blocks = (nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh())
              for _ in range(layers))  # fmt: skip
    return nn.Sequential(*blocks, nn.Linear(width, 5))


def adagrad_by_hand() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model, x, y = _towers(22, 28), torch.randn(16, 28), torch.randint(5, (16,))
    sums = [torch.zeros_like(p) for p in model.parameters()]

    def step() -> Tensor:
        model.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter, total in zip(model.parameters(), sums, strict=True):
                total.add_(parameter.grad * parameter.grad)  # flaw
                parameter.sub_(1e-3 * parameter.grad / (total.sqrt() + 1e-10))  # flaw
        return loss

    return step


def adagrad_by_hand_mended() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model, x, y = _towers(22, 28), torch.randn(16, 28), torch.randint(5, (16,))
    optimizer = torch.optim.Adagrad(model.parameters(), 1e-3, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def nadam_tensor_by_tensor() -> Workload:
    return _nadam(foreach=False)


def nadam_tensor_by_tensor_mended() -> Workload:
    return _nadam(foreach=True)


def _nadam(*, foreach: bool) -> Workload:
    torch.manual_seed(0)
    model = _towers(26, 20)
    optimizer = torch.optim.NAdam(
        model.parameters(), 1e-3, weight_decay=1e-2, decoupled_weight_decay=True, foreach=foreach
    )
    return Workload(model, torch.randn(12, 20), loss=functional.cross_entropy, optimizer=optimizer,
                    targets=torch.randint(5, (12,)))  # fmt: skip


class Lamb(torch.optim.Optimizer):
    """LAMB (arXiv:1904.00962) as it is found in many repositories, tensor by tensor."""

    def __init__(self, parameters: Any, lr: float, together: bool = False) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6})
        self.together = together

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            tensors = [p for p in group["params"] if p.grad is not None]
            for p in tensors:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
            if self.together:
                self._all_at_once(group, tensors)
                continue
            b1, b2 = group["betas"]
            for p in tensors:
                state = self.state[p]
                m, v, n = state["m"], state["v"], state["step"]
                m.mul_(b1).add_(p.grad, alpha=1 - b1)  # flaw
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)  # flaw
                root = (v / (1 - b2**n)).sqrt_().add_(group["eps"])  # flaw
                update = (m / (1 - b1**n)).div_(root)  # flaw
                update.add_(p, alpha=1e-2)  # flaw
                size, length = p.norm(), update.norm()  # flaw
                trust = torch.where((size > 0) & (length > 0), size / length, 1.0)  # flaw
                p.sub_(update.mul_(trust * group["lr"]))  # flaw

    def _all_at_once(self, group: Any, tensors: list[Any]) -> None:
        b1, b2 = group["betas"]
        gradients = [p.grad for p in tensors]
        m, v = ([self.state[p][name] for p in tensors] for name in "mv")
        n = self.state[tensors[0]]["step"]
        torch._foreach_mul_(m, b1)
        torch._foreach_add_(m, gradients, alpha=1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - b2)
        root = torch._foreach_div(v, 1 - b2**n)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, group["eps"])
        update = torch._foreach_div(m, 1 - b1**n)
        torch._foreach_div_(update, root)
        torch._foreach_add_(update, tensors, alpha=1e-2)
        sizes = torch.stack(torch._foreach_norm(tensors))
        lengths = torch.stack(torch._foreach_norm(update))
        trust = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, 1.0) * group["lr"]
        torch._foreach_mul_(update, list(trust))
        torch._foreach_sub_(tensors, update)


def lamb_by_hand() -> Workload:
    return _lamb(together=False)


def lamb_by_hand_mended() -> Workload:
    return _lamb(together=True)


def _lamb(*, together: bool) -> Workload:
    torch.manual_seed(0)
    model = _towers(16, 36)
    return Workload(
        model, torch.randn(10, 36), loss=functional.cross_entropy,
        optimizer=Lamb(model.parameters(), 1e-3, together), targets=torch.randint(5, (10,)),
    )  # fmt: skip


class _Segments(nn.Module):
    """Every block is checkpointed, though all their activations take a few megabytes."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Linear(288, 864), nn.GELU(), nn.Linear(864, 288)) for _ in range(5))
        )
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        if self.again:
            return checkpoint_sequential(self.blocks, 5, x, use_reentrant=False)  # flaw
        return self.blocks(x)


def checkpointing_for_nothing() -> Workload:
    return _segments(again=True)


def checkpointing_for_nothing_mended() -> Workload:
    return _segments(again=False)


def _segments(*, again: bool) -> Workload:
    torch.manual_seed(0)
    model = _Segments(again=again)
    return Workload(
        model, torch.randn(240, 288, requires_grad=True), loss=lambda y: y.square().mean(),
        optimizer=torch.optim.SGD(model.parameters(), 1e-2, foreach=True),
    )  # fmt: skip


def graph_kept_for_two_losses() -> Callable[[], Tensor]:
    return _two_losses(at_once=False)


def graph_kept_for_two_losses_mended() -> Callable[[], Tensor]:
    return _two_losses(at_once=True)


def _two_losses(*, at_once: bool) -> Callable[[], Tensor]:
    """Two heads on one trunk, each loss sent back through the trunk by itself."""
    torch.manual_seed(0)
    trunk = nn.Sequential(*(nn.Sequential(nn.Linear(352, 352), nn.ELU()) for _ in range(4)))
    first, second = nn.Linear(352, 9), nn.Linear(352, 2)
    parameters = [*trunk.parameters(), *first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, 1e-2, foreach=True)
    x, kinds, places = torch.randn(176, 352), torch.randint(9, (176,)), torch.randn(176, 2)

    def step() -> Tensor:
        optimizer.zero_grad()
        features = trunk(x)
        kind = functional.cross_entropy(first(features), kinds)
        place = functional.mse_loss(second(features), places)
        if at_once:
            (kind + place).backward()
        else:
            kind.backward(retain_graph=True)  # flaw
            place.backward()  # flaw
        optimizer.step()
        return kind.detach() + place.detach()

    return step
