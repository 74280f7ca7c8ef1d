"""The same network in other forms: dtypes, nested and masked tensors, compiled, exported, hooks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.breadth.case import (
    Expected,
    FunctionModule,
    Program,
    Programs,
    inference,
    mean_squares,
    mlp,
    trained,
    whole_step,
)
from torch import Tensor, nn, randint, randn
from torch.nn import functional
from torch.optim import AdamW

PROGRAMS = Programs()
program = PROGRAMS.add


@program()
def data_parallel() -> Program:
    return trained(nn.DataParallel(mlp(64)), randn(16, 64))


@program()
def float64() -> Program:
    return trained(mlp(128).double(), randn(16, 128).double())


@program()
def bfloat16() -> Program:
    return trained(mlp(128).bfloat16(), randn(16, 128).bfloat16())


@program()
def float16() -> Program:
    return trained(mlp(128).half(), randn(16, 128).half())


def _rows() -> list[Tensor]:
    return [randn(length, 64) for length in (5, 9, 3)]


@program(
    expected=Expected.EITHER,
    because="a step's stand-ins have no lengths of rows, on which the kernels of ragged tensors go",
)
def nested_jagged() -> Program:
    x = torch.nested.nested_tensor(_rows(), layout=torch.jagged)
    return trained(mlp(64), x, loss=lambda output: output.values().pow(2).mean())


@program(
    expected=Expected.EITHER,
    because="PyTorch has no stand-ins for nested tensors of its older layout",
)
def nested_strided() -> Program:
    x = torch.nested.nested_tensor(_rows())
    return trained(
        nn.Linear(64, 64), x, loss=lambda output: output.to_padded_tensor(0.0).pow(2).mean()
    )


@program(
    expected=Expected.EITHER,
    because="a step's stand-ins have no lengths of rows, on which the kernels of ragged tensors go",
)
def nested_attention() -> Program:
    rows = [randn(length, 4, 16) for length in (5, 9, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)

    def attend(x: Tensor) -> Tensor:
        heads = x.transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads).values()

    return inference(attend, x)


@program(
    expected=Expected.EITHER,
    because="MaskedTensor compares its masks' values when it is made, and there are none",
)
def masked_tensor() -> Program:
    from torch.masked import masked_tensor

    return inference(lambda x: masked_tensor(x, x > 0).sum(0).get_data(), randn(32, 32))


@program(
    expected=Expected.EITHER,
    because="named tensors are a prototype that PyTorch's own stand-ins refuse",
)
def named_tensor() -> Program:
    return inference(lambda x: x.refine_names("n", "c").sum("c").rename(None), randn(32, 32))


class _Subclass(torch.Tensor):
    pass


@program()
def tensor_subclass() -> Program:
    return inference(lambda x: (x.as_subclass(_Subclass) @ x).relu(), randn(64, 64))


@program()
def compiled_model() -> Program:
    return trained(torch.compile(mlp(64)), randn(16, 64))


@program()
def compiled_step() -> Program:
    model, x = mlp(64), randn(16, 64)
    optimizer = AdamW(model.parameters())

    @torch.compile
    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return whole_step(step)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embedding(ids))


@program()
def tied_weights() -> Program:
    return trained(_Tied(), randint(0, 500, (4, 16)))


@program()
def hooks() -> Program:
    model = mlp(64)
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    model[0].register_full_backward_hook(lambda module, inputs, outputs: None)
    model[0].weight.register_hook(lambda gradient: gradient * 2)
    model[2].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return trained(model, randn(16, 64))


@program()
def scripted() -> Program:
    return trained(torch.jit.script(mlp(64)), randn(16, 64))


@program()
def traced() -> Program:
    return trained(torch.jit.trace(mlp(64), randn(16, 64)), randn(16, 64))


@program()
def exported() -> Program:
    return trained(torch.export.export(mlp(64), (randn(16, 64),)).module(), randn(16, 64))


@program()
def symbolically_traced() -> Program:
    return trained(torch.fx.symbolic_trace(mlp(64)), randn(16, 64))


@program(
    expected=Expected.REFUSED,
    because="the package is machine code for a CPU: it has no operators that could be seen",
)
def compiled_package() -> Program:
    exported = torch.export.export(mlp(64), (randn(16, 64),))
    path = f"{tempfile.mkdtemp()}/model.pt2"
    package = torch._inductor.aoti_compile_and_package(exported, package_path=path)
    return inference(torch._inductor.aoti_load_package(package), randn(16, 64))


@program()
def inference_mode() -> Program:
    model, x = mlp(64), randn(16, 64)

    def step() -> Any:
        with torch.inference_mode():
            return model(x)

    return whole_step(step)


@program()
def images_to_batches() -> Program:
    def prepare(x: Tensor) -> Tensor:
        pixels = x.permute(0, 3, 1, 2).float() / 255
        small = functional.interpolate(pixels, size=(32, 32), mode="bilinear", antialias=True)
        return small.sub(0.5).div(0.25)

    return inference(prepare, randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8))


@program()
def many_tensors_at_once() -> Program:
    tensors = [randn(16) for _ in range(300)]
    return whole_step(
        lambda: torch._foreach_norm(torch._foreach_add(torch._foreach_mul(tensors, 2.0), tensors))
    )


@program()
def array_and_back() -> Program:
    w = randn(64, 64)
    return whole_step(lambda: torch.from_numpy(w.numpy() * 2) @ w)


@program()
def batches_of_a_generator() -> Program:
    model = mlp(64)

    def batches() -> Iterator[Tensor]:
        while True:
            yield randn(8, 64)

    source = batches()
    return whole_step(lambda: model(next(source)))


@program()
def keyword_inputs() -> Program:
    model = FunctionModule(lambda self, x, y: self.mlp(x) + y, mlp=mlp(64))
    model.forward = lambda *, x, y: model.function(model, x, y)  # type: ignore[method-assign]
    return Program(model, {"x": randn(8, 64), "y": randn(8, 64)}, mean_squares)


@program()
def tf32_by_the_old_setting() -> Program:
    torch.backends.cuda.matmul.allow_tf32 = True
    return trained(mlp(128), randn(16, 128))


@program()
def tf32_by_the_new_setting() -> Program:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return trained(mlp(128), randn(16, 128))


@program()
def tf32_for_all_by_the_new_setting() -> Program:
    torch.backends.fp32_precision = "tf32"
    return trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), randn(2, 3, 16, 16))
