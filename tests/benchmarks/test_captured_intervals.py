"""What a slow host explains of a step is told from what its kernels are off by."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("numpy")

from benchmarks.prediction_captured.intervals import host_multiple, stated
from benchmarks.prediction_distributed.intervals import Residual

HOST = 6.0


@dataclass(frozen=True)
class Measured:
    """A step, its kernels ``off`` by a factor, whose host takes ``HOST`` times its ops' time."""

    model: int
    kind: str
    predicted_s: float
    host_s: float
    off: float

    @property
    def measured_s(self) -> float:
        return max(self.off * self.predicted_s, HOST * self.host_s)

    @property
    def residual(self) -> Residual:
        return Residual(self.measured_s / self.predicted_s, self.model, self.kind)


def of(kind: str, host_s: float) -> list[Measured]:
    offs = (0.9, 0.95, 1.0, 1.05, 1.1)
    return [Measured(model, kind, 1.0, host_s, off) for model in range(3) for off in offs]


def test_the_host_and_the_kernels_are_told_apart() -> None:
    found = stated([], [*of("tensor", 0.05), *of("pipeline", 0.4)])
    assert found["host_over_ops"] == {"median": HOST, "stated": HOST, "steps": 15}
    # Steps that the host binds say nothing about kernels.
    assert set(found["whole_steps"]) == {"tensor", "any"}
    tensor = found["whole_steps"]["tensor"]
    assert 0.89 < tensor["low"] < 0.95
    assert 1.05 < tensor["high"] < 1.11
    assert tensor["models"] == 3


def test_without_bound_steps_nothing_is_known_of_the_host() -> None:
    assert host_multiple(of("tensor", 0.05)) is None
    assert stated([], of("tensor", 0.05))["host_over_ops"] is None


def test_an_interval_holds_its_own_prediction() -> None:
    shards = [Measured(model, "shards", 1.0, 0.01, off) for model in (1, 2) for off in (1.1, 1.2)]
    found = stated(shards, [])["whole_steps"]["shards"]
    assert found["low"] == 1.0
    assert found["high"] >= 1.18
