"""What a program reads of tensors whose values are known steers it as it would for real."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn, randn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.symbolic.op_graph import (  # noqa: E402
    CaptureOptions,
    CaptureTarget,
    capture_op_graph,
)
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402

from .test_op_graph import GPU, names  # noqa: E402

pytestmark = pytest.mark.torch
H100 = "H100-SXM"
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def _counts(diagnosis: gobrrr.Diagnosis) -> dict[str, float]:
    counts: dict[str, float] = {}
    for row in diagnosis.ops:
        counts[row.name] = counts.get(row.name, 0) + row.count
    # Of an operator of three kernels each row has a third.
    return {name: round(count, 9) for name, count in counts.items()}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_packed_sequence_is_one_recurrent_kernel_on_its_rows(kind):
    model, lengths = kind(8, 16, batch_first=True), torch.tensor([20, 15, 9, 9])

    def step():
        packed = pack_padded_sequence(randn(4, 20, 8), lengths, batch_first=True)
        with torch.no_grad():
            output, _ = pad_packed_sequence(model(packed)[0], batch_first=True)
        assert output.shape == (4, 20, 16)
        return output

    step()
    diagnosis = gobrrr.predict(step, H100)
    assert _counts(diagnosis)["aten::_cudnn_rnn"] == 1
    (row,) = [row for row in diagnosis.ops if row.name == "aten::_cudnn_rnn"]
    assert row.shapes.startswith("(53,8)")  # 20 + 15 + 9 + 9 rows
    # Steps 0 to 8 have a batch of 4, 9 to 14 of 2, 15 to 19 of 1.
    assert _counts(diagnosis)["aten::copy_"] == 3


def test_a_packed_sequence_trains_as_the_padded_one_does():
    model, lengths = nn.LSTM(8, 16), torch.tensor([5, 3])

    def loss(output):
        return pad_packed_sequence(output[0], total_length=7)[0].sum()

    def forward(x):
        return model(pack_padded_sequence(x, lengths))

    work = gobrrr.Workload(
        forward, (randn(5, 2, 8),), loss, torch.optim.SGD(model.parameters(), 0.1)
    )
    assert _counts(gobrrr.predict(work, H100))["aten::_cudnn_rnn_backward"] == 1


def test_a_total_length_that_is_too_small_is_the_programs_error():
    lengths = torch.tensor([5, 3])

    def step():
        packed = pack_padded_sequence(randn(5, 2, 8), lengths)
        return pad_packed_sequence(packed, total_length=4)

    with pytest.raises(gobrrr.UserCodeError, match="total_length=4"):
        gobrrr.predict(step, H100)


def test_the_list_of_a_constant_is_known():
    sizes, x = torch.tensor([10, 20, 34]), randn(64, 8)
    diagnosis = gobrrr.predict(lambda: [part.sum() for part in x.split(sizes.tolist())], H100)
    assert _counts(diagnosis)["aten::sum"] == 3


def test_the_list_of_a_result_asks_for_a_hint_where_it_is_a_size():
    x = randn(4, 8)

    def step():
        return [torch.zeros(count, 4) for count in (x > 0).sum(1).tolist()]

    with pytest.raises(gobrrr.InputError, match="--size-hint"):
        gobrrr.predict(step, H100)
    assert _counts(gobrrr.predict(step, H100, size_hint=3))["aten::zeros"] == 4


def test_constants_of_8_bit_floating_point():
    weights, x = randn(16, 16).to(torch.float8_e4m3fn), randn(4, 16).bfloat16()
    diagnosis = gobrrr.predict(lambda: x @ weights.to(torch.bfloat16), H100)
    assert _counts(diagnosis)["aten::mm"] == 1


class _Renamed(torch.Tensor):
    pass


def test_a_subclass_without_anything_of_its_own_is_a_tensor():
    x = randn(8, 8)
    diagnosis = gobrrr.predict(lambda: (x.as_subclass(_Renamed) @ x).relu(), H100)
    assert _counts(diagnosis)["aten::mm"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("compile", [False, True])
def test_weights_packed_for_a_cpu_are_refused_elsewhere(compile: bool):
    quantise = torch.ao.quantization.quantize_dynamic
    model = quantise(nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(gobrrr.InputError, match="packed for a CPU"):
        gobrrr.predict((model, (randn(4, 8),)), H100, compile=compile)


def test_a_list_keeps_its_dimensions():
    table, x = torch.tensor([[1, 2], [3, 4]]), randn(8)

    def step():
        assert table.tolist() == [[1, 2], [3, 4]]
        return x + 1

    assert _counts(gobrrr.predict(step, H100))["aten::add"] == 1


def test_a_size_hint_below_zero_is_refused():
    x = randn(4)
    with pytest.raises(gobrrr.InputError, match="size hint"):
        gobrrr.predict(lambda: x + 1, H100, size_hint=-1)


@pytest.mark.parametrize("device", [H100, "cpu"])
def test_a_list_of_tensors_is_read_number_by_number(device):
    rows = torch.tensor([3, 5, 2])

    def step():
        sizes = torch.tensor([rows.max() + 1, rows.min(), 4])
        scale = torch.tensor([randn(8).sum().double(), 1.0])
        assert sizes.dtype is torch.int64 and scale.dtype is torch.float64
        return randn(int(sizes.sum())).exp(), scale

    step()
    (row,) = [row for row in gobrrr.predict(step, device).ops if row.name == "aten::exp"]
    assert row.shapes.startswith("(12)")  # 6 + 2 + 4


def test_integers_drawn_while_the_program_is_set_up_are_those_of_one_draw():
    """A prompt of random tokens, with the marks of an image among them."""

    def make():
        tokens = torch.randint(20, 400, (2, 64))
        tokens[:, 3:7] = 10
        table = randn(400, 8)

        def step():
            return table[tokens[tokens == 10]].exp()

        return step

    graph = capture_op_graph(make, CPU)
    (op,) = [op for op in graph.ops if op.call.name == "aten::exp"]
    assert op.call.tensors[0].shape == (8, 8)  # 4 marks in each of 2 rows
    assert any("one draw" in notice for notice in graph.notices)
    # A hint stands for what the program's data would be.
    hinted = capture_op_graph(make, CPU, CaptureOptions(size_hint=5))
    (op,) = [op for op in hinted.ops if op.call.name == "aten::exp"]
    assert op.call.tensors[0].shape == (5, 8)


def test_memory_that_nobody_has_written_has_no_values():
    def step():
        lengths = torch.empty(4, dtype=torch.int64)
        return torch.zeros(lengths[1:].sum().item())

    with pytest.raises(gobrrr.InputError, match="values are unknown"):
        gobrrr.predict(step, H100)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.random_(3, 4),
        lambda x: x.copy_(torch.full((4,), 3)),
        lambda x: x.fill_(3),
        lambda x: [x[:1].fill_(3), x[1:].copy_(torch.full((3,), 3))],
        lambda x: x.zero_().add_(3),
    ],
)
def test_memory_has_the_values_that_are_written(write):
    def step():
        lengths = torch.empty(4, dtype=torch.int64)
        write(lengths)
        return torch.ones(lengths.sum().item()).cos()

    (row,) = [row for row in gobrrr.predict(step, H100).ops if row.name == "aten::cos"]
    assert row.shapes == "(12)"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_list_of_a_tensor_waits_for_the_device_once(named, known):
    device = {"device": "cuda"} if named else {}

    def make():
        x = torch.zeros(10, 50, dtype=torch.int64, **device) if known else randn(10, 50, **device)

        def step():
            rows = (x + 1).tolist()
            assert (len(rows), len(rows[0]), rows[9][49]) == (10, 50, 1)

        return step

    found = names(capture_op_graph(make, GPU))
    # A copy, or one element in its place; an unknown value is then read on the host.
    assert found["_to_copy"] == int(named)
    assert found["_local_scalar_dense"] == int(not (named and known))
    assert found["add"] == 1
