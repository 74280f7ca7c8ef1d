"""Which optimizers are fused where, as PyTorch's own checks have it."""

import sys

import pytest

torch = pytest.importorskip("torch")

from gobrrr.fixes.optimizers import FUSED  # noqa: E402
from gobrrr.live.watch import fused_optimizers  # noqa: E402
from gobrrr.live.watch.fused_optimizers import has_fused, refused_on_cuda  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "module"),
    [("Adam", "adam"), ("AdamW", "adam"), ("SGD", "sgd"), ("Adagrad", "adagrad")],
)
def test_what_is_refused_on_cuda_is_what_the_optimizer_checks(name, module, monkeypatch):
    asked = []
    monkeypatch.setattr(
        sys.modules[f"torch.optim.{module}"], "_device_dtype_check_for_fused",
        lambda p, cuda_unsupported=False: asked.append(cuda_unsupported),
    )  # fmt: skip
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    getattr(torch.optim, name)([parameter], lr=0.1, fused=True).step()
    assert set(asked) == {refused_on_cuda(name)}
    assert name in FUSED


def test_what_is_no_optimizer_of_torch_s_is_not_refused():
    assert not refused_on_cuda("Muffin")


class Elsewhere(torch.nn.Parameter):
    is_cuda = True


@pytest.mark.parametrize("refused", [False, True])
def test_an_optimizer_is_fused_where_its_parameters_are(monkeypatch, refused):
    monkeypatch.setattr(fused_optimizers, "refused_on_cuda", lambda name: refused)
    assert has_fused(torch.optim.Adagrad([torch.nn.Parameter(torch.ones(2))]))
    assert has_fused(torch.optim.Adagrad([Elsewhere(torch.ones(2))])) is not refused
    assert not has_fused(torch.optim.Rprop([torch.nn.Parameter(torch.ones(2))]))
