from __future__ import annotations

import random
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe import snapshot as snapshots  # noqa: E402
from gobrrr.observe.snapshot import Snapshot  # noqa: E402


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


def moved_on(roots: list[Any]) -> Snapshot:
    """What was taken of some tensors, which have moved on since."""
    taken = Snapshot(roots)
    with torch.no_grad():
        for tensor in roots:
            tensor.add_(1)
            if tensor.grad is not None:
                tensor.grad.add_(1)
    return taken


def tensors_of(number: int) -> list[Any]:
    """Of 100 bytes each."""
    return [torch.full((25,), float(value)) for value in range(number)]


@pytest.mark.parametrize("fails", [False, True])
def test_copies_that_fill_a_device_lie_in_the_memory_of_the_host(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned: list[int] = []
    clone = torch.Tensor.clone

    def counted(tensor: Any) -> Any:
        if fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        cloned.append(tensor.nbytes)
        return clone(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", counted)
    monkeypatch.setattr(snapshots, "free_bytes", lambda device: 3500)
    tensors = tensors_of(5)
    tensors[1].requires_grad_()
    tensors[1].grad = torch.ones(25)
    taken = moved_on(tensors)
    # Three of six are less than a tenth of what is free there.
    assert len(cloned) == (0 if fails else 3)
    taken.restore()
    assert [tensor[0].item() for tensor in tensors] == [0, 1, 2, 3, 4]
    grad = tensors[1].grad
    assert grad is not None and grad.tolist() == [1] * 25


def test_copies_that_fit_nowhere_are_dropped_before_the_steps_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies: list[weakref.ref[Any]] = []
    clone = torch.Tensor.clone

    def watched(tensor: Any) -> Any:
        copied = clone(tensor)
        copies.append(weakref.ref(copied))
        return copied

    monkeypatch.setattr(torch.Tensor, "clone", watched)
    monkeypatch.setattr(snapshots, "free_bytes", lambda device: 2500)
    monkeypatch.setattr(snapshots, "free_memory_bytes", lambda: 99)
    tensors = tensors_of(5)
    notices: list[str] = []
    with snapshots.state_put_back((tensors,), notices):
        assert len(copies) == 2
        assert all(copy() is None for copy in copies)
        tensors[0].add_(1)
    assert tensors[0][0] == 1
    assert notices == ["State is not restored: copying it failed (MemoryError)."]
