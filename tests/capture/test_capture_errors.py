"""Whose error it is: the program's, PyTorch's machinery's of tensors without data, or gobrrr's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture import graph_recorder  # noqa: E402
from gobrrr.capture.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.capture.target_kernels import Abilities  # noqa: E402
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


def test_what_rules_without_data_do_not_cover_is_not_the_programs() -> None:
    def step() -> None:
        raise NotImplementedError("Could not run 'x::y' with arguments from the 'Meta' backend.")

    with pytest.raises(CaptureError, match=r"cannot predict the step \(.*test_capture_errors.py"):
        capture_op_graph(lambda: step, CPU)


def test_a_defect_of_gobrrr_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_recorder, "signature_of", {}.__getitem__)
    tensor = torch.randn(64)
    with pytest.raises(DefectError, match=r"defect of gobrrr.*report") as caught:
        capture_op_graph(lambda: lambda: tensor + 1, CPU)
    assert isinstance(caught.value.__cause__, KeyError)
