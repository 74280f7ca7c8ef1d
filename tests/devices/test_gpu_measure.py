"""The measurements of a GPU, on a device that does not exist.

``FakeTorch`` is PyTorch with ``cuda`` replaced: tensors live on the CPU, and a fake clock advances
by what a device with known rates would take for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceiling
from gobrrr.devices.cuda import measure as gpu_measure
from gobrrr.devices.cuda import memory as gpu_memory
from gobrrr.devices.cuda import timing as gpu_timing
from gobrrr.devices.cuda.measure import chain_source, measure_gpu
from gobrrr.devices.cuda.memory import build_gpu_levels, slope
from gobrrr.measure import FakeClock

MIB = 1024**2
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# The device: 1 TB/s, 4 TB/s within 32 MiB; 100 TFLOP/s; 2 us a kernel; 5 us a launch; 1 us a wait.
DRAM, L2, MATRIX, KERNEL_NS, LAUNCH_NS, WAIT_NS = 1e12, 4e12, 1e14, 2000, 5000, 1000
L2_BYTES = 32 * MIB


class FakeTorch:
    """PyTorch without a GPU that behaves like one with the rates above."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queued_ns = 0.0
        self.capturing: list[float] | None = None
        self.precision = "highest"
        self.precisions: list[str] = []
        self.accumulations: set[bool] = set()
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            device_count=lambda: 1,
            get_device_properties=lambda index: SimpleNamespace(
                L2_cache_size=L2_BYTES, total_memory=8 * 1024 * MIB, multi_processor_count=4
            ),
            get_device_name=lambda index: "Fake GPU",
            device=self._nothing,
            synchronize=self._synchronise,
            Event=self._event,
            CUDAGraph=lambda: self._graph(),
            Stream=lambda device: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda device: SimpleNamespace(wait_stream=lambda other: None),
            stream=self._nothing,
            graph=self._capture,
            jiterator=SimpleNamespace(_create_jit_fn=self._jit),
            _sleep=lambda cycles: self.launch(0.0),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def device(self, kind: str, index: int) -> str:
        return "cpu"

    def Generator(self, device: str) -> Any:
        return torch.Generator()

    def get_float32_matmul_precision(self) -> str:
        return self.precision

    def set_float32_matmul_precision(self, precision: str) -> None:
        self.precision = precision
        self.precisions.append(precision)

    def launch(self, work_s: float) -> None:
        """A kernel: its work and fixed cost go on the queue, its launch on the host."""
        took_ns = work_s * 1e9 + KERNEL_NS
        if self.capturing is not None:
            self.capturing.append(took_ns)
            return
        self.clock.advance(LAUNCH_NS)
        self.queued_ns = max(self.queued_ns - LAUNCH_NS, 0.0) + took_ns

    def move(self, moved: float, unique: float) -> None:
        self.launch(moved / (L2 if unique <= L2_BYTES else DRAM))

    def _synchronise(self, device: Any = None) -> None:
        self.clock.advance(round(self.queued_ns) + WAIT_NS)
        self.queued_ns = 0.0

    @contextmanager
    def _nothing(self, *arguments: Any) -> Iterator[None]:
        yield

    @contextmanager
    def _capture(self, graph: Any) -> Iterator[None]:
        self.capturing = graph.kernels
        yield
        self.capturing = None

    def _graph(self) -> Any:
        graph = SimpleNamespace(kernels=[])

        def replay() -> None:
            self.clock.advance(LAUNCH_NS)
            self.queued_ns += sum(graph.kernels)

        graph.replay = replay
        return graph

    def _event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            event.at = self.clock.now_ns() + self.queued_ns

        event.record = record
        event.elapsed_time = lambda other: (other.at - event.at) * 1e-6
        return event

    def _jit(self, source: str) -> Callable[..., object]:
        per_element = {"multiply_add": 4096, "multiply": 2048, "exp": 512}[
            next(name for name in ("multiply_add", "multiply", "exp") if f"{name}_chain" in source)
        ]

        def run(x: Any, y: Any) -> Any:
            self.launch(x.numel() * per_element / 1e13)
            return x

        return run

    def mm(self, a: Any, b: Any, *, out: Any) -> None:
        if a.dtype == torch.float64:
            raise RuntimeError("no such kernel")
        speed = 2.0 if self.precision == "high" and a.dtype == torch.float32 else 1.0
        self.launch(2 * a.shape[0] * a.shape[1] * b.shape[1] / (MATRIX * speed))

    def _int_mm(self, a: Any, b: Any) -> None:
        raise NotImplementedError("no such kernel")

    def _scaled_mm(self, a: Any, b: Any, **options: Any) -> None:
        self.accumulations.add(options["use_fast_accum"])
        self.launch(2 * a.shape[0] * a.shape[1] * b.shape[1] / (2 * MATRIX))

    def sum(self, a: Any, *, dim: int, out: Any) -> None:
        self.move(4 * a.numel(), 4 * a.numel())

    def add(self, a: Any, b: Any, *, out: Any) -> None:
        self.move(12 * a.numel(), 12 * a.numel())

    def ones(self, *shape: int, device: str, dtype: Any = None) -> Any:
        return FakeArray(self, shape[0] if isinstance(shape[0], int) else 1, dtype)

    def empty_like(self, other: FakeArray) -> FakeArray:
        return other

    ones_like = empty_like
    zeros_like = empty_like

    def empty(self, *shape: Any, **options: Any) -> Any:
        return FakeArray(self, 1, None)


