"""A model exported with AOTInductor: it computes only what it was exported for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gobrrr.fixes.compilation.aot_inductor import AOT_INDUCTOR  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402
from gobrrr.verification.winner import with_fixes  # noqa: E402

pytestmark = pytest.mark.torch


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def forward(self, x: Any, scale: float = 1.0, **more: Any) -> Any:
        return self.inner(x) * scale + sum(more.values())


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The calls of the exported library, which is the exported graph: nothing is compiled."""
    calls: list[tuple[Any, Any]] = []
    programs: list[Any] = []

    def compiled(exported: Any, package_path: str) -> str:
        programs.append(exported.module())
        return package_path

    def load(path: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return programs[-1](*args, **kwargs)

        return call

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compiled)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    return calls


def test_other_inputs_than_the_exported_ones_are_for_the_model(
    library: list[tuple[Any, Any]],
) -> None:
    model, x = Scaled().eval(), torch.randn(32, 4)
    fast = with_fixes(model, [AOT_INDUCTOR], (x,))
    assert torch.equal(fast(x), model(x))
    assert torch.equal(fast(x=x + 1), model(x + 1))
    assert len(library) == 2
    for args in (
        (x[:10],), (x.t().contiguous().t(),), (torch.randn(129)[1:].view(32, 4),),
        (x, 2.0), (x, torch.tensor(2.0)),
    ):  # fmt: skip
        assert torch.equal(fast(*args), model(*args))
    assert fast(x[:10]).shape == (10, 4)
    assert fast(x.to_sparse().to_dense()[:0]).shape == (0, 4)
    with pytest.raises(RuntimeError, match="dtype"):
        fast(x.double())
    assert len(library) == 2


def test_inputs_by_name_are_those_of_the_exported_program(library: list[tuple[Any, Any]]) -> None:
    model, x = Scaled().eval(), torch.randn(2, 4)
    fast = with_fixes(model, [AOT_INDUCTOR], {"x": x, "bias": x})
    assert torch.equal(fast(x, bias=x), model(x, bias=x))
    assert len(library) == 1
    assert torch.equal(fast(x), model(x))
    assert len(library) == 1


def test_what_is_exported_is_a_module_with_the_parameters_and_modes_of_the_model(
    library: list[tuple[Any, Any]],
) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast = with_fixes(model, [AOT_INDUCTOR], (x,))
    # Exported in the mode that it is in, which it keeps.
    assert model.training
    assert fast.training
    assert [id(p) for p in fast.parameters()] == [id(p) for p in model.parameters()]
    fast(x)
    assert len(library) == 1
    fast.eval()
    assert not model.training
    assert torch.equal(fast(x), model(x))
    assert len(library) == 1


def test_a_model_that_updates_its_buffers_is_not_exported(library: list[tuple[Any, Any]]) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4)
    with (
        pytest.raises(InputError, match=r"call model\.eval\(\)"),
        AOT_INDUCTOR.apply(Workload(model, x)),
    ):
        pass
    model.eval()
    with AOT_INDUCTOR.apply(Workload(model, x)) as applied:
        assert torch.equal(applied.forward(), model(x))


def test_one_tensor_given_twice_is_one_input_of_the_library(library: list[tuple[Any, Any]]) -> None:
    class Sum(nn.Module):
        def forward(self, query: Any, keys: list[Any]) -> Any:
            return query * 2 + keys[0] * 3

    model, x = Sum(), torch.randn(2, 4)
    fast = with_fixes(model, [AOT_INDUCTOR], (x, [x]))
    assert torch.equal(fast(x + 1, [x]), model(x + 1, [x]))
    assert not library
    other = x + 1
    assert torch.equal(fast(other, [other]), model(other, [other]))
    assert len(library) == 1


def test_new_weights_are_not_left_to_a_library_with_the_old_ones(
    library: list[tuple[Any, Any]],
) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast = with_fixes(model, [AOT_INDUCTOR], (x,))
    fast(x)
    assert len(library) == 1
    fast.load_state_dict({name: value + 1 for name, value in fast.state_dict().items()})
    assert torch.equal(fast(x), model(x))
    assert len(library) == 1
    # Made in inference mode, they count no changes.
    with torch.inference_mode():
        uncounted = nn.Linear(4, 4).requires_grad_(False)
    fast = with_fixes(uncounted, [AOT_INDUCTOR], (x,))
    with torch.inference_mode():
        assert torch.equal(fast(x), uncounted(x))
