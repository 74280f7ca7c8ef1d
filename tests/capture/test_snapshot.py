import random

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.capture.snapshot import Snapshot  # noqa: E402


def test_a_training_step_leaves_no_trace() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    data = torch.randn(8, 4)
    seen = []

    def step() -> None:
        optimizer.zero_grad()
        loss = model(data + torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.eval()
        seen.append(loss.item())
        random.random()

    before = {name: value.clone() for name, value in model.state_dict().items()}
    rng, python_rng = torch.get_rng_state(), random.getstate()
    snapshot = Snapshot(step)
    step()
    step()
    snapshot.restore()

    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert optimizer.state == {}
    assert scheduler.last_epoch == 0
    assert model.training
    assert seen == []
    assert torch.equal(torch.get_rng_state(), rng)
    assert random.getstate() == python_rng


def test_tensors_are_written_back_in_place() -> None:
    held = torch.ones(3)
    alias = held

    def step() -> None:
        held.add_(1)

    snapshot = Snapshot(step)
    step()
    snapshot.restore()
    assert alias.tolist() == [1, 1, 1]


def test_what_cannot_be_rewound_is_named() -> None:
    batches = iter([1, 2, 3])

    def step() -> int:
        return next(batches)

    assert Snapshot(step).not_rewound == ["batches"]


def test_a_nested_tensor_is_put_back() -> None:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    nested = torch.nested.nested_tensor(parts)
    snapshot = Snapshot(lambda: nested)
    nested.mul_(5)
    snapshot.restore()
    assert all(torch.equal(now, then) for now, then in zip(nested.unbind(), parts))
