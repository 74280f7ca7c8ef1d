"""Warnings of torch's C++ are dropped where gobrrr works, and nothing else is."""

from __future__ import annotations

import os

import pytest

from gobrrr.observe.native_warnings import native_warnings_dropped


def test_warnings_go_and_the_rest_comes(capfd: pytest.CaptureFixture[str]) -> None:
    with native_warnings_dropped():
        os.write(2, b"before\n[W1127 19:06:38.388461098 ReduceOps.cpp:1861] Warning: std()\n")
        os.write(2, b"[W] mine\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\n[W] mine\nafter\n"


def test_what_is_raised_inside_puts_stderr_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), native_warnings_dropped():
        raise KeyError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


@pytest.mark.torch
def test_calibrating_an_op_that_warns_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    import gobrrr

    x, linear = torch.randn(1), torch.nn.Linear(64, 64)

    def step() -> None:
        linear(torch.ones(64, 64))
        x.std()

    with pytest.warns(UserWarning, match="degrees of freedom"):
        gobrrr.diagnose(step, steps=5, progress=False)
    assert "Warning" not in capfd.readouterr().err
