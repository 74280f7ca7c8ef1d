"""How fast this CPU computes: the best GEMM of each dtype, and its vector units."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.devices.ceilings import Ceiling
from gobrrr.devices.native import Element, NativeKernels

GEMM_DTYPES = ("float32", "float64", "bfloat16", "float16", "int8")

# (m, k, n) by growing work. Libraries differ in the shape and layout they like best: MKL's bfloat16
# without AVX-512 is 50 times faster with the second matrix transposed, as a Linear's weight is.
_SHAPES = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 256, 1024),
    (768, 768, 768),
    (1024, 1024, 1024),
    (2048, 512, 2048),
    (4096, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
)
_LAYOUTS = ("nn", "nt")
# The second matrix prepared beforehand, as quantised layers keep theirs: ``torch._int_mm`` is a
# plain loop where oneDNN has no int8 instructions, FBGEMM multiplies 50 times as fast there.
PACKED = "packed"

# On a busy machine a short trial is more likely to have all cores for itself.
_TRIAL_S = 0.004
_TRIALS = 16


def float32_on_cpu(torch: Any) -> dict[str, Any]:
    """Keywords for a new tensor, whatever the program has set as default dtype and device."""
    return {"dtype": torch.float32, "device": torch.device("cpu")}


class GemmSweep:
    """Times GEMMs of one dtype within a budget; later passes start with what was fastest.

    Args:
        torch: the module.
        dtype: of the inputs; int8 accumulates in int32.
    """

    def __init__(self, torch: Any, dtype: str) -> None:
        self._torch = torch
        self._dtype = dtype
        # FLOP/s by (shape, layout); what was not tried yet is guessed from the last that was.
        self._rates: dict[tuple[tuple[int, int, int], str], float] = {}
        self._layouts = (PACKED, *_LAYOUTS) if dtype == "int8" else _LAYOUTS
        self._last = dict.fromkeys(self._layouts, 0.0)

    def run(self, budget_s: float) -> Ceiling | None:
        """Sweep for about ``budget_s`` seconds.

        Returns the best rate seen in this pass and its shape; ``None`` if PyTorch has no such GEMM
        here. A shape that would take more than a third of the budget is left out.
        """
        best: tuple[float, str] | None = None
        end = time.perf_counter() + budget_s
        known = sorted(self._rates, key=lambda case: -self._rates[case])
        fresh = [(shape, layout) for shape in _SHAPES for layout in self._layouts]
        cases = known[:3] + [case for case in fresh if case not in self._rates]
        for case in cases:
            shape, layout = case
            flops = 2.0 * shape[0] * shape[1] * shape[2]
            rate = self._rates.get(case) or self._last[layout]
            # Two calls at the least; an unknown rate starts with the smallest shape.
            if time.perf_counter() > end or (rate and 2 * flops / rate > budget_s / 3):
                continue
            try:
                call = self._gemm(shape, layout)
                once_s = call_seconds(call)
            except (RuntimeError, NotImplementedError, AttributeError):
                continue
            calls = max(1, min(20, int(0.05 * budget_s / once_s)))
            rate = flops / min(call_seconds(call) for _ in range(calls))
            self._rates[case] = max(rate, self._rates.get(case, 0.0))
            self._last[layout] = rate
            if best is None or rate > best[0]:
                m, k, n = shape
                source = f"torch, {m}x{k} by {k}x{n}{_SUFFIX[layout]}"
                best = (rate, source)
        if best is None:
            return None
        unit = "op/s" if self._dtype == "int8" else "FLOP/s"
        return Ceiling(f"matrix.{self._dtype}", best[0], unit, "measured", best[1])

    def _gemm(self, shape: tuple[int, int, int], layout: str) -> Callable[[], object]:
        torch = self._torch
        m, k, n = shape
        if layout == PACKED:
            return _packed_int8(torch, m, k, n)
        dtype = getattr(torch, self._dtype)
        integer = self._dtype == "int8"
        a, b = (
            torch.ones(size, **float32_on_cpu(torch)).to(dtype)
            for size in ((m, k), (k, n) if layout == "nn" else (n, k))
        )
        right = b if layout == "nn" else b.t()
        out = torch.empty((m, n), dtype=torch.int32 if integer else dtype, device="cpu")
        product = torch._int_mm if integer else torch.mm
        return lambda: product(a, right, out=out)


_SUFFIX = {"nn": "", "nt": " transposed", PACKED: " packed for quantized::linear"}


def _packed_int8(torch: Any, m: int, k: int, n: int) -> Callable[[], object]:
    """``quantized::linear`` of (m, k) by (k, n) by the library that PyTorch has chosen here."""
    as_float = float32_on_cpu(torch)
    with warnings.catch_warnings():
        # That these will go some day is not the program's concern.
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.ones((m, k), **as_float), 1.0, 0, torch.quint8)
        weight = torch.quantize_per_channel(
            torch.ones((n, k), **as_float), torch.ones(n, **as_float),
            torch.zeros(n, dtype=torch.int64, device="cpu"), 0, torch.qint8,
        )  # fmt: skip
    packed = torch.ops.quantized.linear_prepack(weight, None)
    linear = torch.ops.quantized.linear
    return lambda: linear(x, packed, 1.0, 0)


def call_seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def vector_rates(native: NativeKernels, threads: int) -> Iterator[Ceiling]:
    """Arithmetic of the vector units on registers: all threads, independent chains."""
    width = f"{native.vector_bytes * 8}-bit vectors"
    for element in _FLOATS:
        found = _arithmetic(native, element, "multiply_add", threads)
        if found is not None:
            yield _vector(f"vector.{element}", found, f"multiply-add on {width}")
        found = _arithmetic(native, element, "multiply", threads)
        if found is not None:
            yield _vector(f"vector.{element}.multiply", found, f"multiply on {width}")
    for integer in _INTEGERS:
        found = _arithmetic(native, integer, "add", threads)
        if found is not None:
            yield _vector(f"vector.{integer}", found, f"additions on {width}", "op/s")
    for element in _EXPONENTIALS:
        found = native.exponentials(element, threads=threads, seconds=_TRIAL_S, trials=_TRIALS)
        if found is not None:
            source = f"exp in the first cache, {width}"
            yield _vector(f"vector.{element}.exp", found, source, "op/s")


_FLOATS: tuple[Element, ...] = ("float32", "float64", "float16")
_EXPONENTIALS: tuple[Element, ...] = ("float32", "float64")
_INTEGERS: tuple[Element, ...] = ("int8", "int16", "int32", "int64")


def _arithmetic(
    native: NativeKernels, element: Element, operation: Any, threads: int
) -> float | None:
    return native.arithmetic(element, operation, threads=threads, seconds=_TRIAL_S, trials=_TRIALS)


def _vector(name: str, value: float, source: str, unit: str = "FLOP/s") -> Ceiling:
    return Ceiling(name, value, unit, "measured", source)


def torch_exponentials(torch: Any, threads: int) -> Iterator[Ceiling]:
    """``torch.exp`` over arrays that stay in the threads' own caches."""
    for dtype in ("float32", "float64"):
        # One of PyTorch's grains (32768 elements) and more for each thread.
        count = 65536 * threads
        given = torch.linspace(-4, 4, count, dtype=getattr(torch, dtype), device="cpu")
        out = torch.empty_like(given)
        call = _Bound(torch.exp, given, out)
        call()
        best_s = min(call_seconds(call) for _ in range(40))
        yield _vector(f"vector.{dtype}.exp", count / best_s, f"torch.exp of {count}", "op/s")


