"""What a captured program is told where its way depends on data."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402
from gobrrr.symbolic.op_graph import (  # noqa: E402
    CaptureOptions,
    CaptureTarget,
    capture_op_graph,
)
from gobrrr.symbolic.target.kernels import Abilities  # noqa: E402
from gobrrr.symbolic.values.conditions import Conditions, answer_that_goes_on  # noqa: E402
from gobrrr.timeline.errors import CaptureError, UserCodeError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402

pytestmark = pytest.mark.torch

DATA = torch.randn(8, 8)
TOKENS = torch.ones(2, 4, dtype=torch.long)
CPU = CaptureTarget(None, Abilities(frozenset(), frozenset()))


def capture(step: object, hint: int | None = None) -> OpGraph:
    return capture_op_graph(lambda: step, CPU, CaptureOptions(size_hint=hint))


def count(graph: OpGraph, name: str) -> int:
    return sum(op.call.name == f"aten::{name}" for op in graph.ops)


class Asked:
    """Stands for an unknown tensor: notes what would let its asker go on."""

    def __init__(self) -> None:
        self.answers: list[bool | None] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        self.answers.append(answer_that_goes_on(frame.f_code, frame.f_lasti))
        return bool(self.answers[-1])


def test_checks_hold() -> None:
    asked = Asked()
    exec("assert asked, f'a check of {asked}'", {"asked": asked})  # pytest rewrites its own
    if not asked:
        raise ValueError(f"not {asked}")
    assert asked.answers == [True, True]


def test_checks_of_torch_itself_hold() -> None:
    x = torch.randn(4)

    def step() -> torch.Tensor:
        torch._check_tensor_all((x.min() >= -5) & (x.max() <= 5), lambda: "out of range")
        return x * 2

    assert gobrrr.predict(step, "H100-SXM").step_s > 0


def test_what_is_forbidden_is_false() -> None:
    asked = Asked()
    if asked:
        raise ValueError("is not a number")
    if not asked:
        value = 1
    else:
        value = 2
    assert (asked.answers, value) == ([False, None], 1)


def test_distributions_check_their_arguments() -> None:
    tensor = torch.randn(8, 8)

    def step() -> torch.Tensor:
        # Said outright: another library may have switched the default off for the whole process.
        normal = torch.distributions.Normal(tensor, tensor.exp(), validate_args=True)
        other = torch.distributions.Categorical(probs=tensor.softmax(-1), validate_args=True)
        return normal.rsample().sum() + other.log_prob(other.sample()).sum()

    graph = capture(step)
    assert any("assumed to be true" in notice for notice in graph.notices)


def test_a_loop_that_does_not_end_is_stopped_with_its_line() -> None:
    def step(tensor: torch.Tensor = DATA) -> torch.Tensor:
        while not (tensor < 0.1).all():
            tensor = tensor * 0.5
        return tensor

    with pytest.raises(CaptureError, match=r"test_conditions.py:\d+ in step.*--size-hint"):
        capture(step)
    # Compilers of some versions put the question before the loop, and once more at its end.
    assert count(capture(step, hint=7), "mul") in (6, 7)


def test_a_loop_that_reads_a_number_has_the_turns_of_the_hint() -> None:
    def step(tensor: torch.Tensor = DATA) -> torch.Tensor:
        while True:
            tensor = tensor * 0.5
            if tensor.abs().max().item() < 0.1:
                return tensor

    assert count(capture(step, hint=5), "mul") == 5
    with pytest.raises(CaptureError, match="does not end"):
        capture(step)


def test_a_long_loop_over_a_list_is_no_endless_one() -> None:
    def step(tensor: torch.Tensor = DATA) -> torch.Tensor:
        for _ in range(1200):
            if torch.isnan(tensor).any():
                return tensor
        return tensor + 1

    assert count(capture(step), "add") == 1


def test_turns_that_take_long_are_stopped_sooner() -> None:
    seconds = iter(range(0, 10_000, 10))
    conditions = Conditions(None, clock=lambda: float(next(seconds)))
    with pytest.raises(CaptureError, match="evaluated 20 times"):
        while not conditions.answer(sys._getframe(), "train.py:1"):
            pass


def test_the_end_that_shapes_give_is_followed() -> None:
    def step(tokens: torch.Tensor = TOKENS) -> torch.Tensor:
        done = torch.zeros(2, dtype=torch.bool)
        score = torch.randn(2, 100).sum(-1)
        while not (done.all() & (score > -1e9).any()):
            score = torch.randn(2, 100).sum(-1)
            tokens = torch.cat([tokens, tokens[:, -1:]], -1)
            unknown = score > 0
            done = unknown | torch.full((2,), tokens.shape[1] >= 12)
        return tokens

    assert count(capture(step), "cat") == 8


def test_the_end_of_a_generation_of_unknown_tokens_is_followed() -> None:
    def step(tokens: torch.Tensor = TOKENS) -> torch.Tensor:
        unfinished, finished = torch.ones(2, dtype=torch.long), False
        while not finished:
            token = torch.randn(2, 100).argmin(-1, keepdim=True)
            tokens = torch.cat([tokens, token], -1)
            at_end = torch.full((2,), tokens.shape[1] >= 9)
            unfinished = unfinished & ~(at_end | torch.isin(token[:, 0], torch.tensor([2])))
            finished = bool(unfinished.max() == 0)
        return tokens

    assert count(capture(step), "cat") == 5


def test_an_error_says_what_the_program_was_told() -> None:
    def step(tensor: torch.Tensor = DATA) -> torch.Tensor:
        names = {True: 1}
        return tensor * names[bool(tensor.sum() > 0)]

    with pytest.raises(UserCodeError, match="a condition on data is assumed to be false"):
        capture(step)
