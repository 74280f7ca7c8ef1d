"""Operator graphs of timm networks as they run on a GPU under fp16 autocast, without a GPU.

Networks are built on the meta device, so nothing is computed and no weights exist. CUDA's autocast
(which a CPU build of PyTorch cannot enter) is imitated by its cast lists, attention by the flash
kernel that CUDA chooses for half precision. One pickle per network goes to a cache folder.

    python -m benchmarks.prediction_timm.capture --measured FOLDER --cache FOLDER [--every 5]
"""

from __future__ import annotations

import argparse
import gzip
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.prediction_timm.families import family_of, sample
from benchmarks.prediction_timm.run import COMPILED, EAGER, rows
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gobrrr.observe.op_arguments import describe_arguments, describe_outputs, signature_of
from gobrrr.timeline.ops import OpCall, TensorSpec

# torch/aten/src/ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP and AT_FORALL_FP32 (CUDA).
HALF = frozenset((
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution", "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "mv", "addmm", "addmv",
    "addbmm", "baddbmm", "bmm", "einsum", "prelu", "chain_matmul", "multi_dot",
))  # fmt: skip
SINGLE = frozenset((
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal",
    "rsqrt", "sinh", "tan", "__pow__", "__rpow__", "pow", "softplus", "layer_norm",
    "native_layer_norm", "group_norm", "cosine_similarity", "cosine_embedding_loss", "cdist",
    "dist", "renorm", "logsumexp", "norm", "frobenius_norm", "prod", "softmax", "log_softmax",
    "cumprod", "cumsum", "sum", "rms_norm",
))  # fmt: skip
WIDEST = frozenset((
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sample", "index_put",
    "tensordot", "cat", "stack", "concat",
))  # fmt: skip


class CudaAutocast(TorchFunctionMode):
    """fp16 autocast by CUDA's cast lists, weights cast once per step."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._attention(*args, **kwargs)
        # What is written in Python comes back here call by call.
        if name in ("multi_head_attention_forward", "interpolate", "normalize"):
            return func(*args, **kwargs)
        if name in HALF:
            return func(*self._cast(args, torch.float16), **self._cast(kwargs, torch.float16))
        if name in SINGLE:
            return func(*self._cast(args, torch.float32), **self._cast(kwargs, torch.float32))
        if name in WIDEST:
            dtypes = {t.dtype for t in tensors_of((args, kwargs)) if t.is_floating_point()}
            if len(dtypes) > 1:
                return func(*self._cast(args, torch.float32), **self._cast(kwargs, torch.float32))
        return func(*args, **kwargs)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype not in (torch.float16, torch.float32) or value.dtype == dtype:
                return value
            if isinstance(value, torch.nn.Parameter):
                if id(value) not in self.weights:
                    self.weights[id(value)] = value.to(dtype)
                return self.weights[id(value)]
            return value.to(dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(item, dtype) for item in value)
        if isinstance(value, dict):
            return {key: self._cast(item, dtype) for key, item in value.items()}
        return value

    def _attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> Any:
        query, key, value = (self._cast(t, torch.float16) for t in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(torch.float16)
        batch, heads, length, _ = query.shape
        width = value.shape[-1]
        # Both kernels write batch, length, heads, width and return a transposed view.
        out = torch.empty(batch, length, heads, width, dtype=query.dtype, device=query.device)
        result = out.transpose(1, 2)
        flash = attn_mask is None and query.shape[-1] <= 256
        name = "aten::_scaled_dot_product_" + (
            "flash_attention" if flash else "efficient_attention"
        )
        specs = describe_outputs([query, key, value, result])
        assert specs is not None
        q, k, v, o = specs
        if flash:
            described: tuple[Any, ...] = (q, k, v, dropout_p, is_causal, False, more.get("scale"))
        else:
            mask = None if attn_mask is None else (describe_outputs([attn_mask]) or (None,))[0]
            described = (q, k, v, mask, False, dropout_p, is_causal, more.get("scale"))
        if RECORDER:
            RECORDER[-1].add(OpCall(name, described, (o,)), (query, key, value, result))
        return result


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


RECORDER: list[Recorder] = []


class Recorder(TorchDispatchMode):
    """Every operator below autograd, with storages that are never given twice."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpCall] = []
        # Storages stay alive, so that no id comes back for another one.
        self.alive: list[Any] = []

    def add(self, call: OpCall, tensors: Any) -> None:
        self.alive += [t.untyped_storage() for t in tensors]
        self.calls.append(call)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        signature = signature_of(func)
        described = describe_arguments(signature, args, kwargs)
        result = func(*args, **kwargs)
        call = OpCall(signature.name, described, describe_outputs(result), signature.overload)
        self.add(call, tensors_of((args, kwargs, result)))
        return result


