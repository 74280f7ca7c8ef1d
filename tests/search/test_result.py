"""What ``gobrrr.fix`` hands over."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from gobrrr.diagnosis.storage import load  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.search.found import Found  # noqa: E402
from gobrrr.search.result import FixResult  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch
BY_NAME = {fix.name: fix for fix in FIXES}


def result(*names):
    found = Found(diagnosis=None, facts=None)
    return FixResult(found, tuple(BY_NAME[name] for name in names))


def test_a_model_comes_back_with_its_settings():
    model = torch.nn.Linear(4, 4)
    changed = result("inference_mode").apply(model)
    assert changed(torch.ones(1, 4)).is_inference()
    assert not torch.is_inference_mode_enabled()
    assert {id(p) for p in changed.parameters()} == {id(p) for p in model.parameters()}


def test_a_model_without_settings_comes_back_as_itself():
    model = torch.nn.Conv2d(3, 3, 1)
    changed = result("channels_last").apply(model)
    assert changed is model
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_model_stored_in_bf16_is_called_as_before():
    model = torch.nn.Linear(4, 4)
    changed = result("bf16_storage").apply(model)
    assert changed.weight.dtype == torch.bfloat16
    assert changed(torch.ones(1, 4)).dtype == torch.float32


def test_a_workload_comes_back_as_a_workload():
    model = torch.nn.Linear(4, 4)
    work = Workload(
        model, torch.ones(2, 4), loss=lambda y: y.sum(),
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
    )  # fmt: skip
    changed = result("fused_optimizer").apply(work)
    assert isinstance(changed, Workload)
    assert changed.optimizer.param_groups[0]["fused"]
    assert torch.isfinite(changed.step())


@pytest.mark.parametrize(
    "name", ["fused_optimizer", "foreach_optimizer", "set_to_none", "unused_gradients"]
)
def test_a_fix_of_the_optimizer_is_refused_for_a_module_alone(name):
    model = torch.nn.Conv2d(3, 3, 3)
    said = f"{name}: needs the optimizer.*gobrrr.Workload"
    with pytest.raises(InputError, match=said):
        result("channels_last", name).apply(model)
    # Nothing has been changed.
    assert not model.weight.is_contiguous(memory_format=torch.channels_last)
    with BY_NAME[name].apply(Workload(model)) as applied:
        assert applied.model is model
    assert model.weight.requires_grad


def test_a_step_of_the_users_own_has_its_optimizer_in_it():
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1)

    def step():
        optimizer.param_groups[0]["params"][0].sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    result("set_to_none").apply(step).step()
    assert optimizer.param_groups[0]["params"][0].grad is None


def test_a_fix_that_exports_is_given_what_the_model_was_tried_on():
    seen = []

    @contextmanager
    def export(work):
        seen.append(work.inputs)
        yield work

    model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    fix = replace(BY_NAME["aot_inductor"], apply=export)
    FixResult(Found(diagnosis=None, facts=None), (fix,), (x,)).apply(model)
    assert seen[0][0] is x


def test_a_float64_model_becomes_float32_and_is_called_as_before():
    model = torch.nn.Linear(4, 4).double()
    changed = result("float32").apply(model)
    assert changed(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float32


def test_nothing_found_changes_nothing():
    model = torch.nn.Linear(4, 4)
    assert result().apply(model) is model
    assert result().snippet == ""
    assert result().speedup == 1.0


def test_the_snippet_is_the_fixes_as_code():
    assert result("all_threads", "tf32").snippet.splitlines() == [
        "# Use all processors for each op",
        "torch.set_num_threads(len(os.sched_getaffinity(0)))",
        "# TF32 inside float32 matrix products",
        'torch.set_float32_matmul_precision("high")',
    ]


def test_a_result_prints_as_its_report(data):
    found = Found(diagnosis=load(data / "training.json"), facts=None)
    nothing = FixResult(found, ())
    assert str(nothing) == str(found.diagnosis)
    assert "per step" in str(nothing)
    assert nothing._repr_html_() == found.diagnosis._repr_html_()
    assert "<iframe srcdoc=" in nothing._repr_html_()
    assert repr(nothing) == "<FixResult: nothing is faster>"
    assert repr(FixResult(found, (BY_NAME["tf32"],))) == "<FixResult: tf32, 1.00x>"
