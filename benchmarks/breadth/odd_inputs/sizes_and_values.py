"""Sizes of zero and of terabytes, values that are unknown, not finite or constant."""

from __future__ import annotations

import random
import time

import torch
from benchmarks.breadth.case import as_is, mlp
from benchmarks.breadth.odd_inputs.case import (
    GIGABYTE,
    Answer,
    Kind,
    OddInputs,
    diagnose,
    predict,
    promise,
)
from torch import Tensor, empty, nn, randn
from torch.distributions import Categorical, Normal
from torch.nn import functional
from torch.optim import SGD, AdamW

from gobrrr import Diagnosis, Workload

QUESTIONS = OddInputs()
odd = QUESTIONS.add
NUMBER, BAD_INPUT, USER_ERROR = Kind.NUMBER, Kind.BAD_INPUT, Kind.USER_ERROR
MANY_OPS = 200_000


def _training(model: nn.Module, *inputs: Tensor) -> Workload:
    return Workload(model, inputs, lambda y: y.sum(), AdamW(model.parameters()))


# sizes


@odd(NUMBER)
def predict_zero_rows() -> Answer:
    x, w = randn(0, 64), randn(64, 64)
    return predict(lambda: x @ w)


@odd(NUMBER)
def predict_zero_rows_in_training() -> Answer:
    return predict(_training(mlp(64), randn(0, 64)))


@odd(NUMBER)
def diagnose_zero_rows() -> Answer:
    return diagnose(Workload(mlp(64), (randn(0, 64),)))


@odd(NUMBER)
def predict_view_alone() -> Answer:
    x = randn(4, 4)
    return predict(lambda: x.t())


@odd(NUMBER, BAD_INPUT)
def predict_no_operator() -> Answer:
    return predict(lambda: 3)


@odd(NUMBER)
def predict_ten_billion_elements() -> Answer:
    x = empty(10**10, dtype=torch.bfloat16, device="meta")
    return predict(lambda: x + 1, "H200-SXM")


@odd(NUMBER)
def predict_ten_billion_elements_in_place() -> Answer:
    x = empty(10**10, device="meta")
    return predict(lambda: x.mul_(2), "H200-SXM")


@odd(BAD_INPUT)
def predict_more_than_the_device_has() -> Answer:
    x = empty(10**11, device="meta")
    return predict(lambda: x + 1)


@odd(BAD_INPUT)
def predict_product_of_terabytes() -> Answer:
    x = empty(4 * 10**6, 4 * 10**6, device="meta")
    return predict(lambda: x @ x)


@odd(NUMBER)
def predict_expanded_to_a_quintillion() -> Answer:
    x = empty(1, device="meta").expand(10**9, 10**9)
    return predict(lambda: x.sum())


@odd(NUMBER)
def predict_overlapping_windows() -> Answer:
    x = randn(1000).as_strided((100, 64), (1, 2))
    return predict(lambda: x.sin())


@odd(NUMBER)
def predict_scalars() -> Answer:
    x = torch.tensor(2.0)
    return predict(lambda: x * x + 1)


@odd(NUMBER)
def predict_two_thousand_layers() -> Answer:
    return predict(
        _training(nn.Sequential(*[nn.Linear(16, 16) for _ in range(2000)]), randn(4, 16))
    )


@odd(NUMBER)
def predict_recursion() -> Answer:
    x = randn(4)

    def descend(x: Tensor, depth: int) -> Tensor:
        return x if depth == 0 else descend(x + 1, depth - 1)

    return predict(lambda: descend(x, 900))


def _many_additions() -> Tensor:
    x = randn(8)
    for _ in range(MANY_OPS):
        x = x + 1
    return x


@odd(NUMBER, memory_bytes=GIGABYTE)
def predict_200_000_operators() -> Answer:
    return predict(_many_additions)


@odd(NUMBER, memory_bytes=GIGABYTE)
def predict_200_000_operators_compiled() -> Answer:
    return predict(_many_additions, compile=True)


@odd(NUMBER, memory_bytes=GIGABYTE)
def diagnose_200_000_operators() -> Answer:
    return diagnose(_many_additions)


@odd(NUMBER, limit_s=180)
def diagnose_step_of_20_s() -> Answer:
    x = randn(1000, 1000)

    def step() -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            x @ x

    return diagnose(step)


@odd(NUMBER)
def diagnose_step_of_3_s() -> Answer:
    x = randn(1000, 1000)

    def step() -> None:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            x @ x

    return diagnose(step)


@odd(NUMBER)
def diagnose_one_addition() -> Answer:
    x = randn(4)
    return diagnose(lambda: x + 1)


@odd(NUMBER)
def diagnose_sleep_alone() -> Answer:
    return diagnose(lambda: time.sleep(0.01))


@odd(NUMBER)
def predict_sleep_between_operators() -> Answer:
    x = randn(4)

    def step() -> Tensor:
        y = x
        for _ in range(100):
            time.sleep(0.001)
            y = y + 1
        return y

    return predict(step)


@odd(NUMBER)
def predict_random_sizes() -> Answer:
    return predict(lambda: randn(random.randint(1, 9), 64) @ randn(64, 64))