class FakeArray:
    """A tensor of a size, without memory."""

    def __init__(self, fake: FakeTorch, elements: int, dtype: Any) -> None:
        self._fake, self._elements = fake, elements

    def numel(self) -> int:
        return self._elements

    def fill_(self, value: float) -> None:
        self._fake.move(4 * self._elements, 4 * self._elements)

    def mul_(self, value: float) -> None:
        self._fake.move(8 * self._elements, 4 * self._elements)

    def copy_(self, other: FakeArray, non_blocking: bool = False) -> None:
        if non_blocking:
            # Over the bus at 50 GB/s: 256 MiB of bytes.
            self._fake.launch(256 * MIB / 50e9)
        else:
            self._fake.move(8 * self._elements, 8 * self._elements)


@pytest.fixture(scope="module")
def measured() -> Any:
    clock = FakeClock()
    fake = FakeTorch(clock)
    steps: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_measure, "_GEMM_SIZES", (256,))
        patch.setattr(gpu_measure, "_GEMM_SHAPES", ((512, 256, 512),))
        kernel_s = KERNEL_NS * 1e-9
        patch.setattr(gpu_measure, "_shortest_kernels_s", lambda gpu: (1.5 * kernel_s, kernel_s))
        ceilings = measure_gpu(
            fake,
            clock=clock,
            progress=lambda *step: steps.append(step),
            card_state=lambda: CardState(at_ns=clock.now_ns(), sm_mhz=1755),
        )
    return SimpleNamespace(ceilings=ceilings, fake=fake, steps=steps)


def test_memory_rates_and_levels(measured: Any) -> None:
    ceilings = measured.ceilings
    # 1 GiB at 1 TB/s takes 1074 us, beside which 2 us of fixed cost are 0.2 %.
    assert ceilings.value("memory.dram.copy") == pytest.approx(DRAM, rel=0.005)
    # The slope between two sizes has no fixed cost in it.
    assert ceilings.value("memory.l2.read") == pytest.approx(L2, rel=1e-3)
    assert [level.name for level in ceilings.levels] == ["l2", "dram"]
    assert ceilings.levels[0].capacity_bytes == L2_BYTES
    assert ceilings.levels[0].update_bytes_per_s == pytest.approx(L2, rel=1e-3)
    assert ceilings.levels[1].capacity_bytes is None


