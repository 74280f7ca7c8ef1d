"""Run by ``test_safe_ops.py`` in a process of its own: calls every safe operator on one element.

Each is first called as a program would call it, at several shapes and dtypes; what the recorder
then has is what calibration would rebuild. Prints one JSON object: operators proved, and what was
raised.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.nn.functional as F

from gobrrr.live.calibration.safe_ops import (
    ALONG_A_DIMENSION,
    ELEMENTWISE,
    LISTS,
    RANDOM,
    SAFE_OPS,
    is_safe_to_shrink,
)
from gobrrr.live.calibration.tiny_calls import CannotShrinkError, tiny_call
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp

SHAPES = ((3, 5), (2, 3, 4, 6), (7,), (), (0, 4))
DTYPES = (torch.int64, torch.bool, torch.complex64, torch.bfloat16)
CASES = [(shape, torch.float32) for shape in SHAPES] + [((3, 5), dtype) for dtype in DTYPES]


def arguments_of(overload: Any, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Any, Any]:
    """Arguments by the schema's types: tensors of one shape, plain values for the rest."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if argument.default_value is not None or "Optional" in kind or "?" in kind:
            made = argument.default_value
        elif kind == "Tensor":
            made = torch.rand(shape).add(1).to(dtype)
        elif kind == "List[Tensor]":
            made = [torch.rand(shape).add(1).to(dtype) for _ in range(3)]
        elif kind == "List[int]":
            made = [0]
        elif kind in ("List[number]", "List[float]"):
            made = [2.0, 2.0, 2.0]
        else:
            made = {"number": 2, "int": 0, "float": 0.5, "bool": False, "str": "none"}.get(kind)
        if argument.kwarg_only:
            keywords[argument.name] = made
        else:
            positional.append(made)
    return positional, keywords


def by_schema(name: str) -> None:
    """Every overload at every shape and dtype that it takes."""
    print(name, file=sys.stderr, flush=True)
    packet = getattr(torch.ops.aten, name, None)
    for overload_name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, overload_name)
        arguments = overload._schema.arguments
        if any(argument.is_out for argument in arguments):
            continue
        if not any("Tensor" in str(argument.type) for argument in arguments):
            continue  # of numbers: TorchScript's own
        for shape, dtype in CASES:
            args, kwargs = arguments_of(overload, shape, dtype)
            try:
                overload(*args, **kwargs)
            except Exception:  # not a call that a program could make
                continue


def trained(function: Any, *inputs: torch.Tensor) -> None:
    """Forward and backward."""
    given = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = function(*given)
    out = out[0] if isinstance(out, tuple) else out
    (out.abs() if out.is_complex() else out).float().sum().backward()


