"""A step's work counted once, and what its time then says."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.devices import machine  # noqa: E402
from gobrrr.devices.ceilings import Ceiling, Ceilings  # noqa: E402
from gobrrr.prediction import meter as meters  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, BATCH = 64, 32
# A device that multiplies 1 GFLOP a second in float32, and nothing else.
RATE = Ceiling("matrix.float32", 1e9, "FLOP/s", "given", "made for tests")
DEVICE = Ceilings("made", {RATE.name: RATE}, ())
# Of one layer in training: forward, and the gradient of its weights.
TRAINED = 2 * 2 * BATCH * WIDTH * WIDTH


def training() -> gobrrr.Workload:
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    return gobrrr.Workload(model, torch.randn(BATCH, WIDTH), torch.sum, optimizer)


def test_a_time_is_all_that_a_reading_needs() -> None:
    meter = gobrrr.Meter(training(), ceilings=DEVICE)
    assert (meter.matrix_flops, meter.dtype, meter.samples) == (TRAINED, "float32", BATCH)
    assert meter.flops > TRAINED and meter.bytes > 0
    reading = meter.read(0.5)
    assert reading.mfu == pytest.approx(TRAINED / 1e9 / 0.5)
    assert reading.flops_per_s == meter.flops / 0.5
    assert reading.bytes_per_s == meter.bytes / 0.5
    assert reading.samples_per_s == 64
    # Nothing is computed again, and no token is looked up.
    assert reading.hfu is None and reading.tokens_per_s is None


def test_nothing_is_computed_and_no_state_moves() -> None:
    work = training()
    before = [p.detach().clone() for p in work.model.parameters()]
    random = torch.get_rng_state()
    gobrrr.Meter(work)
    assert all(map(torch.equal, before, work.model.parameters()))
    assert not work.optimizer.state
    assert work.model.weight.grad is None
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize(
    ("ceilings", "why"),
    [(None, "ceilings_for_this_machine"), (Ceilings("made", {}, ()), "of made have no rate")],
)
def test_without_a_peak_there_is_no_mfu_and_the_meter_says_why(ceilings, why, monkeypatch) -> None:
    monkeypatch.setattr(meters, "cached_ceilings", lambda: None)
    with pytest.warns(UserWarning, match="no MFU") as said:
        meter = gobrrr.Meter(training(), ceilings=ceilings)
    reading = meter.read(1.0)
    assert reading.mfu is None and why in meter.no_mfu
    assert len(said) == 1 and meter.no_mfu in str(said[0].message)
    assert reading.flops_per_s is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's data sheet decides")
def test_the_ceilings_that_were_measured_here_are_used(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(machine, "cache_folder", lambda: tmp_path)
    assert machine.cached_ceilings() is None
    processor = machine.identify("cpu")
    used = machine.backend_of("cpu").operator_threads(None)
    machine.save_ceilings(DEVICE, machine.cache_path(processor, torch.__version__, used))
    meter = gobrrr.Meter(training())
    assert meter.read(0.5).mfu == pytest.approx(TRAINED / 1e9 / 0.5) and not meter.no_mfu


def test_what_is_computed_again_is_no_work_of_the_model() -> None:
    inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    x = torch.randn(BATCH, WIDTH)

    def step(again: bool) -> None:
        inner.zero_grad()
        y = checkpoint(inner, x, use_reentrant=False) if again else inner(x)
        y.square().sum().backward()

    plain = gobrrr.Meter(lambda: step(False), ceilings=DEVICE).read(1.0)
    again = gobrrr.Meter(lambda: step(True), ceilings=DEVICE).read(1.0)
    assert again.mfu == plain.mfu == pytest.approx(TRAINED / 1e9)
    # The forward pass once more.
    assert again.hfu == pytest.approx(1.5 * TRAINED / 1e9)


def test_tokens_are_what_is_looked_up_unless_they_are_given() -> None:
    table, ids = nn.Embedding(100, WIDTH), torch.randint(100, (4, 16))
    assert gobrrr.Meter((table, ids)).read(2.0).tokens_per_s == 32
    given = gobrrr.Meter((table, ids), tokens=10, samples=3).read(1.0)
    assert (given.tokens_per_s, given.samples_per_s) == (10, 3)


def test_an_op_without_a_formula_leaves_the_sums_unknown() -> None:
    @torch.library.custom_op("meter_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    double.register_fake(torch.empty_like)
    model = nn.Linear(WIDTH, WIDTH)
    meter = gobrrr.Meter(lambda: double(model(torch.ones(BATCH, WIDTH))), ceilings=DEVICE)
    assert meter.uncounted == ("meter_test::double",)
    reading = meter.read(1.0)
    assert reading.mfu is None and reading.flops_per_s is None and reading.bytes_per_s is None


def test_it_agrees_with_a_diagnosis() -> None:
    work = training()
    found = gobrrr.diagnose(work, steps=5, ceilings=DEVICE, batch_test=False, progress=False)
    meter = gobrrr.Meter(work, ceilings=DEVICE)
    assert found.counters["flops"] == meter.flops


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan")])
def test_a_step_takes_time(step_s: float) -> None:
    with pytest.raises(InputError, match="takes longer"):
        gobrrr.Meter(training()).read(step_s)