def test_matrix_rates(measured: Any) -> None:
    ceilings = measured.ceilings
    flops = 2 * 512 * 256 * 512
    # The larger product takes 1.3 us and 2 us of fixed cost, so launches of 5 us decide.
    assert ceilings.value("matrix.bfloat16") == pytest.approx(flops / 5e-6, rel=0.01)
    fast, precise = (ceilings.value(f"matrix.float8_e4m3fn{end}") for end in ("", ".precise"))
    assert fast == pytest.approx(min(2 * MATRIX, flops / 5e-6), rel=0.01)
    assert precise == pytest.approx(fast, rel=0.01) and measured.fake.accumulations == {True, False}
    row = ceilings.rows["matrix.bfloat16"]
    assert row.sm_hz == 1755e6 and row.source.endswith("at 1755 MHz")
    assert ceilings.disturbed == ""
    assert ceilings.value("matrix.float64") is None
    assert ceilings.value("matrix.int8") is None
    assert measured.fake.precision == "highest"
    assert set(measured.fake.precisions) == {"highest", "high"}


def test_vector_rates(measured: Any) -> None:
    ceilings = measured.ceilings
    # 2**22 elements x 4096 FLOPs at 10 TFLOP/s: 1718 us
    assert ceilings.value("vector.float32") == pytest.approx(1e13, rel=0.01)
    assert ceilings.value("vector.float32.multiply") == pytest.approx(1e13, rel=0.01)
    assert ceilings.value("vector.float32.exp") == pytest.approx(1e13, rel=0.02)
    assert ceilings.rows["vector.float32.exp"].unit == "op/s"
    assert ceilings.value("vector.bfloat16") == ceilings.value("vector.float32")
    assert ceilings.rows["vector.bfloat16"].source.startswith("float32's rate")


def test_fixed_costs(measured: Any) -> None:
    ceilings = measured.ceilings
    # A fill; the launch's round trip is that of a spin of no cycles.
    assert ceilings.kernel_fixed_s == pytest.approx(3e-6)
    assert ceilings.value("synchronise") == pytest.approx(1e-6)
    # Launch 5 us, kernel 2 us, wait 1 us: 8 us there and back.
    assert ceilings.value("launch.latency") == pytest.approx(5e-6)
    assert ceilings.value("host.dispatches") == pytest.approx(1 / 5e-6)
    assert ceilings.value("copy.h2d") == pytest.approx(50e9, rel=0.01)


def test_progress_names_every_part(measured: Any) -> None:
    assert [step[0] for step in measured.steps] == [0, 1, 2, 3, 4, 5]
    assert {step[1] for step in measured.steps} == {5}


def test_what_fails_is_said_and_the_rest_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    fake = FakeTorch(clock)
    fake.cuda.jiterator = None
    monkeypatch.setattr(gpu_measure, "_GEMM_SIZES", ())
    monkeypatch.setattr(gpu_measure, "_GEMM_SHAPES", ())

    def refuse(gpu: Any) -> None:
        raise RuntimeError("profiler is busy\nwith details")

    monkeypatch.setattr(gpu_measure, "_shortest_kernels_s", refuse)
    ceilings = measure_gpu(fake, clock=clock)
    assert ceilings.value("vector.float32") is None
    assert ceilings.value("memory.dram.read") is not None
    assert "vector arithmetic: not measured (no torch.cuda.jiterator)" in ceilings.notices
    assert "fixed costs: not measured (profiler is busy)" in ceilings.notices


def test_the_shortest_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    fill, spin = "void at::native::vectorized_elementwise_kernel<4>", "spin_kernel(long)"
    events = [(fill, 1600), (fill, 1470), (fill, 0), (spin, 540), ("cudaLaunchKernel", 3)]

    class Profile:
        def __enter__(self) -> Any:
            rows = [SimpleNamespace(name=lambda n=n: n, duration_ns=lambda d=d: d)
                    for n, d in events]  # fmt: skip
            results = SimpleNamespace(events=lambda: rows)
            return SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))

        def __exit__(self, *given: Any) -> None: ...

    monkeypatch.setattr(gpu_measure, "profiler_of_torch", lambda **options: Profile())
    clock = FakeClock()
    gpu = gpu_timing.Gpu(FakeTorch(clock), "cuda", clock)
    assert gpu_measure._shortest_kernels_s(gpu) == pytest.approx((1470e-9, 540e-9))
    events.clear()
    assert gpu_measure._shortest_kernels_s(gpu) == (None, None)


class OutOfMemoryError(RuntimeError):
    """As PyTorch's is named."""