class _Bound:
    """``function(given, out=out)``, bound now."""

    def __init__(self, function: Callable[..., object], given: Any, out: Any) -> None:
        self._function, self._given, self._out = function, given, out

    def __call__(self) -> None:
        self._function(self._given, out=self._out)


# How PyTorch computes what has no arithmetic of its own in a CPU's vector units.
_STANDS_FOR = {
    "vector.bfloat16": ("vector.float32", "computed in float32, as PyTorch does on a CPU"),
    "vector.bfloat16.multiply": ("vector.float32.multiply", "computed in float32"),
    "vector.bfloat16.exp": ("vector.float32.exp", "computed in float32"),
    "vector.float16": ("vector.float32", "computed in float32, as PyTorch does on a CPU"),
    "vector.float16.multiply": ("vector.float32.multiply", "computed in float32"),
    "vector.float16.exp": ("vector.float32.exp", "computed in float32"),
    "vector.uint8": ("vector.int8", "the instructions of int8"),
    "vector.bool": ("vector.int8", "the instructions of int8"),
}


def rows_computed_alike(rows: dict[str, Ceiling]) -> Iterator[Ceiling]:
    """Rows of dtypes that a CPU computes in another dtype's registers, where faster or missing."""
    for name, (other, why) in _STANDS_FOR.items():
        base, own = rows.get(other), rows.get(name)
        if base is not None and (own is None or own.value < base.value):
            yield Ceiling(name, base.value, base.unit, "measured", f"{why}: {base.source}")


def vector_from_gemm(rows: dict[str, Ceiling]) -> Iterator[Ceiling]:
    """Without a compiler: a GEMM of float32 or float64 runs on the vector units.

    Only for CPUs without a matrix unit of these dtypes (the caller's concern: Apple's have one).
    """
    for dtype in ("float32", "float64"):
        base = rows.get(f"matrix.{dtype}")
        if base is not None and f"vector.{dtype}" not in rows:
            source = f"a GEMM's multiply-adds run on the vector units: {base.source}"
            yield Ceiling(f"vector.{dtype}", base.value, base.unit, "measured", source)
