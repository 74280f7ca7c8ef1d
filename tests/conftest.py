"""Fixtures for all rooms: shared data and the skip rules of the job without torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The machine may be busy: how long an example takes says nothing of the code.
settings.register_profile("gobrrr", deadline=None)
settings.load_profile("gobrrr")

HAS_TORCH = importlib.util.find_spec("torch") is not None
# A test of processes and clocks may fail by what else a machine does, but not many at once.
MOST_RERUN = 3
DATA = Path(__file__).parent / "data"
# Imports torch in its __init__, so that no test module of it can skip itself.
collect_ignore = [] if HAS_TORCH else ["simulated_device"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs torch, a GPU or a model library where that is not installed."""
    no_torch = pytest.mark.skip(reason="torch is not installed")
    for item in items:
        needs_torch = any(item.get_closest_marker(name) for name in ("torch", "gpu", "models"))
        if needs_torch and not HAS_TORCH:
            item.add_marker(no_torch)
        elif item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA or ROCm device"))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names bytes by their length: content can hold a time, xdist wants one name everywhere."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says it where a run has more reruns than the machine can be blamed for."""
    if len(rerun := _rerun(terminalreporter.config)) > MOST_RERUN:
        terminalreporter.write_line(
            f"{len(rerun)} tests were run again, and at most {MOST_RERUN} may be in one run: "
            "-r R lists them. The run fails."
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails such a run."""
    if len(_rerun(session.config)) > MOST_RERUN and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _rerun(config: pytest.Config) -> set[str]:
    """Tests that were run again, of all of xdist's workers; they themselves know of none."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return set() if reporter is None else {r.nodeid for r in reporter.stats.get("rerun", ())}


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def no_formula_fails() -> Iterator[None]:
    """A formula that fails on a call recorded whole is a defect, whatever the test is about."""
    from gobrrr.work.registry import failed_formulas, forget_failures

    forget_failures()
    yield
    failed = failed_formulas()
    forget_failures()
    assert not failed


@pytest.fixture(autouse=True)
def no_dispatch_mode_is_left() -> Iterator[None]:
    """A dispatch mode that a test leaves behind would see every op of the tests after it."""
    before = _dispatch_modes()
    yield
    left = 0
    while _dispatch_modes() > before:
        sys.modules["torch"]._C._pop_torch_dispatch_stack()
        left += 1
    assert not left, f"{left} dispatch modes are left"


@pytest.fixture(autouse=True, scope="module")
def the_machine_is_ours(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without a verdict because others hold the processors: that is for tests of the load alone."""
    with pytest.MonkeyPatch.context() as patch:
        if "measure" not in request.path.parts:
            patch.setattr("gobrrr.measure.load.Load.taken_away", False)
        yield


def _dispatch_modes() -> int:
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch._C._len_torch_dispatch_stack())


@pytest.fixture
def data() -> Path:
    """The folder of hand-written diagnoses."""
    return DATA
