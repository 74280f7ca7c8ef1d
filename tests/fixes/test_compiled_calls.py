from dataclasses import replace

import pytest
from tests.fixes.facts import CEILINGS, facts, op, pointwise, product

from gobrrr.diagnosis.facts import OptimizerFact
from gobrrr.diagnosis.fusion.groups import find_groups
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.compilation.compile import compiled_overhead
from gobrrr.fixes.compilation.compiled_calls import (
    DISPATCH_S,
    Left,
    call_cost,
    host_scale,
    records_gradients,
)
from gobrrr.fixes.compilation.compiled_part import compiled_part, pieces

BY_NAME = {fix.name: fix for fix in FIXES}
# Host work as fast as where the constants were measured.
AS_THERE = {**CEILINGS, "host.dispatches": 1 / DISPATCH_S}


def overhead(given):
    part = compiled_part(given)
    return compiled_overhead(part, find_groups(part), pieces(given))


def test_a_call_without_gradients_enters_and_looks_at_what_python_looked_at():
    linear = product(module="0", host_s=90e-6, fixed_s=10e-6)
    cost = call_cost(facts([linear], ceilings=AS_THERE), [linear], 2, 3)
    # 55 us, and a fifth of 100 us in modules; the call's own 10 us and 1.5 us; 2 * 2.5 + 3 us.
    assert cost.enter_s == pytest.approx(75e-6)
    assert cost.libraries_s == pytest.approx(11.5e-6)
    assert cost.generated_s == pytest.approx(8e-6)
    assert cost.autograd_s == cost.gradients_s == 0.0
    assert cost.total_s == pytest.approx(94.5e-6)
    assert cost.sentence == (
        "entry and guards 75.0 µs, library calls 11.5 µs, generated kernels 8.00 µs"
    )


def test_training_records_runs_backward_and_hands_over_each_gradient():
    given = facts(
        trains=True, optimizers=(OptimizerFact("SGD", 10, 100),), ceilings=AS_THERE
    )  # fmt: skip
    cost = call_cost(given, [], 0, 0)
    assert cost.autograd_s == pytest.approx(196e-6)  # 70 + 10 * 2.6 + 100
    assert cost.gradients_s == pytest.approx(43e-6)  # 10 * 4.3
    # Nothing for the loss, which stays outside: 55 us to enter, and the two above.
    assert cost.total_s == pytest.approx(294e-6)
    # Parameters that no optimizer steps get gradients too.
    more = call_cost(replace(given, parameters=20), [], 0, 0)
    assert more.gradients_s == pytest.approx(86e-6)


def test_host_work_scales_with_the_machine_s_dispatch():
    assert host_scale(facts(ceilings={})) == 1.0
    slow = facts(ceilings={"host.dispatches": 1 / (2 * DISPATCH_S)})
    assert call_cost(slow, [], 0, 0).enter_s == pytest.approx(110e-6)
    # What was measured beside the step comes before the ceiling.
    assert host_scale(replace(slow, dispatch_s=3 * DISPATCH_S)) == pytest.approx(3.0)


def test_a_mode_without_guards_or_generated_python_does_not_pay_for_them():
    linear = product(fixed_s=10e-6)
    given = facts([linear], ceilings=AS_THERE)
    exported = call_cost(given, [linear], 2, 2, Left(guards=False, python=False))
    assert exported.enter_s == 0.0
    assert exported.libraries_s == pytest.approx(10e-6)  # the library's own
    assert exported.generated_s == pytest.approx(2e-6)  # the loops of two groups
    in_cpp = call_cost(given, [linear], 2, 2, Left(python=False))
    assert in_cpp.enter_s == pytest.approx(55e-6)


def test_inference_that_records_gradients_pays_for_it_compiled_too():
    linear = replace(product(), nodes=3)
    recorded = facts([linear], in_no_grad=False, parameters=2, ceilings=AS_THERE)
    assert records_gradients(recorded)
    assert call_cost(recorded, [], 0, 0).autograd_s == pytest.approx(75.2e-6)  # 70 + 2 * 2.6
    assert not records_gradients(replace(recorded, ops=(replace(linear, nodes=0),)))
    # Unknown is not recorded.
    assert not records_gradients(replace(recorded, ops=(replace(linear, nodes=None),)))


def test_the_optimizer_is_not_compiled():
    layer = [pointwise("aten::mul", [i], [i + 1], size=4e3, host_s=20e-6) for i in range(200)]
    update = [op("aten::add_", host_s=20e-6, fixed_s=10e-6, phase="optimizer") for _ in range(300)]
    leaves = {"overhead.python": 0.015}
    alone = BY_NAME["compile"].consider(facts(layer, 0.015, leaves, trains=True))
    behind = BY_NAME["compile"].consider(facts([*layer, *update], 0.015, leaves, trains=True))
    assert alone.expected_s == pytest.approx(behind.expected_s)


