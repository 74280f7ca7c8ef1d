"""Exported programs in a captured step."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.errors import CaptureError, InputError  # noqa: E402

pytestmark = pytest.mark.torch
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def _exported(model: nn.Module) -> Any:
    rows = torch.export.Dim("rows", min=2, max=64)
    return torch.export.export(model, (torch.randn(8, 4),), dynamic_shapes=({0: rows},))


def test_an_exported_program_runs_the_operators_of_its_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def make() -> Any:
        run, x = _exported(model).module(), torch.randn(32, 4)
        return lambda: run(x)

    graph = capture_op_graph(make, CPU)
    assert [op.call.name for op in graph.ops] == ["aten::t", "aten::addmm", "aten::relu"]
    assert graph.ops[1].call.tensors[1].shape == (32, 4)
    assert any("exported program" in notice for notice in graph.notices)
    assert _exported(model).graph  # as torch has it


@pytest.mark.parametrize("use", [lambda p: p.graph, lambda p: p.run_decompositions()])
def test_what_is_asked_of_an_exported_program_beside_its_module_is_refused(use: Any) -> None:
    def make() -> Any:
        program = _exported(nn.Linear(4, 4))
        assert isinstance(program, torch.export.ExportedProgram)
        use(program)
        return lambda: None

    with pytest.raises(CaptureError, match="exported program"):
        capture_op_graph(make, CPU)


def test_nested_tensors_made_in_the_step_are_refused_in_a_sentence() -> None:
    def make() -> Any:
        rows = [torch.randn(5, 4), torch.randn(3, 4)]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return lambda: nested * 2

    with pytest.raises(InputError, match="padded batch"):
        capture_op_graph(make, CPU)


@pytest.mark.filterwarnings("ignore")
def test_a_linearised_function_is_refused_with_what_to_write() -> None:
    import gobrrr

    x = torch.randn(4, 4)

    def step() -> Any:
        return torch.func.linearize(torch.tanh, x)[1](x)

    with pytest.raises(InputError, match=r"torch\.func\.jvp"):
        gobrrr.predict(step, "A100-SXM-80GB")


@pytest.mark.filterwarnings("ignore")
def test_a_traced_module_is_refused_with_what_to_write() -> None:
    def make() -> Any:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
        return torch.jit.trace(model, torch.randn(1, 3, 8, 8)), (torch.randn(4, 3, 8, 8),)

    with pytest.raises(InputError, match="predict the module itself"):
        capture_op_graph(make, CPU)
