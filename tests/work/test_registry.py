from __future__ import annotations

from collections.abc import Iterator

import pytest

import gobrrr.work as work_room
from gobrrr.timeline.ops import OpCall
from gobrrr.work import (
    Work,
    formula_names,
    is_composite,
    register_work,
    registry,
    unregister_work,
    work_of,
)
from gobrrr.work.registry import add_formula

from .calls import tensor

MINE = "mine::attention"


@pytest.fixture
def registered() -> Iterator[None]:
    register_work(MINE, lambda call: Work(7.0, 0.0, 1, 2, 3, "float32", "contraction"))
    yield
    unregister_work(MINE)


def test_an_unknown_aten_operator_is_unknown() -> None:
    assert work_of(OpCall("aten::there_is_no_such_op", (tensor(4),))) is None


def test_a_custom_operator_moves_its_arguments_and_results() -> None:
    found = work_of(OpCall(MINE, (tensor(4), (tensor(2),), 3), (tensor(8),)))
    assert found is not None
    assert (found.flops, found.bytes_read, found.bytes_written) == (None, 24, 32)


def test_what_a_custom_operator_of_a_trace_wrote_is_unknown() -> None:
    found = work_of(OpCall(MINE, (tensor(4),)))
    assert found is not None
    assert (found.flops, found.bytes_read, found.bytes_written) == (None, 16, None)


@pytest.mark.parametrize(
    "name", ["MmBackward0", "autograd::engine::evaluate_function: MmBackward0", "my range"]
)
def test_marks_of_a_trace_are_not_operators(name: str) -> None:
    assert work_of(OpCall(name, (tensor(4),))) is None


@pytest.mark.usefixtures("registered")
def test_a_users_formula_is_used() -> None:
    found = work_of(OpCall(MINE, ()))
    assert found is not None
    assert found.flops == 7
    with pytest.raises(ValueError, match="registered already"):
        register_work(MINE, lambda call: None)


def test_a_users_formula_may_replace_a_built_in_one() -> None:
    register_work("aten::mm", lambda call: None)
    try:
        assert work_of(OpCall("aten::mm", (tensor(2, 3), tensor(3, 4)))) is None
    finally:
        unregister_work("aten::mm")
    assert work_of(OpCall("aten::mm", (tensor(2, 3), tensor(3, 4)))) is not None


def test_a_call_of_a_trace_is_counted_anew_where_its_formula_is_another() -> None:
    call = OpCall("aten::relu", (tensor(4),))
    built_in = work_of(call)
    assert work_of(call) is built_in
    register_work("aten::relu", lambda call: Work(5.0, 0.0, 1, 1, 1, "float32", "pointwise"))
    try:
        found = work_of(call)
        assert found is not None
        assert found.matrix_flops == 5.0
    finally:
        unregister_work("aten::relu")
    assert work_of(call) is built_in


def test_calls_of_traces_that_are_equal_but_for_the_type_of_a_number_are_two() -> None:
    whole, real = (OpCall("aten::arange", (value,)) for value in (4, 4.0))
    assert whole == real
    for call in (whole, real):
        assert work_of(call) == registry._known_work(call)


def test_what_is_kept_of_traces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MOST_OF_TRACES", 3)
    monkeypatch.setattr(registry, "_OF_TRACES", {})
    calls = [OpCall("aten::relu", (tensor(size),)) for size in range(1, 9)]
    for call in calls:
        assert work_of(call) == registry._known_work(call)
        assert len(registry._OF_TRACES) <= 3


def test_a_users_error_is_not_hidden() -> None:
    def broken(call: OpCall) -> Work:
        raise IndexError("mine")

    register_work(MINE, broken)
    try:
        with pytest.raises(IndexError, match="mine"):
            work_of(OpCall(MINE, ()))
    finally:
        unregister_work(MINE)


def test_names_must_be_qualified_and_unique() -> None:
    with pytest.raises(ValueError, match="qualified"):
        register_work("attention", lambda call: None)
    with pytest.raises(ValueError, match="already"):
        add_formula(("aten::mm",), lambda call: None)


def test_composites_are_told_apart() -> None:
    composites = {"linear", "matmul", "layer_norm", "conv2d", "scaled_dot_product_attention"}
    assert all(is_composite(f"aten::{name}") for name in composites)
    assert not any(is_composite(f"aten::{name}") for name in ("mm", "add", "convolution", "copy_"))


def test_everything_public_is_there() -> None:
    assert all(hasattr(work_room, name) for name in work_room.__all__)


def test_aliases_have_the_work_of_what_they_name() -> None:
    x = tensor(4, 8)
    for alias, name in (("multiply", "mul"), ("true_divide", "div"), ("greater", "gt")):
        assert work_of(OpCall(f"aten::{alias}", (x, x))) == work_of(OpCall(f"aten::{name}", (x, x)))
    first = work_of(OpCall("aten::multiply_", (x, x)))
    assert first == work_of(OpCall("aten::mul_", (x, x)))


@pytest.mark.torch
def test_what_torch_implements_by_calling_others_is_marked_composite() -> None:
    import torch

    # Recorded whole, or with a kernel of their own on a GPU; and sizes and flags. The fallback is a
    # loop of its own, which PyTorch 2.11 registers for all devices.
    whole = {"empty", "randn", "_fused_rms_norm", "native_channel_shuffle", "conj"}
    whole |= {"_grid_sampler_2d_cpu_fallback_backward"}
    key = "CompositeImplicitAutograd"
    kernels: dict[str, list[bool]] = {}
    for schema in torch._C._jit_get_all_schemas():
        returns_tensor = any("Tensor" in str(value.type) for value in schema.returns)
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        op = getattr(packet, schema.overload_name or "default", None)
        if op is None or not returns_tensor or not schema.name.startswith("aten::"):
            continue
        if not torch._C._dispatch_has_kernel(op.name()):
            continue
        has = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
        kernels.setdefault(schema.name.removeprefix("aten::"), []).append(has)
    names = {name for name, found in kernels.items() if all(found)}
    unmarked = {
        name
        for name in names
        if f"aten::{name}" in formula_names() and not is_composite(f"aten::{name}")
    }
    assert unmarked <= whole | {"requires_grad_", "retain_grad"}
    marked = {name for name, found in kernels.items() if not any(found)}
    marked = {name for name in marked if is_composite(f"aten::{name}")}
    assert marked <= {"_trilinear", "_scaled_dot_product_attention_math_for_mps"}