def test_a_gradient_that_is_kept_is_added_to_outside_the_graph():
    grown = pointwise("aten::add_", [1, 2], [1], phase="backward")
    made = [pointwise("aten::mul", [3], [4], phase="backward"),
            pointwise("aten::add_", [4, 3], [4], phase="backward")]  # fmt: skip
    leaves = {"overhead.dispatch": 60e-6}
    with_it = BY_NAME["compile"].consider(facts([grown, *made], 0.04, leaves, trains=True))
    without = BY_NAME["compile"].consider(facts(made, 0.04, leaves, trains=True))
    assert with_it.expected_s == pytest.approx(without.expected_s, abs=30e-6)


def test_matrix_times_vector_becomes_a_loop():
    rows = [
        op("aten::mv", kernel_s=1e-6, fixed_s=5e-6, host_s=5e-6, op_class="contraction",
               matrix_flops=8192.0, bytes_moved=16e3, shapes=((64, 62), (62,)), phase="forward")
        for _ in range(100)
    ]  # fmt: skip
    given = facts(rows, 1.1e-3, {"overhead.dispatch": 1e-3}, ceilings=AS_THERE)
    # 1 ms of overhead becomes one call (55 us) of one function (2.5 us) of 100 loops (1 us), which
    # take 1.2 times the 100 us, and 1.6 MB at 60 % of 100 GB/s.
    expected_s = 1e-3 - 157.5e-6 + 100e-6 - (120e-6 + 26.7e-6)
    assert BY_NAME["compile"].consider(given).expected_s == pytest.approx(expected_s, rel=0.001)


def test_on_a_cpu_everything_between_two_library_calls_is_one_generated_function():
    ops = []
    for layer in range(3):
        start = 10 * layer
        ops.append(product(reads=((start, 4e3),), writes=((start + 1, 4e3),), kernel_s=1e-6))
        # Two chains that have nothing in common.
        ops += [pointwise("aten::relu", [start + i], [start + i + 2], size=4e3) for i in (1, 5)]
    given = facts(ops, 1e-3, ceilings=AS_THERE)
    on_gpu = replace(given, device_kind="cuda")
    library_s = 3 * 1.5e-6
    alone_s = 55e-6 + library_s
    assert overhead(given)[1].total_s == pytest.approx(alone_s + 3 * 2.5e-6 + 6 * 1e-6)
    assert overhead(on_gpu)[1].total_s == pytest.approx(alone_s + 6 * 3.5e-6)


def test_inference_mode_spares_the_nodes_that_were_made():
    ops = [product(kernel_s=1e-6, nodes=n) for n in (3, 0, 1)]
    leaves = {"overhead.dispatch": 50e-6}
    given = facts(ops, 100e-6, leaves, in_no_grad=False, ceilings=AS_THERE)
    # 3 ops of 0.22 us, 4 nodes of 2.5 us.
    assert BY_NAME["inference_mode"].consider(given).expected_s == pytest.approx(10.66e-6)
    # Under no_grad there are none, however many were seen elsewhere.
    assert BY_NAME["inference_mode"].consider(replace(given, in_no_grad=True)).reason
    unknown = replace(given, ops=tuple(replace(made, nodes=None) for made in ops))
    found = BY_NAME["inference_mode"].consider(unknown)
    assert (found.low_s, found.high_s) == (0.0, pytest.approx(12.48e-6))  # 3 * (3 * 0.22 + 3.5)
    assert "up to 3 autograd nodes" in found.because


def test_a_mask_that_is_filled_in_may_hide_attention_from_the_compiler():
    product_ = product("aten::bmm", kernel_s=0.1, roof_s=0.02, shapes=((8, 512, 64), (8, 64, 512)))
    softmax = op("aten::_softmax", op_class="normalisation", kernel_s=0.1, roof_s=0.1,
                     shapes=((8, 512, 512),), phase="forward")  # fmt: skip
    compile_ = BY_NAME["compile"].consider
    plain = compile_(facts([product_, softmax, product_]))
    masked = replace(softmax, call=replace(softmax.call, name="aten::masked_fill"))
    filled = compile_(facts([product_, masked, softmax, product_]))
    assert plain.expected_s > 0.05
    assert "attention" in plain.because
    assert "attention" not in filled.because
    assert filled.high_s > filled.expected_s + 0.05