def by_programs() -> None:
    """Operators whose arguments have to fit each other, as modules and functions call them."""
    r, long = torch.randn, torch.tensor([1, 0, 2])
    aten = torch.ops.aten
    images, volumes, lines = r(2, 4, 9, 9), r(2, 4, 5, 5, 5), r(2, 4, 9)
    for groups, stride, padding, dilation in ((1, 1, 0, 1), (2, 2, 1, 2), (4, 1, 2, 1)):
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        trained(lambda x, w, o=options: F.conv2d(x, w, **o), images, r(8, 4 // groups, 3, 3))
        trained(lambda x, w, o=options: F.conv1d(x, w, r(8), **o), lines, r(8, 4 // groups, 3))
        trained(
            lambda x, w, o=options: F.conv_transpose2d(x, w, **o), images, r(4, 8 // groups, 3, 3)
        )
    aten._convolution(
        images, r(8, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        False, False, False, False,
    )  # fmt: skip
    for pool, x in (
        (F.max_pool2d, images), (F.avg_pool2d, images), (F.max_pool3d, volumes),
        (F.avg_pool3d, volumes),
    ):  # fmt: skip
        trained(lambda x, pool=pool: pool(x, 3, 2, 1), x)
        pool(x, 2, 2, 0, ceil_mode=True)
    for function, x, size in (
        (F.adaptive_avg_pool2d, images, (3, 2)), (F.adaptive_avg_pool3d, volumes, (3, 2, 2)),
        (F.adaptive_max_pool2d, images, (3, 2)),
    ):  # fmt: skip
        trained(lambda x, f=function, n=size: f(x, n), x)
    for mode, x in (
        ("nearest", lines), ("nearest", images), ("nearest", volumes), ("linear", lines),
        ("bilinear", images), ("bicubic", images), ("trilinear", volumes),
    ):  # fmt: skip
        for option in ({"scale_factor": 2.0}, {"scale_factor": 0.4}, {"size": 7}):
            trained(lambda x, m=mode, o=option: F.interpolate(x, mode=m, **o), x)
    for mode in ("reflect", "replicate", "constant"):
        trained(lambda x, m=mode: F.pad(x, (1, 2), mode=m), lines)
        trained(lambda x, m=mode: F.pad(x, (1, 2, 0, 3), mode=m), images)
    F.pad(lines, (-1, -2))
    trained(lambda x, w: F.layer_norm(x, (4, 9), w, w), lines, r(4, 9))
    trained(lambda x, w: F.group_norm(x, 2, w, w), images, r(4))
    trained(lambda x, w: F.batch_norm(x, r(4), r(4).abs(), w, w, training=True), images, r(4))
    with torch.no_grad():
        F.batch_norm(images, r(4), r(4).abs(), r(4), r(4))
    F.batch_norm(images, None, None, training=True)
    aten._native_batch_norm_legit(images, None, None, r(4), r(4), True, 0.1, 1e-5)
    aten._native_batch_norm_legit.no_stats(images, None, None, True, 0.1, 1e-5)
    aten._native_batch_norm_legit_no_training(images, None, None, r(4), r(4).abs(), 0.1, 1e-5)
    stats = (r(4), r(4), r(4), r(4).abs())
    out, mean, rstd, reserve = aten._batch_norm_with_update(images, *stats, 0.1, 1e-5)
    aten._batch_norm_no_update(images, *stats, 0.1, 1e-5)
    aten.batch_norm_backward(
        out, images, stats[0], stats[2], stats[3], mean, rstd, True, 1e-5, [True] * 3, reserve
    )
    q = r(2, 3, 6, 8)
    mask = torch.ones(6, 6).tril()
    trained(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    trained(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=mask), q)
    trained(lambda x: F.softmax(x, -1), lines)
    trained(lambda x: F.log_softmax(x, 1), lines)
    aten._safe_softmax(lines, -1)
    x, i = r(5, 6), torch.tensor([[1, 0, 2, 1, 1, 0]])
    for value in (
        x[long],
        x[x > 0],
        x[:, long],
        x.nonzero(),
        x.take(long),
        x.index_select(0, long),
    ):
        value.sum()
    x.clone()[long] = 1.0
    x.clone()[x > 0] = 1.0
    trained(lambda x: x[long], r(5, 6))
    trained(lambda x: x[1:3], r(5, 6))
    trained(lambda x: x[2], r(5, 6))
    aten._unsafe_index(x, [long]), aten._unsafe_index_put(x, [long], r(3, 6))
    aten._index_put_impl_(x.clone(), [long], r(3, 6)), aten.index_put(x, [long], r(3, 6))
    for name in ("index_add", "index_add_", "index_copy", "index_copy_"):
        getattr(x.clone(), name)(0, long, r(3, 6))
    x.clone().index_fill_(0, long, 2.0), x.index_fill(0, long, 2.0)
    x.gather(0, i), x.scatter(0, i, r(1, 6)), x.clone().scatter_(0, i, 1.0)
    x.scatter_add(0, i, r(1, 6)), x.clone().scatter_add_(0, i, r(1, 6))
    for reduce in ("sum", "amax", "mean"):
        x.scatter_reduce(0, i, r(1, 6), reduce)
        x.clone().scatter_reduce_(0, i, r(1, 6), reduce)
    x.masked_select(x > 0), x.masked_scatter(x > 0, x), x.clone().masked_scatter_(x > 0, x)
    trained(lambda w: F.embedding(long, w, padding_idx=1), r(5, 6))
    trained(lambda x: F.cross_entropy(x, long), r(3, 6))
    trained(lambda x: F.cross_entropy(x, torch.zeros(2, 9, 9, dtype=torch.long)), images)
    aten.slice_scatter(x, r(2, 6), 0, 1, 3), aten.select_scatter(x, r(6), 0, 4)
    torch.searchsorted(torch.arange(9.0), r(3)), torch.bucketize(r(3), torch.arange(9.0))
    aten.copy(x, r(5, 6)), x.clone().copy_(r(5, 6)), x.to(torch.float64), x.repeat(2, 3, 1)
    torch.arange(9), torch.arange(2, 9), torch.arange(2, 9, 3), torch.linspace(0, 1, 7)
    torch.zeros(3, 4), torch.ones(3, 4), torch.full((3, 4), 2.0), torch.eye(4), torch.eye(4, 3)
    x.new_full((3,), 1.0), x.new_ones(3), x.new_zeros(3), torch.scalar_tensor(2.0)
    torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5), torch.ones_like(x)
    torch.zeros_like(x), torch.full_like(x, 2.0)
    x.diag_embed(1), aten.diagonal_copy(x, 1), x.sum().item(), x.roll(2, 0), x.roll((1, 2), (0, 1))
    x.topk(3), x.kthvalue(2), torch.cat([x, x], 1), aten.stack([x, x]), x.dist(x), x.trace()
    x.renorm(2, 0, 1.0), x.clone().renorm_(2, 0, 1.0), x.sort(stable=True), x.flip(0)
    torch.rand(3, 4), torch.randn(3, 4), torch.randint(5, (3,)), torch.randint(2, 5, (3,))
    torch.randperm(7), torch.normal(0.0, 1.0, (3,)), torch.normal(x, x.abs())
    torch.rand(4).bernoulli(), torch.poisson(torch.rand(4)), r(4).random_(2, 9)
    torch.binomial(torch.ones(4), torch.rand(4)), torch.multinomial(torch.rand(3, 7), 4)
    trained(lambda x: F.dropout(x, 0.3), r(3, 4)), trained(lambda x: F.rrelu(x, training=True), x)
    aten.native_dropout(x, 0.3, True), aten.random_(r(4)), aten.geometric_(r(4), 0.3)
    m = r(4, 4)
    m = m @ m.T + torch.eye(4)
    torch.linalg.cholesky(m), torch.linalg.inv(m), torch.linalg.qr(m), torch.linalg.svd(m)
    torch.linalg.solve_triangular(m, m, upper=True), torch.triangular_solve(m, m)
    torch.linalg.eigh(m), torch.linalg.eig(m)
    x.clamp(0.1, 0.5), x.clone().clamp_(0.1, 0.5), x.clamp(x, x), x.clone().clamp_(x, x)
    aten.fill(x, 2.0), x.clone().fill_(2.0), x.clone().fill_(x.sum()), aten.zero(x)
    x.clone().zero_(), x.triu(1), x.clone().triu_(), x.clone().tril_(), aten.isinf(x)
    (
        torch.fft.fft(x),
        torch.fft.fft(torch.fft.fft(x)),
        torch.fft.rfft(x),
        torch.fft.irfft(x, n=7),
        torch.fft.rfftn(x),
    )
    torch.polar(x.abs(), x), torch.complex(x, x), torch.mv(m, m[0]), torch.addmv(m[0], m, m[0])
    torch.addr(m, m[0], m[0]), m.clone().addr_(m[0], m[0]), m[0].clone().addmv_(m, m[0])
    b = r(3, 4, 4)
    torch.baddbmm(b, b, b), torch.addbmm(m, b, b), b.clone().baddbmm_(b, b), b @ b, m @ m
    m.clone().addbmm_(b, b), m.clone().addmm_(m, m), aten._addmm_activation(m[0], m, m)
    aten.addmm(m[0], m, m), torch.dot(m[0], m[0]), torch.vdot(m[0], m[0])
    for activation in (F.relu, F.gelu, F.silu, F.elu, F.hardtanh, F.logsigmoid, F.softplus, F.mish):
        trained(activation, r(3, 4))
    trained(lambda x: F.prelu(x, torch.rand(1)), r(3, 4))
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss):
        for reduction in ("mean", "none"):
            trained(lambda x, f=loss, how=reduction: f(x, r(3, 4), reduction=how), r(3, 4))
    trained(lambda x: F.binary_cross_entropy(x, torch.rand(3, 4)), torch.full((3, 4), 0.3))
    F.binary_cross_entropy_with_logits(r(3, 4), torch.rand(3, 4))
    aten.logit_backward(x, torch.rand(5, 6), 0.1)
    for name in ("Adam", "AdamW", "SGD", "Adagrad"):
        options = {"momentum": 0.9} if name == "SGD" else {}
        parameter = torch.nn.Parameter(r(4, 4))
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, fused=True, **options)
        parameter.grad = r(4, 4)
        optimizer.step()
    aten._amp_foreach_non_finite_check_and_unscale_([r(4)], torch.zeros(1), torch.ones(1))


def main() -> None:
    """Record, rebuild, call."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    recorder = OpRecorder()
    with recorder:
        by_programs()
    ops: dict[Any, StepOp] = {}
    # Those whose arguments need not fit each other: the rest only as programs call them.
    free = ELEMENTWISE | ALONG_A_DIMENSION | RANDOM | LISTS
    free = {name for name in SAFE_OPS if name in free or name.removesuffix("_") in free}
    with torch.no_grad():
        for name in sorted(free):
            single = OpRecorder()
            with single:
                by_schema(name)
            recorder.ops.extend(single.ops)
    for op in recorder.ops:
        if is_safe_to_shrink(op.call.name):
            ops.setdefault((op.call.name, op.call.overload, op.call.args), op)
    proved, raised = set(), []
    for op in ops.values():
        call = op.call
        print(call, file=sys.stderr, flush=True)
        for grad in {False, op.phase == Phase.FORWARD}:
            try:
                function, args, kwargs = tiny_call(call, with_grad=grad)
            except CannotShrinkError:
                continue
            try:
                # Twice: the second finds what the first has left in caches and on the heap.
                function(*args, **kwargs)
                function(*args, **kwargs)
            except Exception as error:
                # Autograd refuses dtypes and operators that it has no formula for: checked, and
                # calibration then goes without gradients.
                if not grad:
                    raised.append(f"{call.name}.{call.overload}{call.args}: {error}"[:400])
                continue
            proved.add(call.name)
    print(json.dumps({"proved": sorted(proved), "raised": raised, "calls": len(ops)}))


if __name__ == "__main__":
    main()
