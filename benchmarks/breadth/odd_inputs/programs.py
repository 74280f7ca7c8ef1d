"""Programs that raise, end, thread, print, profile, or use a device that is not here."""

from __future__ import annotations

import os
import warnings
from threading import Thread
from typing import Any

import torch
from benchmarks.breadth.case import mlp
from benchmarks.breadth.odd_inputs.case import (
    Answer,
    Kind,
    OddInputs,
    diagnose,
    predict,
    promise,
)
from torch import Tensor, nn, ones, randn
from torch.nn import functional
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader, TensorDataset

from gobrrr import Diagnosis, Workload

QUESTIONS = OddInputs()
odd = QUESTIONS.add
NUMBER, BAD_INPUT = Kind.NUMBER, Kind.BAD_INPUT
USER_ERROR, ENDED = Kind.USER_ERROR, Kind.ENDED


class _Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError(f"a shape of {tuple(x.shape)} is not what this model takes")


@odd(USER_ERROR)
def predict_raises() -> Answer:
    return predict(Workload(_Raises(), (randn(4),)))


@odd(USER_ERROR)
def diagnose_raises() -> Answer:
    return diagnose(Workload(_Raises(), (randn(4),)))


@odd(USER_ERROR)
def diagnose_raises_later() -> Answer:
    calls = []

    def step() -> Tensor:
        calls.append(1)
        if len(calls) == 15:
            raise RuntimeError("the fifteenth step fails")
        return randn(64, 64) @ randn(64, 64)

    return diagnose(step)


def _exit() -> None:
    raise SystemExit(7)


def _interrupt() -> None:
    raise KeyboardInterrupt


@odd(ENDED, USER_ERROR)
def diagnose_exit() -> Answer:
    return diagnose(_exit)


@odd(ENDED, USER_ERROR)
def predict_exit() -> Answer:
    return predict(_exit)


@odd(ENDED)
def predict_interrupt() -> Answer:
    return predict(_interrupt)


@odd(ENDED)
def diagnose_interrupt() -> Answer:
    return diagnose(_interrupt)


def _in_a_thread(model: nn.Module) -> Tensor:
    results: list[Tensor] = []
    thread = Thread(target=lambda: results.append(model(randn(4, 64))))
    thread.start()
    thread.join()
    return results[0] * 2


@odd(NUMBER)
def predict_thread() -> Answer:
    model = mlp(64)
    return predict(lambda: _in_a_thread(model))


@odd(NUMBER)
def diagnose_thread() -> Answer:
    model = mlp(64)
    return diagnose(lambda: _in_a_thread(model))


def _profiled() -> Tensor:
    from torch.profiler import profile

    with profile():
        return randn(64, 64) @ randn(64, 64)


@odd(NUMBER)
def predict_profiler_in_the_step() -> Answer:
    return predict(_profiled)


@odd(NUMBER)
def diagnose_profiler_in_the_step() -> Answer:
    return diagnose(_profiled)


@odd(NUMBER)
def diagnose_lstm() -> Answer:
    model = nn.LSTM(128, 128, 2, batch_first=True)
    return diagnose(
        Workload(model, (randn(8, 64, 128),), lambda y: y[0].sum(), AdamW(model.parameters()))
    )


@odd(NUMBER)
def diagnose_lstm_inference() -> Answer:
    return diagnose(Workload(nn.LSTM(32, 64, 2, bidirectional=True), (randn(20, 4, 32),)))


@odd(NUMBER)
def diagnose_gru() -> Answer:
    return diagnose(Workload(nn.GRU(32, 64), (randn(20, 4, 32),)))


@odd(NUMBER, BAD_INPUT)
def diagnose_nested_tensor() -> Answer:
    x = torch.nested.nested_tensor([randn(5, 64), randn(9, 64)], layout=torch.jagged)
    return diagnose(Workload(mlp(64), (x,)))


