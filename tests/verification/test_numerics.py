"""What is compared, against what, and what fails: peers' checks passed by comparing nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gobrrr.fixes.fix import NUMERICS, RANDOMNESS, Fix, RuledOut
from gobrrr.timeline.workload import Workload
from gobrrr.verification.copies import private_copy
from gobrrr.verification.evaluation import Evaluation, Expected, evaluate, expect
from gobrrr.verification.numerics import Numerics, compare, relative_error

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def tensor(*values: float) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64)


def made(**fields: Any) -> Evaluation:
    empty: dict[str, Any] = {
        "outputs": {}, "gradients": {}, "losses": (), "moved": {}, "draws": False,
    }  # fmt: skip
    return Evaluation(**{**empty, **fields})


def judged(
    original: Evaluation, changed: Evaluation, reference: Evaluation | None = None,
    tolerance: float = 1e-2,
) -> Numerics:  # fmt: skip
    expected = Expected(original, reference or original, "the reference")
    return compare(expected, changed, tolerance)


def test_nothing_compared_is_a_failure() -> None:
    found = judged(made(), made())
    assert (found.verdict, found.compared) == ("failed", 0)
    assert "nothing could be compared" in found.reason


def test_outputs_that_have_all_gone_are_a_failure() -> None:
    assert judged(made(outputs={"a": tensor(1.0)}), made()).verdict == "failed"
    assert judged(made(outputs={"a": tensor(1.0)}), made(outputs={"b": tensor(1.0)})).verdict == (
        "failed"
    )


def test_relative_error_is_in_the_l2_norm() -> None:
    # |(0, 0.5)| / |(3, 4)| = 0.5 / 5
    assert relative_error(tensor(3.0, 4.5), tensor(3.0, 4.0)) == (pytest.approx(0.1), 0.5)


def test_the_originals_own_error_is_allowed_beside_the_tolerance() -> None:
    reference = made(outputs={"y": tensor(100.0)})
    original = made(outputs={"y": tensor(102.0)})
    # 0.02 the original's + 0.01 asked for = 0.03
    assert judged(original, made(outputs={"y": tensor(102.9)}), reference).passed
    assert not judged(original, made(outputs={"y": tensor(103.1)}), reference).passed
    found = judged(original, made(outputs={"y": tensor(97.5)}), reference)
    assert found.passed and found.error == pytest.approx(0.025)
    assert found.original_error == pytest.approx(0.02)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_fail(bad: float) -> None:
    original = made(outputs={"y": tensor(1.0, 2.0)}, losses=(1.0,))
    assert not judged(original, replace(original, outputs={"y": tensor(1.0, bad)})).passed
    assert not judged(original, replace(original, losses=(bad,))).passed
    broken = made(outputs={"y": tensor(1.0, float("nan"))})
    # NaN in both is not agreement.
    assert not judged(broken, broken).passed


def test_the_infinities_of_a_mask_are_no_failure() -> None:
    masked = made(outputs={"y": tensor(1.0, float("-inf"))})
    assert judged(masked, masked).passed
    assert not judged(masked, made(outputs={"y": tensor(1.1, float("-inf"))})).passed
    assert not judged(masked, made(outputs={"y": tensor(1.0, float("inf"))})).passed
    assert not judged(masked, made(outputs={"y": tensor(1.0, 5.0)})).passed


def test_shapes_must_agree() -> None:
    found = judged(made(outputs={"y": tensor(1.0, 1.0)}), made(outputs={"y": tensor(1.0)}))
    assert found.verdict == "failed" and "shape" in found.reason


def test_a_wrong_gradient_fails_though_the_loss_is_right() -> None:
    original = made(gradients={"w": tensor(1.0, 2.0), "b": tensor(0.5)}, losses=(3.0,))
    wrong = replace(original, gradients={"w": tensor(1.0, 2.0), "b": tensor(-0.5)})
    found = judged(original, wrong)
    assert found.verdict == "failed" and found.worst == "the gradient of b"


def test_a_missing_gradient_fails() -> None:
    original = made(gradients={"w": tensor(1.0), "b": tensor(0.5)}, losses=(3.0,))
    found = judged(original, replace(original, gradients={"w": tensor(1.0), "b": None}))
    assert found.verdict == "failed" and "b is missing" in found.reason


def test_rounding_in_a_gradient_that_is_zero_is_no_error() -> None:
    original = made(gradients={"w": tensor(1.0, -1.0), "key bias": tensor(1e-9, -2e-9)})
    changed = replace(original, gradients={"w": tensor(1.0, -1.0), "key bias": tensor(-3e-4, 1e-4)})
    reference = replace(original, gradients={"w": tensor(1.0, -1.0), "key bias": tensor(0.0, 0.0)})
    assert judged(original, changed, reference).passed
    wrong = replace(original, gradients={"w": tensor(1.0, -1.0), "key bias": tensor(0.1, 0.1)})
    assert not judged(original, wrong, reference).passed


def test_a_loss_later_in_the_steps_counts() -> None:
    original = made(losses=(3.0, 2.0, 1.0))
    assert judged(original, made(losses=(3.0, 2.0, 1.005))).passed
    found = judged(original, made(losses=(3.0, 2.0, 1.5)))
    assert found.verdict == "failed" and found.worst == "the loss of step 3"
    assert judged(original, made(losses=(3.0, 2.0))).verdict == "failed"


@pytest.mark.parametrize(
    ("moved", "passes"),
    [
        (tensor(0.1, 0.1), True),
        (tensor(0.1, 0.05), True),
        (tensor(0.0, 0.0), False),
        (tensor(-0.1, -0.1), False),
        (tensor(0.5, 0.5), False),
        (tensor(float("nan"), 0.1), False),
    ],
)
def test_an_optimizer_must_still_move_the_parameters(moved: Any, passes: bool) -> None:
    original = made(losses=(1.0,), moved={"w": tensor(0.1, 0.1)})
    assert judged(original, made(losses=(1.0,), moved={"w": moved})).passed is passes


def test_other_random_numbers_are_incomparable_not_wrong() -> None:
    original = made(outputs={"y": tensor(1.0)}, draws=True, random_after=("a",))
    other = made(outputs={"y": tensor(9.0)}, draws=True, random_after=("b",))
    assert judged(original, other).verdict == "incomparable"
    # The same consumption: the numbers are the same, so the values have to be.
    assert judged(original, replace(other, random_after=("a",))).verdict == "failed"


def training(dropout: float = 0.0) -> Workload:
    import torch

    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Dropout(dropout), torch.nn.GELU(), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return Workload(model, torch.randn(4, 6), lambda y: y.square().mean(), optimizer)


def test_a_float64_reference_of_a_training_step() -> None:
    work = training()
    original = evaluate(private_copy(work))
    expected = expect(work, original)
    assert expected.name == "the float64 reference" and expected.notice == ""
    found = compare(expected, evaluate(private_copy(work)))
    # 4 gradients, 1 output, 3 losses.
    assert found.passed and found.compared == 8
    assert found.original_error is not None and 0 < found.original_error < 1e-5
    assert found.error == found.original_error


def test_dropout_is_compared_with_the_same_seed() -> None:
    work = training(dropout=0.5)
    original = evaluate(private_copy(work))
    assert original.draws
    assert compare(expect(work, original), evaluate(private_copy(work))).passed


def test_evaluating_a_copy_leaves_the_users_model_alone() -> None:
    import torch

    work = training()
    before = [p.detach().clone() for p in work.model.parameters()]
    evaluate(private_copy(work))
    assert all(torch.equal(a, b) for a, b in zip(before, work.model.parameters()))
    assert all(p.grad is None for p in work.model.parameters())
    assert not work.optimizer.state


def test_a_model_that_cannot_run_in_float64_is_its_own_reference() -> None:
    import torch

    class Picky(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if x.dtype != torch.float32:
                raise RuntimeError("float32 only")
            return x * 2

    work = Workload(Picky(), torch.ones(3))
    original = evaluate(private_copy(work))
    expected = expect(work, original)
    assert expected.name == "the original"
    assert "float32 only" in expected.notice
    assert compare(expected, evaluate(private_copy(work))).passed


def test_a_wrong_backward_is_found() -> None:
    import torch

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 1.5

    work = training()
    original = evaluate(private_copy(work))
    changed = private_copy(work)
    model = changed.model
    broken = replace(changed, model=torch.nn.Sequential(*model))
    broken.model[3].register_forward_pre_hook(lambda m, args: (Wrong.apply(args[0]),))
    found = compare(expect(work, original), evaluate(broken))
    assert found.verdict == "failed" and "gradient" in found.worst


REORDERS = Fix("layout", "", (), (NUMERICS, RANDOMNESS), lambda facts: RuledOut("a test"), "")


@pytest.mark.parametrize(
    ("draws", "fixes", "verdict"),
    [
        (True, (REORDERS,), "incomparable"),
        # Nothing is drawn, or whatever is drawn goes to the same elements.
        (False, (REORDERS,), "failed"),
        (True, (), "failed"),
    ],
)
def test_errors_say_nothing_where_random_numbers_go_to_other_elements(
    draws: bool, fixes: Sequence[Fix], verdict: str
) -> None:
    original = made(outputs={"y": tensor(1.0, 2.0)}, draws=draws)
    other = replace(original, outputs={"y": tensor(2.0, 1.0)})
    found = compare(Expected(original, original, "the original"), other, 1e-2, fixes)
    assert found.verdict == verdict
    assert ("random numbers that cannot be matched" in found.reason) == (verdict != "failed")


def test_what_is_not_finite_is_wrong_whatever_is_drawn() -> None:
    original = made(outputs={"y": tensor(1.0, 2.0)}, draws=True)
    wrong = replace(original, outputs={"y": tensor(float("nan"), 1.0)})
    found = compare(Expected(original, original, "the original"), wrong, 1e-2, (REORDERS,))
    assert found.verdict == "failed"


def chosen(logits: Any, *tokens: int) -> Evaluation:
    import torch

    outputs = {"logits": logits, "tokens": torch.tensor([tokens])}
    return made(outputs=outputs, integers=frozenset({"tokens"}))


def test_other_tokens_behind_logits_that_agree_are_no_error() -> None:
    original = chosen(tensor(1.0, 0.999), 5, 7, 9)
    near = tensor(0.999, 1.0)
    assert judged(original, chosen(near, 5, 7, 9)).passed
    for changed in (chosen(near, 5, 2, 400), chosen(near, 5, 2)):
        found = judged(original, changed)
        assert found.verdict == "incomparable" and "tokens" in found.reason
        assert found.compared == 1
    # What is computed on the way is wrong: so are the tokens.
    assert judged(original, chosen(tensor(0.0, 1.0), 5, 2, 400)).verdict == "failed"


def test_calls_are_compared_until_one_is_given_other_tokens() -> None:
    def calls(given: tuple[str, ...], *values: float) -> Evaluation:
        names = (f"call {number}.logits" for number in (1, 2, 3))
        return made(outputs=dict(zip(names, map(tensor, values))), given=given)

    original = calls(("a", "b", "c"), 1.0, 2.0, 3.0)
    found = judged(original, calls(("a", "b", "z"), 1.0, 2.0, 90.0))
    assert (found.verdict, found.compared) == ("incomparable", 2)
    assert judged(original, calls(("a", "b", "c"), 1.0, 2.0, 90.0)).verdict == "failed"
    # Wrong before the choice.
    assert judged(original, calls(("a", "b", "z"), 1.0, 9.0, 90.0)).verdict == "failed"
