"""The pytest fixture ``gobrrr_check``: a test that fails when a step grows.

    def test_step(gobrrr_check):
        gobrrr_check(workload, max_kernels=400, max_syncs=0, regime="compute")
        gobrrr_check(workload, baseline="step.json")   # pytest --gobrrr-update writes it

pytest loads this module in every run where gobrrr is installed, so it imports nothing of gobrrr
until a test asks for the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gobrrr.diagnosis.schema import Diagnosis


class Check:
    """What ``gobrrr_check`` is."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(
        self,
        target: Any,
        *,
        max_kernels: float | None = None,
        max_ops: float | None = None,
        max_syncs: float | None = None,
        max_copies: float | None = None,
        max_flops: float | None = None,
        max_bytes: float | None = None,
        max_counters: Mapping[str, float] | None = None,
        regime: str | None = None,
        max_overhead: float | None = None,
        max_step_s: float | None = None,
        baseline: str | os.PathLike[str] | None = None,
        times: bool = False,
        steps: int | None = None,
        warmup: int | None = None,
    ) -> Diagnosis:
        """Diagnose ``target`` and fail the test if a limit does not hold; returns the diagnosis.

        ``target`` is a callable, ``(module, inputs)``, a ``gobrrr.Workload``, or a ``Diagnosis``,
        which is held to the limits as it is. Counters are per step; ``max_syncs`` are
        synchronisations (on a CPU, reads of one value, such as ``.item()``), ``max_counters``
        limits on any other counter of ``Diagnosis.counters``.

        ``regime`` is ``compute``, ``memory`` or ``overhead``; ``max_overhead`` a share of the
        step, 0 to 1; ``max_step_s`` seconds, flaky on a machine that does other things too.

        ``baseline`` is a diagnosis that was good enough, relative to the test's file: counts may
        not grow and, with ``times``, neither may the step time, by 10 %, on the same device.
        ``steps`` and ``warmup`` are those of ``gobrrr.diagnose``.
        """
        from gobrrr.diagnosis.gate import Limits, over_limits

        named = {"kernels": max_kernels, "ops": max_ops, "copies": max_copies,
                 "flops": max_flops, "bytes": max_bytes}  # fmt: skip
        counters = {name: most for name, most in named.items() if most is not None}
        limits = Limits(
            counters={**counters, **(max_counters or {})},
            regime=regime,
            max_overhead=max_overhead,
            max_step_s=max_step_s,
        )
        if limits == Limits() and max_syncs is None and baseline is None:
            pytest.fail("gobrrr_check was given nothing to check", pytrace=False)
        diagnosis = _diagnosis_of(target, steps, warmup)
        breaches = over_limits(diagnosis, limits)
        if max_syncs is not None:
            breaches += over_limits(diagnosis, Limits(counters={"synchronisations": max_syncs}))
        if baseline is not None:
            path = self._request.path.parent / baseline
            breaches += _against(diagnosis, path, times, self._request.config)
        if breaches:
            pytest.fail("\n".join(["gobrrr_check:", *breaches]), pytrace=False)
        return diagnosis


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--gobrrr-update``: write baselines instead of holding against them."""
    parser.getgroup("gobrrr").addoption(
        "--gobrrr-update",
        action="store_true",
        help="gobrrr_check: write the baselines from what is measured now",
    )


@pytest.fixture
def gobrrr_check(request: pytest.FixtureRequest) -> Check:
    """Diagnoses a step and fails the test, one line per breach, if it is over its limits."""
    return Check(request)


def _diagnosis_of(target: Any, steps: int | None, warmup: int | None) -> Diagnosis:
    from gobrrr.diagnosis.schema import Diagnosis

    if isinstance(target, Diagnosis):
        return target
    from gobrrr.pipeline.live import diagnose

    return diagnose(target, steps=steps, warmup=warmup, batch_test=False, progress=False)


def _against(
    diagnosis: Diagnosis, path: Path, times: bool, config: pytest.Config
) -> tuple[str, ...]:
    from gobrrr.diagnosis.gate import against_baseline
    from gobrrr.diagnosis.storage import load

    if config.getoption("--gobrrr-update"):
        diagnosis.save(path)
        return ()
    if not path.exists():
        return (f"no baseline at {path}: pytest --gobrrr-update writes it",)
    return against_baseline(diagnosis, load(path), times=times).breaches
