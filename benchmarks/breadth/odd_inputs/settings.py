"""Arguments that are wrong, and settings of PyTorch that stand when gobrrr is called."""

from __future__ import annotations

import torch
from benchmarks.breadth.case import mlp
from benchmarks.breadth.odd_inputs.case import Answer, Kind, OddInputs, diagnose, predict
from torch import Tensor, nn, randint, randn
from torch.optim import SGD

from gobrrr import Workload

QUESTIONS = OddInputs()
odd = QUESTIONS.add
NUMBER, BAD_INPUT, USER_ERROR = Kind.NUMBER, Kind.BAD_INPUT, Kind.USER_ERROR


def _training() -> Workload:
    model = mlp(8)
    return Workload(model, (randn(4, 8),), lambda y: y.sum(), SGD(model.parameters(), 0.1))


# arguments


@odd(BAD_INPUT)
def predict_unknown_device() -> Answer:
    return predict(Workload(mlp(8), (randn(4, 8),)), "H1000")


@odd(BAD_INPUT)
def predict_empty_device() -> Answer:
    return predict(Workload(mlp(8), (randn(4, 8),)), "")


@odd(BAD_INPUT)
def predict_nothing() -> Answer:
    return predict(None)


@odd(BAD_INPUT)
def diagnose_nothing() -> Answer:
    return diagnose(None)


@odd(BAD_INPUT)
def predict_function_with_arguments() -> Answer:
    return predict(lambda x: x)


@odd(BAD_INPUT)
def diagnose_function_with_arguments() -> Answer:
    return diagnose(lambda x: x)


@odd(BAD_INPUT, USER_ERROR)
def predict_inputs_of_another_type() -> Answer:
    return predict((mlp(8), "abc"))


@odd(USER_ERROR)
def predict_wrong_shape() -> Answer:
    return predict((mlp(8), (randn(4, 9),)))


@odd(USER_ERROR)
def diagnose_wrong_shape() -> Answer:
    return diagnose((mlp(8), (randn(4, 9),)))


@odd(BAD_INPUT)
def predict_optimizer_without_loss() -> Answer:
    model = mlp(8)
    return predict(Workload(model, (randn(4, 8),), optimizer=SGD(model.parameters(), 0.1)))


@odd(BAD_INPUT)
def predict_autocast_to_integers() -> Answer:
    return predict(_training(), autocast="int8")


@odd(BAD_INPUT)
def predict_hint_below_zero() -> Answer:
    return predict(_training(), size_hint=-1)


@odd(NUMBER)
def predict_several_devices() -> Answer:
    devices = ["H100-SXM", "MI300X", "M3-Max", "EPYC-9654", "Gaudi3", "Max-1550"]
    return predict(Workload(mlp(8), (randn(4, 8),)), devices)


@odd(NUMBER)
def predict_processor_here() -> Answer:
    x = randn(512, 512)
    return predict(lambda: x @ x, "cpu")


@odd(NUMBER, BAD_INPUT)
def predict_float8_where_there_is_none() -> Answer:
    a, one = torch.zeros(64, 64).to(torch.float8_e4m3fn), torch.tensor(1.0)

    def step() -> Tensor:
        return torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return predict(step, "A100-SXM-80GB")


@odd(NUMBER)
def predict_float64_on_a_consumer_card() -> Answer:
    x = randn(2048, 2048).double()
    return predict(lambda: x @ x, "RTX-4090")


@odd(NUMBER)
def predict_inputs_by_name() -> Answer:
    return predict(Workload(mlp(8), {"input": randn(4, 8)}))


@odd(USER_ERROR)
def predict_training_of_frozen_parameters() -> Answer:
    model = mlp(8).requires_grad_(False)
    return predict(Workload(model, (randn(4, 8),), lambda y: y.sum(), SGD(model.parameters(), 0.1)))


# meta tensors


@odd(NUMBER)
def predict_meta_parameters_and_real_inputs() -> Answer:
    with torch.device("meta"):
        model = mlp(64)
    return predict(Workload(model, (randn(4, 64),)))


class _WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("offset", torch.empty(8, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) + self.offset
        return y


@odd(NUMBER)
def predict_meta_buffer() -> Answer:
    return predict(Workload(_WithBuffer(), (randn(4, 8),)))


@odd(NUMBER)
def predict_under_the_meta_device() -> Answer:
    with torch.device("meta"):
        return predict(Workload(mlp(64), (torch.empty(4, 64),)))


# settings


@odd(NUMBER)
def predict_generator_argument() -> Answer:
    generator = torch.Generator()
    return predict(lambda: randn(64, 64, generator=generator) @ randn(64, 64))


@odd(NUMBER)
def predict_deterministic_algorithms() -> Answer:
    torch.use_deterministic_algorithms(True)
    x, rows = randn(64, 64), randint(0, 64, (10,))
    return predict(lambda: x.index_add(0, rows, x[:10]))


@odd(NUMBER)
def predict_default_dtype() -> Answer:
    torch.set_default_dtype(torch.bfloat16)
    return predict(Workload(mlp(64), (randn(4, 64),)))


@odd(NUMBER)
def predict_anomaly_mode() -> Answer:
    torch.autograd.set_detect_anomaly(True)
    return predict(_training())


@odd(NUMBER)
def diagnose_anomaly_mode() -> Answer:
    torch.autograd.set_detect_anomaly(True)
    return diagnose(_training())


@odd(USER_ERROR)
def predict_training_without_gradients() -> Answer:
    with torch.no_grad():
        return predict(_training())


@odd(NUMBER)
def predict_in_inference_mode() -> Answer:
    model, x = mlp(8), randn(4, 8)
    with torch.inference_mode():
        return predict(Workload(model, (x,)))


@odd(NUMBER)
def diagnose_in_inference_mode() -> Answer:
    model, x = mlp(8), randn(4, 8)
    with torch.inference_mode():
        return diagnose(Workload(model, (x,)))
