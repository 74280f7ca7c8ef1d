"""Results whose size depends on data: where a size hint is asked for, it helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

from gobrrr.symbolic.op_graph import (  # noqa: E402
    CaptureOptions,
    CaptureTarget,
    capture_op_graph,
)
from gobrrr.symbolic.target.answers import DeviceAnswers  # noqa: E402
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

pytestmark = pytest.mark.torch

CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))
GPU = CaptureTarget(
    DeviceAnswers("cuda", "NVIDIA H100 80GB HBM3", 80 * 10**9, 132, (9, 0), True),
    Abilities(frozenset(), frozenset()),
)
DATA = torch.randn(64, 64)
SPECTRUM_WINDOW = torch.hann_window(400)


def capture(step: Callable[[], Any], hint: int | None = None) -> OpGraph:
    return capture_op_graph(lambda: step, CPU, CaptureOptions(size_hint=hint))


def shapes(step: Callable[[], Any], hint: int | None = None) -> list[tuple[int, ...]]:
    """Shapes of the results of the last operator."""
    return [spec.shape for spec in capture(step, hint).ops[-1].call.outputs or () if spec]


def labels(count: int) -> torch.Tensor:
    """Whole numbers that nobody knows in a capture."""
    return (torch.randn(count, 64).sum(-1) > 0).long()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda: DATA.abs().nonzero(), [(16, 2)]),
        (lambda: DATA.masked_select(DATA > 0), [(16,)]),
        (lambda: DATA[DATA.sum(-1) > 0], [(16, 64)]),
        (lambda: DATA[DATA.sum(-1) > 0, DATA.sum(0) > 0], [(16,)]),
        (lambda: torch.bincount(labels(100)), [(16,)]),
        (lambda: torch.bincount(labels(100), minlength=64), [(64,)]),
        (lambda: torch._unique2(labels(100)), [(16,), (100,), (16,)]),
        (lambda: torch.ops.aten.unique_dim(DATA * 2, 0), [(16, 64), (64,), (16,)]),
        (lambda: torch.unique_consecutive(labels(100)), [(16,), (100,), (16,)]),
        (lambda: torch._VF.unique_consecutive(DATA * 2, dim=1), [(64, 16), (64,), (16,)]),
    ],
)  # fmt: skip
def test_the_hint_is_the_size(step: Callable[[], Any], expected: list[tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match="--size-hint"):
        capture(step)
    assert shapes(step, hint=16) == expected


def test_a_known_mask_needs_no_hint() -> None:
    mask = torch.arange(64) % 3 == 0  # 22 of 64
    assert shapes(lambda: torch.randn(64, 8)[mask]) == [(22, 8)]
    assert shapes(lambda: torch.randn(64, 8).masked_select(mask[:, None])) == [(176,)]


def test_lengths_that_are_known_need_no_hint() -> None:
    lengths, data = torch.tensor([5, 3, 1]), torch.randn(3, 6, 4)
    packed: list[Any] = []
    assert shapes(lambda: packed.append(pack_padded_sequence(data, lengths, True))) == [
        (9, 4),
        (5,),
    ]


def test_ctc_loss_with_known_lengths_and_without() -> None:
    scores, targets = torch.randn(50, 4, 20), torch.randint(1, 20, (4, 30))

    def known() -> torch.Tensor:
        lengths = torch.full((4,), 10)
        return functional.ctc_loss(scores.log_softmax(-1), targets, lengths * 5, lengths)

    def unknown() -> torch.Tensor:
        return functional.ctc_loss(scores.log_softmax(-1), targets, labels(4) + 49, labels(4) + 9)

    def alphas(graph: OpGraph) -> tuple[int, ...]:
        op = next(op for op in graph.ops if op.call.name == "aten::_ctc_loss")
        return (op.call.outputs or ())[1].shape

    # 2 x 10 + 1 where the lengths are known; else of a table of 30 columns.
    assert alphas(capture(known)) == (4, 50, 21)
    assert alphas(capture(unknown)) == (4, 50, 61)
    assert alphas(capture(unknown, hint=12)) == (4, 50, 25)


def test_least_squares_and_spectra_need_no_hint() -> None:
    solved = shapes(lambda: torch.linalg.lstsq(torch.randn(64, 8), torch.randn(64, 2)))
    assert solved[0] == (8, 2)
    signal = torch.randn(2, 4000)

    def spectrum() -> torch.Tensor:
        found = torch.stft(signal, 400, window=SPECTRUM_WINDOW, return_complex=True)
        return torch.istft(found, 400, window=SPECTRUM_WINDOW)

    assert capture(spectrum).ops


def test_equal_says_what_it_decided() -> None:
    graph = capture(lambda: DATA + 1 if torch.equal(DATA, DATA * 2) else DATA)
    assert any(
        notice.startswith("Equal of tensors with unknown values") for notice in graph.notices
    )


def test_tables_of_a_schedule_are_read() -> None:
    table = torch.linspace(1e-4, 0.02, 1000)

    def step() -> torch.Tensor:
        return DATA * float((1 - table).cumprod(0).numpy()[-1])

    last = capture_op_graph(lambda: step, GPU).ops[-1].call
    assert last.args[1] == pytest.approx(float((1 - table).cumprod(0)[-1]))
