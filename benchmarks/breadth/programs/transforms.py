"""torch.func, autograd beyond one backward pass, custom functions, control flow as operators."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import (
    FunctionModule,
    Program,
    Programs,
    inference,
    mlp,
    trained,
    whole_step,
)
from torch import Tensor, nn, randn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.nn import functional
from torch.optim import SGD, Adam
from torch.utils.checkpoint import checkpoint

PROGRAMS = Programs()
program = PROGRAMS.add


@program()
def vmap_of_products() -> Program:
    def forward(self: Any, x: Tensor) -> Any:
        return vmap(lambda w, b: torch.tanh(x @ w) + b)(self.w, self.b)

    return trained(FunctionModule(forward, w=randn(4, 32, 16), b=randn(4, 16)), randn(8, 32))


@program()
def per_sample_gradients() -> Program:
    model = mlp(32)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = randn(8, 32), randn(8, 32)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.mse_loss(functional_call(model, parameters, (x[None],))[0], y)

    return whole_step(lambda: vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y))


@program()
def jacobians_and_hessian() -> Program:
    w, x = randn(16, 16), randn(16)
    return whole_step(
        lambda: (
            jacrev(lambda v: torch.tanh(v @ w))(x),
            jacfwd(lambda v: torch.sin(v @ w))(x),
            hessian(lambda v: torch.tanh(v @ w).sum())(x),
        )
    )


@program()
def forward_mode() -> Program:
    w = randn(32, 32)

    def step() -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(randn(8, 32), randn(8, 32))
            return forward_ad.unpack_dual(torch.tanh(dual @ w)).tangent

    return whole_step(step)


@program()
def gradient_penalty() -> Program:
    model, x = mlp(64), randn(16, 64, requires_grad=True)
    optimizer = Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        y = model(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        penalty = ((gradient.norm(dim=1) - 1) ** 2).mean()
        (y.pow(2).mean() + penalty).backward()
        optimizer.step()

    return whole_step(step)


@program()
def physics_informed() -> Program:
    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer, x = Adam(model.parameters()), randn(128, 2, requires_grad=True)

    def step() -> None:
        optimizer.zero_grad()
        first = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)[0][:, 0]
        (first[:, 1] - second).pow(2).mean().backward()
        optimizer.step()

    return whole_step(step)


@program()
def meta_learning() -> Program:
    model = mlp(32)
    optimizer, x, y = SGD(model.parameters(), 0.1), randn(8, 32), randn(8, 32)

    def step() -> None:
        optimizer.zero_grad()
        parameters = dict(model.named_parameters())
        loss = functional.mse_loss(functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        moved = {
            name: value - 0.1 * gradient
            for (name, value), gradient in zip(parameters.items(), gradients)
        }
        functional.mse_loss(functional_call(model, moved, (x,)), y).backward()
        optimizer.step()

    return whole_step(step)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


@program()
def custom_function() -> Program:
    model = FunctionModule(lambda self, x: _Square.apply(x @ self.w), w=randn(64, 64))
    return trained(model, randn(64, 64))


@program()
def checkpoints() -> Program:
    def forward(self: Any, x: Tensor) -> Any:
        inner = checkpoint(self.mlp, x, use_reentrant=False)
        return checkpoint(self.mlp, inner, use_reentrant=True)

    return trained(FunctionModule(forward, mlp=mlp(64)), randn(16, 64).requires_grad_())


@program()
def custom_operator() -> Program:
    @torch.library.custom_op("breadth::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @scale.register_fake
    def _(x: Tensor, factor: float) -> Tensor:
        return torch.empty_like(x)

    torch.library.register_autograd(
        "breadth::scale",
        lambda ctx, gradient: (gradient * 2.0, None),
        setup_context=lambda ctx, inputs, output: None,
    )
    model = FunctionModule(
        lambda self, x: torch.ops.breadth.scale(x @ self.w, 2.0), w=randn(64, 64)
    )
    return trained(model, randn(64, 64))


@program()
def cond_operator() -> Program:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v.sin() @ self.w, lambda v: v.cos() @ self.w, (x,))

    return trained(FunctionModule(forward, w=randn(32, 32)), randn(32, 32))


@program()
def while_loop_operator() -> Program:
    from torch._higher_order_ops.while_loop import while_loop

    def forward(x: Tensor) -> Any:
        start = (torch.tensor(0), x)
        return while_loop(lambda i, _: i < 4, lambda i, v: (i + 1, v * 1.1), start)[1]

    return inference(forward, randn(32, 32))


@program()
def scan_operator() -> Program:
    from torch._higher_order_ops.scan import scan

    def forward(self: Any, x: Tensor) -> Any:
        def combine(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return carry * 0.9 + row, carry * 0.9 + row

        return scan(combine, torch.zeros(32), x * self.scale)[1]

    return trained(FunctionModule(forward, scale=torch.ones(1)), randn(16, 32))


@program()
def associative_scan_operator() -> Program:
    from torch._higher_order_ops.associative_scan import associative_scan

    def forward(x: Tensor) -> Any:
        return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")

    return inference(forward, randn(16, 32))


@program()
def map_operator() -> Program:
    from torch._higher_order_ops.map import map as map_rows

    return inference(lambda x: map_rows(lambda row: row.sin() + 1, x), randn(8, 32))