def test_what_found_no_memory_is_said_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    def refuse(*given: Any, **options: Any) -> Any:
        raise OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gpu_measure, "_GEMM_SIZES", (64,))
    monkeypatch.setattr(gpu_measure, "_GEMM_SHAPES", ())
    monkeypatch.setattr(gpu_measure, "_shortest_kernels_s", lambda gpu: (None, None))
    monkeypatch.setattr(gpu_measure, "measure_memory", refuse)
    assert measure_gpu(FakeTorch(clock), clock=clock).short_of_memory
    monkeypatch.setattr(gpu_measure, "measure_memory", lambda *given: None)
    assert not measure_gpu(FakeTorch(clock), clock=clock).short_of_memory
    monkeypatch.setattr(gpu_measure, "_product", refuse)
    ceilings = measure_gpu(FakeTorch(clock), clock=clock)
    assert ceilings.short_of_memory
    assert "bfloat16 products of 64x64 by 64x64: no memory left" in ceilings.notices


class Newer(FakeTorch):
    """A release in which some private names are gone."""

    def __getattr__(self, name: str) -> Any:
        if name in ("_scaled_mm", "_int_mm"):
            raise AttributeError(f"module 'torch' has no attribute {name!r}")
        return super().__getattr__(name)


def test_private_names_that_are_gone_end_no_other_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    for name in ("_scaled_mm", "_int_mm"):
        monkeypatch.delattr(FakeTorch, name)
    fake = Newer(clock)
    del fake.cuda._sleep, fake.cuda.jiterator._create_jit_fn
    monkeypatch.setattr(gpu_measure, "_GEMM_SIZES", (256,))
    monkeypatch.setattr(gpu_measure, "_GEMM_SHAPES", ())
    monkeypatch.setattr(gpu_measure, "_shortest_kernels_s", lambda gpu: gpu.torch.cuda._sleep)
    ceilings = measure_gpu(fake, clock=clock)
    told = " ".join(ceilings.notices)
    assert "vector arithmetic: not measured (" in told and "_create_jit_fn" in told
    assert "fixed costs: not measured (" in told and "_sleep" in told
    for name in ("matrix.float32", "matrix.bfloat16", "memory.dram.copy", "copy.h2d",
                 "host.dispatches", "synchronise"):  # fmt: skip
        assert ceilings.value(name) is not None, name
    for name in ("matrix.int8", "matrix.float8_e4m3fn", "vector.float32", "kernel.fixed"):
        assert ceilings.value(name) is None, name


def test_no_gpu() -> None:
    absent = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    with pytest.raises(LookupError, match="no GPU with index 0"):
        measure_gpu(absent)


def test_slope() -> None:
    # 8 MB more in 2 us more: 4 TB/s
    assert slope(2e6, 3e-6, 10e6, 5e-6) == pytest.approx(4e12)
    assert slope(2e6, 3e-6, 10e6, 3e-6) is None


def test_a_cache_slower_than_memory_takes_its_rate() -> None:
    rows = {
        name: Ceiling(name, value, unit, "measured", "")
        for name, value, unit in (
            ("memory.dram.read", 2e12, "B/s"),
            ("memory.dram.write", 1e12, "B/s"),
            ("memory.l2.read", 1e12, "B/s"),
            ("memory.l2.capacity", 4e7, "B"),
        )
    }
    levels = build_gpu_levels(rows)
    assert levels[0].rates == ((0.0, 2e12), (1.0, 1e12))
    assert levels[0].capacity_bytes == 40_000_000


def test_chains_are_as_many_as_are_counted() -> None:
    source = chain_source("multiply_add", steps=8, chains=2)
    assert source.count("= c0 * x + y;") == 1
    assert source.count("= c1 * x + y;") == 1
    assert "step < 8" in source
    assert source.endswith("return c0 + c1; }")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
def test_on_a_real_gpu() -> None:
    ceilings = measure_gpu(torch)
    bandwidth = ceilings.value("memory.dram.copy")
    rate = ceilings.value("matrix.float16")
    assert bandwidth is not None
    assert rate is not None
    assert bandwidth > 50e9
    assert rate > 1e12
    assert gpu_timing.MIB == gpu_memory.MIB