def define_torchvision_operators() -> None:
    """What a build of torchvision without its extension leaves undefined at import."""
    library = torch.library.Library("torchvision", "DEF")
    DEFINED.append(library)
    # Only the names matter: no network here calls them.
    for name in (
        "nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "qroi_align",
        "_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward",
        "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward",
    ):  # fmt: skip
        library.define(f"{name}(Tensor x) -> Tensor")


DEFINED: list[Any] = []


def build(name: str, size: int, millions: float) -> torch.nn.Module:
    """The network on the meta device, at its measured image size.

    Branches that can be folded into one convolution were folded where the number of parameters
    measured (``millions``) says so.
    """
    model = built(name, size)
    folded = timm_folded(built(name, size))

    def off(tried: torch.nn.Module) -> float:
        return abs(sum(p.numel() for p in tried.parameters()) * 1e-6 - millions)

    return folded if off(folded) < off(model) else model


def timm_folded(model: torch.nn.Module) -> torch.nn.Module:
    """The network with its branches folded, in place."""
    from timm.utils.model import reparameterize_model

    with torch.no_grad(), torch.device("meta"):
        folded: torch.nn.Module = reparameterize_model(model, inplace=True)
    return folded.to("meta").eval()


def built(name: str, size: int) -> torch.nn.Module:
    """The network as it is trained, on the meta device."""
    import timm

    last: Exception | None = None
    makers: tuple[Callable[[], Any], ...] = (
        lambda: timm.create_model(name, img_size=size),
        lambda: timm.create_model(name),
    )
    for make in makers:
        try:
            with torch.device("meta"):
                model: torch.nn.Module = make().eval()
        except TypeError as error:
            last = error
            continue
        # Buffers made from numbers may be on the CPU.
        return model.to("meta")
    assert last is not None
    raise last


def capture(name: str, size: int, batch: int, millions: float) -> dict[str, Any]:
    """Operators of one forward pass, and the storages that exist before it and after it."""
    model = build(name, size, millions)
    x = torch.empty(batch, 3, size, size, device="meta")
    mode = Recorder()
    RECORDER.append(mode)
    try:
        with torch.no_grad(), torch.device("meta"), mode, CudaAutocast():
            result = model(x)
    finally:
        RECORDER.pop()

    def ids(tensors: Any) -> list[int]:
        return [int(t.untyped_storage()._cdata) for t in tensors]

    return {
        "model": name,
        "family": family_of(name),
        "batch": batch,
        "calls": mode.calls,
        "kept": ids([*model.parameters(), *model.buffers(), *tensors_of(result)]),
        "parameters": ids(model.parameters()),
        "inputs": ids([x, *model.buffers()]),
    }


def compact(graph: dict[str, Any]) -> dict[str, Any]:
    """Storages numbered from 0: small in a pickle, and the same in every run."""
    numbers: dict[int, int] = {}

    def number(storage: int) -> int:
        return numbers.setdefault(storage, len(numbers))

    def renamed(arg: Any) -> Any:
        if isinstance(arg, TensorSpec):
            storage = None if arg.storage is None else number(arg.storage)
            return TensorSpec(arg.shape, arg.dtype, arg.strides, storage, "", arg.offset)
        if isinstance(arg, tuple):
            return tuple(renamed(item) for item in arg)
        return arg

    graph["calls"] = [
        (c.name, renamed(c.args), None if c.outputs is None else renamed(c.outputs), c.overload)
        for c in graph["calls"]
    ]
    for key in ("kept", "parameters", "inputs"):
        graph[key] = [number(storage) for storage in graph[key]]
    return graph


def wanted(folder: Path, every: int) -> Iterator[tuple[str, int, int, float]]:
    """Networks measured both ways, some of each family, with image size and batch."""
    eager, compiled = rows(folder, EAGER), rows(folder, COMPILED)
    names = [name for name in eager if name in compiled]
    for name in sample(names, every):
        row = eager[name]
        size, batch = int(row["infer_img_size"]), int(row["infer_batch_size"])
        yield name, size, batch, float(row["param_count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    define_torchvision_operators()
    options.cache.mkdir(parents=True, exist_ok=True)
    for name, size, batch, millions in wanted(options.measured, options.every):
        path = options.cache / f"{name}.pickle.gz"
        if path.exists() or (options.only and name not in options.only):
            continue
        begun = time.perf_counter()
        try:
            graph = compact(capture(name, size, batch, millions))
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
            continue
        with gzip.open(path, "wb") as file:
            pickle.dump(graph, file)
        print(f"{name}: {len(graph['calls'])} ops, {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
