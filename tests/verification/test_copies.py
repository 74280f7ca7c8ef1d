"""Copies of a workload: they run the user's program, and leave the user's objects alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.timeline.workload import Workload  # noqa: E402
from gobrrr.verification.copies import private_copy  # noqa: E402
from gobrrr.verification.workloads import prepare, verify_workload  # noqa: E402

pytestmark = pytest.mark.torch

MODEL: Any = None


def workload(loss_of: Callable[[Any], Callable[..., Any]]) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(model, torch.ones(2, 4), loss=loss_of(model), optimizer=optimizer)


def by_model(model: Any) -> Callable[..., Any]:
    return lambda out: out.square().mean() + 0.5 * sum(p.square().sum() for p in model.parameters())


def by_parameters(model: Any) -> Callable[..., Any]:
    parameters = list(model.parameters())

    def loss(out: Any, *, factor: float = 0.5) -> Any:
        return out.square().mean() + factor * sum(p.square().sum() for p in parameters)

    return loss


def by_partial(model: Any) -> Callable[..., Any]:
    return partial(by_parameters(model), factor=0.25)


def by_partial_of_a_global(model: Any) -> Callable[..., Any]:
    return partial(by_global(model))


def by_global(model: Any) -> Callable[..., Any]:
    global MODEL
    MODEL = model
    return lambda out: out.square().mean() + 0.5 * sum(p.square().sum() for p in MODEL.parameters())


@pytest.mark.parametrize("loss_of", [by_model, by_parameters, by_partial])
def test_a_loss_that_regularises_the_model_regularises_the_copy(
    loss_of: Callable[[Any], Callable[..., Any]],
) -> None:
    work = workload(loss_of)
    copy = private_copy(work)
    copy.step()
    assert all(p.grad is None for p in work.model.parameters())
    assert prepare(work).notices == ()
    work.step()
    for mine, copied in zip(work.model.parameters(), copy.model.parameters()):
        assert torch.equal(mine, copied)


def test_the_copy_of_an_optimizer_with_a_scheduler_changes_the_copied_weights_alone() -> None:
    work = workload(lambda _: lambda out: out.square().mean())
    torch.optim.lr_scheduler.StepLR(work.optimizer, 1)
    # As training leaves them.
    for parameter in work.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [parameter.clone() for parameter in work.model.parameters()]
    copy = private_copy(work)
    copy.step()
    assert all(map(torch.equal, work.model.parameters(), before))
    assert not any(map(torch.equal, copy.model.parameters(), before))


@pytest.mark.parametrize("loss_of", [by_model, by_partial, by_global, by_partial_of_a_global])
def test_a_loss_that_reads_the_model_leaves_no_gradients_in_it(
    loss_of: Callable[[Any], Callable[..., Any]],
) -> None:
    work = workload(loss_of)
    trial = verify_workload(work, [], budget_s=0.05)
    assert trial.verdict != "failed"
    assert all(p.grad is None for p in work.model.parameters())
    told = [notice for notice in trial.notices if "it still reads the original's" in notice]
    assert len(told) == (loss_of in (by_global, by_partial_of_a_global))


def test_what_hooks_and_the_loss_append_to_is_as_it_was() -> None:
    seen: list[Any] = ["before"]

    def loss_of(model: Any) -> Callable[..., Any]:
        def loss(out: Any) -> Any:
            seen.append("loss")
            return out.square().mean()

        return loss

    work = workload(loss_of)
    work.model.register_forward_pre_hook(lambda module, args: seen.append("pre"))
    work.model.register_forward_hook(lambda module, args, out: seen.append("forward"))
    work.model.register_full_backward_hook(lambda module, above, below: seen.append("backward"))
    assert verify_workload(work, [], budget_s=0.05).verdict != "failed"
    assert seen == ["before"]
