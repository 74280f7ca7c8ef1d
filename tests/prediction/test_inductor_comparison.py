"""Fusion rules against what Inductor schedules on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch


def chain() -> Callable[[], Any]:
    import torch

    x = torch.randn(64, 256)
    return lambda: (x.cos().cos() * 2).relu()


def norm_and_activation() -> Callable[[], Any]:
    import torch

    x, w, b = torch.randn(64, 256), torch.randn(256), torch.randn(256)
    layer_norm = torch.nn.functional.layer_norm
    return lambda: layer_norm(x, (256,), w, b).relu() + x


def two_layers() -> Callable[[], Any]:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    x = torch.randn(32, 64)

    def forward() -> Any:
        with torch.no_grad():
            return net(x)

    return forward


def softmax_by_hand() -> Callable[[], Any]:
    import torch

    x = torch.randn(128, 512)

    def forward() -> Any:
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    return forward


@pytest.mark.parametrize("make", [chain, norm_and_activation, two_layers, softmax_by_hand])
def test_rules_leave_the_kernels_that_inductor_leaves(make: Callable[[], Any]) -> None:
    import torch

    from gobrrr.prediction.inductor_comparison import compare_with_inductor
    from gobrrr.timeline.errors import InputError

    torch.manual_seed(0)
    try:
        found = compare_with_inductor(make())
    except InputError as error:
        pytest.skip(str(error))
    assert found.fused_made == found.fused_expected
    assert len(found.made) == len(found.expected)
    assert found.bytes_made is not None
    assert found.bytes_expected is not None
    assert found.bytes_eager is not None
    # Inductor counts an expanded operand by its storage, as work does; small parameters differ.
    assert found.bytes_expected == pytest.approx(found.bytes_made, rel=0.1)
    # Between two products there is one operator, and nothing to fuse it with.
    saves = make is not two_layers
    assert (found.bytes_expected < found.bytes_eager) == saves


def test_a_graph_break_and_a_mutation_are_named() -> None:
    import torch

    from gobrrr.prediction.inductor_comparison import compare_with_inductor
    from gobrrr.timeline.errors import InputError

    x, total = torch.randn(64, 64), torch.zeros(64, 64)

    def step() -> Any:
        y = x.cos()
        if y.sum().item() > 1e9:
            y = y * 2
        total.add_(y)
        return y.sin()

    try:
        found = compare_with_inductor(step)
    except InputError as error:
        pytest.skip(str(error))
    text = " ".join(found.breaks)
    assert "Graph break" in text
    assert "Mutation: 1 in-place" in text


def test_the_comparison_is_part_of_a_diagnosis_on_request() -> None:
    import torch

    from gobrrr.prediction.inductor_comparison import comparison_notices
    from gobrrr.timeline.workload import Workload

    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    first, *_ = comparison_notices(Workload(net, torch.randn(16, 32)))
    assert first.startswith(
        ("torch.compile makes 1 generated kernels and 2 library calls",
         "Not compared with torch.compile")
    )  # fmt: skip
