import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import torch.optim.optimizer as home  # noqa: E402

from gobrrr.observe.optimizer_hooks import around_optimizer_steps  # noqa: E402


def test_hooks_come_and_go_inside_each_other() -> None:
    tables = (home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter])
    seen: list[str] = []

    def outer(*_: object) -> None:
        seen.append("outer")
        if len(seen) == 1:
            undo.append(around_optimizer_steps(before=before, after=inner))
        elif seen.count("outer") == 2:
            for one in reversed(undo):
                one()

    def before(*_: object) -> None:
        seen.append("before")

    def inner(*_: object) -> None:
        seen.append("inner")

    undo = [around_optimizer_steps(after=outer)]
    for _ in range(3):
        optimizer.step()
    # Step 1: outer alone. Step 2: before, outer (which takes all away), and inner from the table
    # that was being gone through. Step 3: nothing.
    assert seen == ["outer", "before", "outer", "inner"]
    assert (home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks) == tables
    assert home._global_optimizer_post_hooks is tables[1]
