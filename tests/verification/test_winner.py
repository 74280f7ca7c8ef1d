"""A fix applied for good, in the process in which it was tried."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402
from gobrrr.verification.winner import with_fixes  # noqa: E402
from gobrrr.verification.workloads import verify_workload  # noqa: E402

pytestmark = pytest.mark.torch
(COMPILE,) = (fix for fix in FIXES if fix.name == "compile")


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.ModuleList(torch.nn.Linear(6, 12) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.up:
            value, gate = layer(x).chunk(2, dim=-1)
            x = x + value * torch.sigmoid(gate)
        return x


def workload(trains: bool) -> Workload:
    torch.manual_seed(0)
    model = Gated()
    if not trains:
        return Workload(model.eval(), torch.ones(2, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(model, torch.ones(2, 6), loss=lambda y: y.square().mean(), optimizer=optimizer)


def test_a_module_with_a_setting_is_the_model_in_all_else() -> None:
    model = Gated().eval()
    (one,) = (fix for fix in FIXES if fix.name == "one_thread")
    applied = with_fixes(model, [one], torch.ones(2, 6))
    assert applied is not model and not applied.training
    assert applied.up is model.up
    with pytest.raises(AttributeError, match="nothing_of_it"):
        applied.nothing_of_it  # noqa: B018


def test_the_rows_of_attention_stay_contiguous_in_each_step_and_outside_of_none() -> None:
    from torch.nn import functional

    (layout,) = (fix for fix in FIXES if fix.name == "attention_layout")
    original, seen = functional.scaled_dot_product_attention, []

    class Strided(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(functional.scaled_dot_product_attention is original)
            return functional.scaled_dot_product_attention(x.mT, x.mT, x.mT)

    applied = with_fixes(Strided().eval(), [layout], torch.ones(1, 2, 4, 8))
    applied(torch.ones(1, 2, 4, 8))
    assert seen == [False]
    assert functional.scaled_dot_product_attention is original


def python_calls(step: Callable[[], Any]) -> int:
    """Python functions entered by a warm step, the fewest of several: collections enter others."""
    for _ in range(3):
        step()
    return min(_calls(step) for _ in range(5))


def _calls(step: Callable[[], Any]) -> int:
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_what_is_compiled_after_trials_costs_what_it_costs_compiled_by_hand(
    trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    # Generated code is the same on both sides; entries, guards and wrappers are what is looked at.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    work = workload(trains)
    by_hand = python_calls(replace(work, model=torch.compile(work.model)).step)
    entries = len(_debug_get_cache_entry_list(Gated.forward.__code__))
    torch._dynamo.reset()
    work = workload(trains)
    for _ in range(2):
        assert verify_workload(work, [COMPILE], budget_s=0.2).verdict != "failed"
    if trains:
        applied = with_fixes(work, [COMPILE])
    else:
        applied = replace(work, model=with_fixes(work.model, [COMPILE], work.inputs))
    calls = python_calls(applied.step)
    # Compiled code of the trials' copies would be asked first, by guards, at each call. (One entry;
    # none on either side where what other tests left makes Dynamo compile another frame.)
    assert len(_debug_get_cache_entry_list(Gated.forward.__code__)) == entries <= 1
    # A step of a program with settings enters two more functions, and no context.
    assert by_hand <= calls <= by_hand + 2 * trains
    torch._dynamo.reset()
