"""Whose error it is: the program's, PyTorch's machinery's of tensors without data, or gobrrr's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic import graph_recorder  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.errors import CaptureError, DefectError, UserCodeError  # noqa: E402

pytestmark = pytest.mark.torch

CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def test_what_the_operator_refuses_too_is_the_programs() -> None:
    tensor = torch.randn(4, 5)
    with pytest.raises(UserCodeError, match="RuntimeError"):
        capture_op_graph(lambda: lambda: tensor @ tensor, CPU)


def test_what_the_program_raises_is_the_programs() -> None:
    def step() -> None:
        raise NotImplementedError("a head of that kind")

    with pytest.raises(UserCodeError, match="a head of that kind"):
        capture_op_graph(lambda: step, CPU)


@pytest.mark.parametrize(
    "message",
    [
        "Could not run 'x::y' with arguments from the 'Meta' backend.",
        "Could not run 'x::y' with arguments from the 'QuantizedMeta' backend.",
        "DispatchStub: unsupported device typemeta",
        "there was no fake impl or Meta kernel registered",
    ],
)
def test_what_rules_without_data_do_not_cover_is_not_the_programs(message: str) -> None:
    def step() -> None:
        raise NotImplementedError(message)

    with pytest.raises(CaptureError, match=r"cannot predict the step \(.*test_capture_errors.py"):
        capture_op_graph(lambda: step, CPU)


def test_nor_is_what_a_kernel_of_the_host_says_in_its_place() -> None:
    # An operator that a GPU has, tried on the host where there is no rule for its shape.
    def step() -> None:
        try:
            raise NotImplementedError("there was no fake impl or Meta kernel registered")
        except NotImplementedError as error:
            raise NotImplementedError(
                "Could not run 'x::y' with arguments from the 'CPU' backend."
            ) from error

    with pytest.raises(CaptureError, match="cannot predict the step"):
        capture_op_graph(lambda: step, CPU)


def test_an_operator_without_a_shape_rule_is_not_the_programs() -> None:
    @torch.library.custom_op("gobrrr_tests::without_a_rule", mutates_args=())
    def without_a_rule(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    tensor = torch.randn(4)
    with pytest.raises(CaptureError, match="without_a_rule"):
        capture_op_graph(lambda: lambda: without_a_rule(tensor), CPU)


def test_a_loss_may_be_printed() -> None:
    tensor = torch.randn(8, 8)

    def step() -> torch.Tensor:
        # A number that nobody knows is 1.
        return tensor.reshape(2, int(32 * float(f"{tensor.mean():.2f}")))

    assert capture_op_graph(lambda: step, CPU).ops


def test_nor_is_it_where_a_file_is_built() -> None:
    def make() -> None:
        error = NotImplementedError("Could not run 'x::y' with arguments from the 'Meta' backend.")
        raise UserCodeError("bench.py:make raised NotImplementedError") from error

    with pytest.raises(CaptureError, match="cannot predict setting up the step"):
        capture_op_graph(make, CPU)


def test_a_defect_of_gobrrr_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_recorder, "signature_of", {}.__getitem__)
    tensor = torch.randn(64)
    with pytest.raises(DefectError, match=r"bug in gobrrr.*report") as caught:
        capture_op_graph(lambda: lambda: tensor + 1, CPU)
    assert isinstance(caught.value.__cause__, KeyError)
