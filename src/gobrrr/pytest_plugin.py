"""The pytest fixture ``gobrrr_check``: a test that fails when a step grows.

    def test_step(gobrrr_check):
        gobrrr_check(workload, max_kernels=400, max_syncs=0, regime="compute")
        gobrrr_check(workload, baseline="step.json")   # pytest --gobrrr-update writes it
        gobrrr_check.counts(workload, max_syncs=0)     # two steps, nothing timed

pytest loads this module in every run where gobrrr is installed, so it imports nothing of gobrrr
until a test asks for the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gobrrr.diagnosis.figures import Figures
    from gobrrr.diagnosis.gate import Limits
    from gobrrr.diagnosis.schema import Diagnosis

# A property of a test's report: what is better than its baseline.
_NOTE = "gobrrr better"


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
        only: Sequence[str] = (),
        tolerance: float | None = None,
        times: bool = False,
        steps: int | None = None,
        warmup: int | None = None,
    ) -> Diagnosis:
        """Diagnose ``target`` and fail the test if a limit does not hold; returns the diagnosis.

        ``target`` is a callable, ``(module, inputs)``, a ``gobrrr.Workload``, or a ``Diagnosis``,
        which is held to the limits as it is. Counters are per step; ``max_syncs`` are
        synchronisations (on a CPU, reads of one value, such as ``.item()``; not those that a
        library's optimizer makes of its own figures), ``max_counters`` limits on any other counter
        of ``Diagnosis.counters``.

        ``regime`` is ``compute``, ``memory`` or ``overhead``; ``max_overhead`` a share of the
        step, 0 to 1; ``max_step_s`` seconds, flaky on a machine that does other things too.

        ``baseline`` is a file that ``pytest --gobrrr-update`` or ``gobrrr check --save-baseline``
        wrote, or a diagnosis, relative to the test's file: counts may not grow (FLOPs and bytes
        beyond ``tolerance``, by default 0.005) and, with ``times``, neither may the step time, by
        10 %, on the same device. ``only``: names of the counters, and ``step``, to compare. What
        has become better is said at the end of the run.
        ``steps`` and ``warmup`` are those of ``gobrrr.diagnose``.
        """
        from gobrrr.diagnosis.gate import Limits

        limits = Limits(
            counters=_limits(
                {"kernels": max_kernels, "ops": max_ops, "synchronisations": max_syncs,
                 "copies": max_copies, "flops": max_flops, "bytes": max_bytes},
                max_counters,
            ),
            regime=regime,
            max_overhead=max_overhead,
            max_step_s=max_step_s,
        )  # fmt: skip
        if limits == Limits() and baseline is None:
            pytest.fail("gobrrr_check was given nothing to check", pytrace=False)
        diagnosis = _diagnosis_of(target, steps, warmup)
        self._hold(diagnosis, limits, baseline, only, tolerance, times)
        return diagnosis

    def counts(
        self,
        target: Any,
        *,
        max_ops: float | None = None,
        max_syncs: float | None = None,
        max_flops: float | None = None,
        max_bytes: float | None = None,
        baseline: str | os.PathLike[str] | None = None,
        only: Sequence[str] = (),
        tolerance: float | None = None,
        warmup: int = 1,
    ) -> Figures:
        """The same of what one recorded step counts, after ``warmup`` others; nothing is timed.

        ``target`` is a callable, ``(module, inputs)`` or a ``gobrrr.Workload``. Of a baseline what
        such a step does not count (kernels, copies) is left out. On a GPU synchronisations are not
        counted.
        """
        from gobrrr.diagnosis.gate import Limits
        from gobrrr.verification.counts import count_step

        named = {"ops": max_ops, "synchronisations": max_syncs, "flops": max_flops,
                 "bytes": max_bytes}  # fmt: skip
        limits = Limits(counters=_limits(named, None))
        if limits == Limits() and baseline is None:
            pytest.fail("gobrrr_check was given nothing to check", pytrace=False)
        figures = count_step(target, warmup=warmup)
        self._hold(figures, limits, baseline, only, tolerance, times=False)
        return figures

    def _hold(
        self,
        step: Diagnosis | Figures,
        limits: Limits,
        baseline: str | os.PathLike[str] | None,
        only: Sequence[str],
        tolerance: float | None,
        times: bool,
    ) -> None:
        from gobrrr.diagnosis.figures import Figures, figures_of, load_figures
        from gobrrr.diagnosis.gate import DEFAULT_TOLERANCE, against_baseline, over_limits

        breaches = over_limits(step, limits)
        path = None if baseline is None else self._request.path.parent / baseline
        if path is not None and self._request.config.getoption("--gobrrr-update"):
            (step if isinstance(step, Figures) else figures_of(step)).save(path)
        elif path is not None and not path.exists():
            breaches.append(f"no baseline at {path}: pytest --gobrrr-update writes it")
        elif path is not None:
            allowed = DEFAULT_TOLERANCE if tolerance is None else tolerance
            result = against_baseline(
                step, load_figures(path), times=times, tolerance=allowed, only=only
            )
            breaches += result.breaches
            # With the test's report, which may be of another process.
            self._request.node.user_properties += [(_NOTE, note) for note in result.better]
        if breaches:
            pytest.fail("\n".join(["gobrrr_check:", *breaches]), pytrace=False)


def _limits(
    named: Mapping[str, float | None], others: Mapping[str, float] | None
) -> dict[str, float]:
    return {**{name: most for name, most in named.items() if most is not None}, **(others or {})}


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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what has become better than its baseline: such a test passes."""
    notes = [
        f"{report.nodeid}: {note}"
        for report in terminalreporter.getreports("passed")
        for name, note in report.user_properties
        if name == _NOTE and report.when == "call"
    ]
    if notes:
        terminalreporter.section("gobrrr_check: better than the baseline")
        for note in notes:
            terminalreporter.line(note)
        terminalreporter.line("pytest --gobrrr-update makes these the baseline.")
