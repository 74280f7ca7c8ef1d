"""Every optimizer of torch.optim in its variants, and what stands around it in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.breadth.case import MakeOptimizer, Program, Programs, mlp, trained, whole_step
from torch import Tensor, nn, optim, randn
from torch.nn import functional

PROGRAMS = Programs()
program = PROGRAMS.add


def _with(make: MakeOptimizer) -> Callable[[], Program]:
    def build() -> Program:
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))
        return trained(model, randn(16, 64), optimizer=make)

    return build


_OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adamw_foreach": lambda m: optim.AdamW(m.parameters(), foreach=True),
    "adamw_loop": lambda m: optim.AdamW(m.parameters(), foreach=False),
    "adamw_fused": lambda m: optim.AdamW(m.parameters(), fused=True),
    "adam_amsgrad": lambda m: optim.Adam(m.parameters(), amsgrad=True),
    "adam_tensor_rate": lambda m: optim.AdamW(m.parameters(), torch.tensor(1e-3), foreach=False),
    "sgd_fused": lambda m: optim.SGD(m.parameters(), 0.1, momentum=0.9, fused=True),
    "sgd_nesterov": lambda m: optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True),
    "adafactor": lambda m: optim.Adafactor(m.parameters()),
    "rmsprop": lambda m: optim.RMSprop(m.parameters(), centered=True, momentum=0.9),
    "adagrad": lambda m: optim.Adagrad(m.parameters()),
    "adagrad_fused": lambda m: optim.Adagrad(m.parameters(), fused=True),
    "adadelta": lambda m: optim.Adadelta(m.parameters()),
    "adamax": lambda m: optim.Adamax(m.parameters()),
    "asgd": lambda m: optim.ASGD(m.parameters()),
    "nadam": lambda m: optim.NAdam(m.parameters()),
    "radam": lambda m: optim.RAdam(m.parameters()),
    "rprop": lambda m: optim.Rprop(m.parameters()),
}
for _name, _make in _OPTIMIZERS.items():
    PROGRAMS.register(f"optimizer_{_name}", _with(_make))


@program()
def optimizer_muon() -> Program:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 32, bias=False))
    return trained(model, randn(16, 64), optimizer=lambda m: optim.Muon(m.parameters(), lr=0.01))


@program()
def optimizer_lbfgs() -> Program:
    model, x, y = mlp(32), randn(8, 32), randn(8, 32)
    optimizer = optim.LBFGS(model.parameters(), max_iter=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    return whole_step(lambda: optimizer.step(closure))


@program()
def clipping_schedule_and_average() -> Program:
    model, x = mlp(64), randn(8, 64)
    optimizer = optim.AdamW(model.parameters())
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    average = optim.swa_utils.AveragedModel(
        model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)

    return whole_step(step)


@program()
def scaler_on_the_cpu() -> Program:
    model, x, scaler = mlp(64), randn(8, 64), torch.amp.GradScaler("cpu")
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return whole_step(step)


@program()
def scaler_on_any_device() -> Program:
    def step() -> Any:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.float16 if device == "cuda" else torch.bfloat16
        model, x = mlp(64).to(device), randn(8, 64, device=device)
        optimizer, scaler = optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(device)
        with torch.autocast(device, dtype=dtype):
            loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return whole_step(step)


@program()
def accumulated_gradients() -> Program:
    model, batches = mlp(64), [randn(8, 64) for _ in range(4)]
    optimizer = optim.AdamW(model.parameters())

    def step() -> None:
        for x in batches:
            (model(x).pow(2).mean() / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return whole_step(step)


@program()
def adversarial() -> Program:
    generator, critic, x = mlp(64), mlp(64), randn(16, 64)
    optimizers = [optim.Adam(generator.parameters()), optim.Adam(critic.parameters())]

    def step() -> None:
        noise = randn(16, 64)
        optimizers[1].zero_grad()
        made = critic(generator(noise).detach())
        (functional.softplus(-critic(x)).mean() + functional.softplus(made).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        functional.softplus(-critic(generator(noise))).mean().backward()
        optimizers[0].step()

    return whole_step(step)