@odd(NUMBER)
def predict_side_effects_are_undone() -> Answer:
    model = nn.Sequential(mlp(8), nn.BatchNorm1d(8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = AdamW(model.parameters())
    answer = predict(Workload(model, (randn(4, 8),), lambda y: y.sum(), optimizer))
    _same(model, before, optimizer)
    promise(not torch.cuda.is_available(), "CUDA is still said to be available")
    return answer


@odd(NUMBER)
def diagnose_side_effects_are_undone() -> Answer:
    model = nn.Sequential(mlp(8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer, x = AdamW(model.parameters()), randn(4, 8)
    torch.manual_seed(0)
    state = torch.get_rng_state().clone()
    answer = diagnose(Workload(model, (x,), lambda y: y.sum(), optimizer))
    _same(model, before, optimizer)
    promise(torch.equal(state, torch.get_rng_state()), "random numbers go on elsewhere")
    return answer


def _same(model: nn.Module, before: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    after = model.state_dict()
    promise(all(torch.equal(value, after[name]) for name, value in before.items()), "state changed")
    promise(all(p.grad is None for p in model.parameters()), "gradients were left")
    promise(not optimizer.state, "the optimizer has state")


@odd(NUMBER)
def predict_twice_the_same() -> Answer:
    model = mlp(64)
    work = Workload(model, (randn(4, 64),), lambda y: y.sum(), AdamW(model.parameters()))
    first, second = predict(work), predict(work)
    assert isinstance(first, Diagnosis) and isinstance(second, Diagnosis)
    promise(first.step_s == second.step_s, f"{first.step_s} s, then {second.step_s} s")
    return second


@odd(NUMBER)
def predict_tied_weights_have_one_memory() -> Answer:
    embedding, head = nn.Embedding(50_000, 512), nn.Linear(512, 50_000, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    optimizer = AdamW(model.parameters(), fused=True)
    ids = torch.zeros(1, 1, dtype=torch.long)
    answer = predict(Workload(model, (ids,), lambda y: y.sum(), optimizer))
    assert isinstance(answer, Diagnosis)
    # Weight, gradient and two moments in fp32; both gradients exist before they are added: 4 more.
    bytes_each = answer.counters["peak_memory_bytes"] / (50_000 * 512)
    promise(15.9 < bytes_each < 20.5, f"{bytes_each:.1f} bytes a parameter at the peak")
    return answer


@odd(NUMBER)
def predict_data_loader() -> Answer:
    batches = iter(DataLoader(TensorDataset(randn(1000, 8)), batch_size=4))
    model = nn.Linear(8, 8)
    return predict(lambda: model(next(batches)[0]))


@odd(NUMBER)
def predict_streams() -> Answer:
    def step() -> Tensor:
        a, stream = ones(1024, 1024, device="cuda"), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            b = a @ a
        torch.cuda.current_stream().wait_stream(stream)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        torch.cuda.synchronize()
        return (a @ a) + b

    return predict(step)


@odd(NUMBER, BAD_INPUT)
def predict_cuda_graph() -> Answer:
    def step() -> Tensor:
        model, x, graph = mlp(64).cuda(), ones(4, 64, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y: Tensor = model(x)
        graph.replay()
        return y

    return predict(step)


@odd(NUMBER)
def predict_cuda_generator() -> Answer:
    def step() -> Tensor:
        return randn(64, 64, generator=torch.Generator("cuda"), device="cuda")

    return predict(step)


@odd(NUMBER)
def predict_pinned_copy() -> Answer:
    return predict(lambda: randn(1024, 1024).pin_memory().to("cuda", non_blocking=True) * 2)


@odd(NUMBER, USER_ERROR)
def predict_tensor_left_on_the_host() -> Answer:
    model, host = mlp(8), ones(8)
    return predict(lambda: model.to("cuda")(ones(4, 8, device="cuda")) + host)


@odd(NUMBER)
def predict_distributed_of_one() -> Answer:
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(mlp(64))
    optimizer = SGD(model.parameters(), 0.1)
    return predict(Workload(model, (randn(4, 64),), lambda y: y.sum(), optimizer))


class _Doubled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


@odd(NUMBER)
def predict_autocast_of_a_custom_function() -> Answer:
    model = mlp(8)
    optimizer = SGD(model.parameters(), 0.1)
    work = Workload(
        lambda x: _Doubled.apply(model(x)), (randn(4, 8),), lambda y: y.sum(), optimizer
    )
    return predict(work, autocast="bf16")


@odd(NUMBER)
def predict_compiled_and_warm() -> Answer:
    model = torch.compile(mlp(64))
    model(randn(4, 64))
    return predict(Workload(model, (randn(4, 64),)))


@odd(NUMBER)
def predict_exported_with_dynamic_sizes() -> Answer:
    sizes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(mlp(64), (randn(16, 64),), dynamic_shapes=sizes)
    return predict(Workload(exported.module(), (randn(32, 64),)))


@odd(NUMBER)
def predict_warnings_are_errors() -> Answer:
    warnings.simplefilter("error")
    return predict(Workload(mlp(64), (randn(4, 64),)))


@odd(NUMBER)
def predict_module_that_changes_itself() -> Answer:
    model, lengths = mlp(64), []

    def step() -> Tensor:
        lengths.append(len(lengths))
        return functional.relu(model(randn(4, 64)))

    return predict(step)