@odd(NUMBER)
def diagnose_random_sizes() -> Answer:
    w = randn(64, 64)
    return diagnose(lambda: randn(random.randint(1, 500), 64) @ w)


# values


@odd(NUMBER)
def predict_not_a_number() -> Answer:
    x = torch.full((64, 64), float("nan"))
    return predict(lambda: x.softmax(-1))


@odd(NUMBER)
def diagnose_infinities() -> Answer:
    return diagnose(_training(mlp(128), torch.full((64, 128), float("inf"))))


@odd(NUMBER)
def diagnose_denormals() -> Answer:
    x = torch.full((1 << 18,), 1e-40)
    return diagnose(lambda: (x * 0.5).sum())


@odd(NUMBER)
def predict_item() -> Answer:
    x = randn(64, 64)
    return predict(lambda: x * x.sum().item())


@odd(NUMBER)
def predict_loop_until_small_or_1000() -> Answer:
    x = randn(64, 64)

    def step() -> Tensor:
        y, count = x, 0
        while y.abs().mean().item() > 0.1 and count < 1000:
            y, count = y * 0.5, count + 1
        return y

    return predict(step)


@odd(NUMBER, BAD_INPUT)
def predict_loop_until_converged() -> Answer:
    x = randn(64, 64)

    def step() -> Tensor:
        y, done = x, False
        while not done:
            y = y * 0.5
            done = bool((y.abs().max() < 0.1).item())
        return y

    return predict(step)


@odd(BAD_INPUT)
def predict_size_of_data() -> Answer:
    x = randn(64, 64)
    return predict(lambda: torch.zeros(int((x > 0).sum().item()), 4))


@odd(NUMBER)
def predict_size_of_data_with_hint() -> Answer:
    x = randn(64, 64)
    return predict(lambda: torch.zeros(int((x > 0).sum().item()), 4), size_hint=2000)


@odd(BAD_INPUT)
def predict_nonzero() -> Answer:
    x = randn(64, 64)
    return predict(lambda: x.nonzero())


@odd(BAD_INPUT)
def predict_unique() -> Answer:
    x = torch.randint(0, 9, (100,))
    return predict(lambda: torch.unique(x))


@odd(BAD_INPUT)
def predict_array_of_a_result() -> Answer:
    x = randn(64, 64)
    return predict(lambda: (x * 2).numpy().sum())


@odd(NUMBER)
def predict_constant_mask() -> Answer:
    x, w, mask = randn(4, 64), randn(64, 8), torch.tensor([True, False, True, True])
    return predict(lambda: x[mask] @ w)


@odd(NUMBER)
def predict_large_constant_mask() -> Answer:
    x, mask = randn(4096, 64), torch.rand(4096) > 0.5
    return predict(lambda: x[mask])


@odd(NUMBER)
def predict_list_of_a_constant() -> Answer:
    sizes = torch.arange(5)
    return predict(lambda: [randn(size + 1, 8).sum() for size in sizes.tolist()])


@odd(NUMBER)
def predict_print() -> Answer:
    x = randn(4, 4)

    def step() -> Tensor:
        print(x)
        return x * 2

    return predict(step)


@odd(NUMBER)
def predict_assertion() -> Answer:
    x = randn(4, 4)

    def step() -> Tensor:
        assert torch.isfinite(x).all()
        return x * 2

    return predict(step)


@odd(NUMBER)
def predict_check_that_raises() -> Answer:
    x = randn(4, 4)

    def step() -> Tensor:
        y = x * 2
        if torch.isnan(y).any():
            raise FloatingPointError("not a number")
        return y

    return predict(step)


@odd(NUMBER)
def predict_allclose() -> Answer:
    x = randn(4, 4)
    return predict(lambda: x * 2 if torch.allclose(x, x) else x * 3)


@odd(NUMBER)
def predict_equal_says_what_it_took() -> Answer:
    x = randn(4, 4)
    answer = predict(lambda: x * 2 if torch.equal(x * 2, x + x) else x * 3)
    assert isinstance(answer, Diagnosis)
    promise(any("equal" in notice for notice in answer.notices), "no notice names torch.equal")
    return answer


@odd(NUMBER)
def predict_normal() -> Answer:
    x = randn(4, 4)
    return predict(lambda: Normal(x, 1.0).rsample())


@odd(NUMBER)
def predict_categorical() -> Answer:
    x = randn(4, 4)
    return predict(lambda: Categorical(logits=x).sample())


@odd(NUMBER)
def predict_closed_over_mask() -> Answer:
    q, mask = randn(2, 4, 128, 64), torch.ones(128, 128, dtype=torch.bool)
    return predict(lambda: functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))


@odd(NUMBER)
def predict_closed_over_mask_on_meta() -> Answer:
    q = empty(2, 4, 128, 64, device="meta")
    mask = torch.ones(128, 128, dtype=torch.bool, device="meta")
    return predict(lambda: functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))


@odd(USER_ERROR)
def predict_loss_that_is_no_scalar() -> Answer:
    model = mlp(8)
    optimizer = SGD(model.parameters(), 0.1)
    return predict(Workload(model, (randn(4, 8),), as_is, optimizer))
