"""Ceilings of a GPU that PyTorch sees, CUDA or ROCm alike, by PyTorch's own means.

Arithmetic rates outside GEMMs come from element-wise kernels that PyTorch compiles at run time
(``torch.cuda.jiterator``); without it they stay unknown. Times are taken between events around
many launches, the fastest of several trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.devices.card import CardSpan, CardState, disturbance
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.cuda.cupti import detach_after_profile, wait_until_gone
from gobrrr.devices.cuda.memory import build_gpu_levels, measure_memory
from gobrrr.devices.cuda.timing import MIB, Found, Gpu, out_of_memory
from gobrrr.measure.clock import Clock, SystemClock
from gobrrr.measure.torch_profiler import profiler_of_torch

# done, total, what

_GEMM_SIZES = (2048, 4096, 8192)
# (m, k, n) that fill a device less evenly, for libraries that have their best kernels there.
_GEMM_SHAPES = ((4096, 1024, 8192), (8192, 8192, 1024))
# Partial sums promoted to float32, as ``torch._scaled_mm`` does unless it is asked for fast ones.
PRECISE_FP8 = "float8_e4m3fn.precise"
_FMA_STEPS = 512
_CHAINS = 4
_EXP_STEPS = 128
# Enough for every lane of the largest device, few enough to stay in its cache.
_ELEMENTS = 1 << 22
_COPY_BYTES = 256 * MIB
# Of one block of PyTorch's element-wise kernels of float32, at the least.
_BLOCK_ELEMENTS = 512


def measure_gpu(
    torch: Any,
    index: int = 0,
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
    card_state: Callable[[], CardState | None] = lambda: None,
) -> Ceilings:
    """Measure one CUDA or ROCm device; under a minute on an idle one.

    Global settings (float32 matmul precision, current device) are put back.

    Args:
        torch: the module.
        index: the device's index.
        progress: told (parts done, parts in all, what comes next).
        clock: for host times; the system's by default.
        card_state: what the driver says of the card now.

    Raises:
        LookupError: PyTorch sees no such device.
    """
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise LookupError(f"PyTorch sees no GPU with index {index}")
    gpu = Gpu(torch, torch.device("cuda", index), clock or SystemClock(), card_state)
    properties = torch.cuda.get_device_properties(index)
    found = Found()
    l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 0)
    parts: list[tuple[str, Callable[[Gpu, Found], None]]] = [
        ("matrix products", _matrix),
        ("vector arithmetic", _vector),
        (
            "memory",
            lambda gpu, found: measure_memory(gpu, found, l2_bytes, properties.total_memory),
        ),
        ("fixed costs", _fixed_costs),
        ("copies", _copies),
    ]
    before = card_state()
    with torch.cuda.device(index), torch.no_grad():
        for done, (what, measure) in enumerate(parts):
            if progress is not None:
                progress(done, len(parts), what)
            try:
                measure(gpu, found)
            except (RuntimeError, AttributeError, NotImplementedError) as error:
                found.notices.append(f"{what}: not measured ({_first_line(error)})")
                found.short_of_memory |= out_of_memory(error)
    after = card_state()
    if progress is not None:
        progress(len(parts), len(parts), "done")
    if l2_bytes:
        found.add("memory.l2.capacity", float(l2_bytes), "B", "as the driver reports it")
    found.add("memory.dram.capacity", float(properties.total_memory), "B", "the driver's figure")
    return Ceilings(
        torch.cuda.get_device_name(index),
        found.rows,
        build_gpu_levels(found.rows),
        tuple(found.notices),
        found.short_of_memory,
        "" if before is None or after is None else disturbance(CardSpan(before, after, 0)),
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# ---- matrix products ------------------------------------------------------------------------


def _matrix(gpu: Gpu, found: Found) -> None:
    shapes = [(size, size, size) for size in _GEMM_SIZES] + list(_GEMM_SHAPES)
    cases: tuple[tuple[str, str, str | None], ...] = (
        ("float32", "float32", "highest"),
        ("tf32", "float32", "high"),
        ("bfloat16", "bfloat16", None),
        ("float16", "float16", None),
        ("float64", "float64", None),
        ("int8", "int8", None),
        ("float8_e4m3fn", "float8_e4m3fn", None),
        (PRECISE_FP8, "float8_e4m3fn", None),
        ("float8_e4m3fnuz", "float8_e4m3fnuz", None),
    )
    for name, dtype, precision in cases:
        if not hasattr(gpu.torch, dtype):
            continue
        # float64 and plain float32 are slow where they have no matrix unit.
        for m, k, n in shapes[:2] if name in ("float64", "float32") else shapes:
            try:
                with _matmul_precision(gpu.torch, precision):
                    seconds = gpu.seconds(_product(gpu, dtype, m, k, n, fast=name != PRECISE_FP8))
                sm_hz = gpu.sm_hz()
            except (
                RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError,
            ) as error:  # fmt: skip
                # The device, or this PyTorch on it, has no such product; or it has no room for it.
                if out_of_memory(error):
                    found.short_of_memory = True
                    found.notices.append(f"{name} products of {m}x{k} by {k}x{n}: no memory left")
                continue
            unit = "op/s" if name == "int8" else "FLOP/s"
            source = f"torch, {m}x{k} by {k}x{n}"
            if sm_hz is not None:
                source += f" at {sm_hz * 1e-6:.0f} MHz"
            found.add(f"matrix.{name}", 2.0 * m * k * n / seconds, unit, source, sm_hz)
    plain, tf32 = found.rows.get("matrix.float32"), found.rows.get("matrix.tf32")
    if plain and tf32 and tf32.value < 1.05 * plain.value:
        # The device has no TF32, and the setting changed nothing.
        del found.rows["matrix.tf32"]


@contextmanager
def _matmul_precision(torch: Any, precision: str | None) -> Iterator[None]:
    if precision is None:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product(gpu: Gpu, dtype: str, m: int, k: int, n: int, *, fast: bool) -> Callable[[], object]:
    """``fast``: of float8 with fast accumulation."""
    torch, device = gpu.torch, gpu.device
    generator = torch.Generator(device)
    generator.manual_seed(0)

    def random(rows: int, columns: int) -> Any:
        # Power, and so clocks, depend on the values: zeros would run faster than real data.
        values = torch.randn(rows, columns, device=device, generator=generator)
        return (values * 16).to(torch.int8) if dtype == "int8" else values.to(getattr(torch, dtype))

    a, b = random(m, k), random(n, k).t()
    if dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if dtype.startswith("float8"):
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
        )
    out = torch.empty(m, n, device=device, dtype=getattr(torch, dtype))
    return lambda: torch.mm(a, b, out=out)


# ---- vector arithmetic ----------------------------------------------------------------------


def chain_source(operation: str, steps: int = _FMA_STEPS, chains: int = _CHAINS) -> str:
    """C++ of an element-wise function of ``steps`` dependent operations in each of ``chains``.

    ``operation`` is ``multiply_add``, ``multiply`` or ``exp``. FLOPs per element are steps x
    chains, times two for ``multiply_add``.
    """
    # The factor is read from the input, so that no compiler folds the chain.
    body = {
        "multiply_add": "c{i} = c{i} * x + y;",
        "multiply": "c{i} = c{i} * x;",
        "exp": "c{i} = ::exp(-c{i});",
    }[operation]
    lines = "".join(body.format(i=i) for i in range(chains))
    start = "".join(f"T c{i} = x + T({i});" for i in range(chains))
    total = " + ".join(f"c{i}" for i in range(chains))
    return (
        f"template <typename T> T {operation}_chain(T x, T y) {{ {start}"
        f'_Pragma("unroll 16") for (int step = 0; step < {steps}; ++step) {{ {lines} }}'
        f"return {total}; }}"
    )


def _vector(gpu: Gpu, found: Found) -> None:
    torch = gpu.torch
    jiterator = getattr(torch.cuda, "jiterator", None)
    if jiterator is None:
        found.notices.append("vector arithmetic: not measured (no torch.cuda.jiterator)")
        return
    elements = _ELEMENTS
    for dtype in ("float32", "float64"):
        x = torch.ones(elements, device=gpu.device, dtype=getattr(torch, dtype))
        y = torch.zeros_like(x)
        for operation, suffix, steps, per_step in (
            ("multiply_add", "", _FMA_STEPS, 2),
            ("multiply", ".multiply", _FMA_STEPS, 1),
            ("exp", ".exp", _EXP_STEPS, 1),
        ):
            if operation == "exp" and dtype != "float32":
                continue
            run = jiterator._create_jit_fn(chain_source(operation, steps))
            seconds = gpu.seconds(_Call(run, x, y))
            work = float(elements) * steps * _CHAINS * per_step
            found.add(
                f"vector.{dtype}{suffix}",
                work / seconds,
                "op/s" if operation == "exp" else "FLOP/s",
                f"{_CHAINS} chains of {steps} in registers, {elements} elements",
            )
    for half in ("bfloat16", "float16"):
        for suffix in ("", ".multiply", ".exp"):
            single = found.rows.get(f"vector.float32{suffix}")
            if single is not None:
                source = (
                    "float32's rate, at which PyTorch's kernels compute 16-bit values too "
                    f"(packed 16-bit arithmetic was not measured): {single.source}"
                )
                found.add(f"vector.{half}{suffix}", single.value, single.unit, source)


class _Call:
    """A function with its arguments, bound now."""

    def __init__(self, function: Callable[..., object], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self) -> object:
        return self._function(*self._arguments)


# ---- fixed costs and copies -----------------------------------------------------------------


def _fixed_costs(gpu: Gpu, found: Found) -> None:
    torch = gpu.torch
    synchronise_s = gpu.host_seconds(gpu.synchronise, 200)
    found.add("synchronise", synchronise_s, "s", "torch.cuda.synchronize with nothing to wait for")
    one, other = (torch.ones(1, device=gpu.device) for _ in range(2))
    out = torch.empty(1, device=gpu.device)
    # Fewer calls than the launch queue holds, so that none waits for the device.
    dispatch_s = gpu.host_seconds(lambda: torch.add(one, other, out=out), 200)
    found.add("host.dispatches", 1 / dispatch_s, "op/s", "torch.add of one element on the device")
    # What follows needs parts of PyTorch that are not public.
    filled_s, spun_s = _shortest_kernels_s(gpu)
    source = "shortest of 200 fills of one element or of a block a multiprocessor, profiled"
    found.add("kernel.fixed", filled_s, "s", source)

    def nothing() -> None:
        torch.cuda._sleep(0)

    def launch_and_wait() -> None:
        nothing()
        gpu.synchronise()

    round_trip_s = gpu.host_seconds(launch_and_wait, 200)
    if spun_s is not None:
        found.add(
            "launch.latency",
            round_trip_s - spun_s - synchronise_s,
            "s",
            "launching a kernel on an idle device and waiting for it, less kernel and wait",
        )


def _shortest_kernels_s(gpu: Gpu) -> tuple[float | None, float | None]:
    """Device time of the shortest fill and of a spin of no cycles, as the profiler records them.

    A fill is the least that a kernel of a program does. One block, or one for each multiprocessor:
    the lesser.
    """
    torch = gpu.torch
    blocks = torch.cuda.get_device_properties(gpu.device).multi_processor_count
    arrays = [torch.empty(size, device=gpu.device) for size in (1, blocks * _BLOCK_ELEMENTS)]

    def launch() -> None:
        for array in arrays:
            array.fill_(1.0)
        torch.cuda._sleep(0)

    for _ in range(3):
        launch()
    gpu.synchronise()
    # As of the steps that are profiled later: no profile may run before these without it.
    detach_after_profile()
    with profiler_of_torch(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(100):
            launch()
        gpu.synchronise()
    wait_until_gone("cuda")
    events = [
        (event.name(), event.duration_ns())
        for event in profile.profiler.kineto_results.events()
        if event.duration_ns() > 0
    ]

    def shortest_s(part: str) -> float | None:
        return min((ns * 1e-9 for name, ns in events if part in name), default=None)

    return shortest_s("elementwise_kernel"), shortest_s("spin_kernel")


def _copies(gpu: Gpu, found: Found) -> None:
    torch = gpu.torch
    size = _COPY_BYTES
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device=gpu.device)
    to_device_s = gpu.seconds(lambda: device.copy_(host, non_blocking=True))
    to_host_s = gpu.seconds(lambda: host.copy_(device, non_blocking=True))
    found.add("copy.h2d", size / to_device_s, "B/s", f"{size // MIB} MiB from pinned memory")
    found.add("copy.d2h", size / to_host_s, "B/s", f"{size // MIB} MiB to pinned memory")
