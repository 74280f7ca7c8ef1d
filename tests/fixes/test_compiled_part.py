"""What a compiler sees: no recurrent layers, each module once, tensors trained by hand."""

from dataclasses import replace

import pytest
from tests.fixes.facts import CEILINGS, facts, op, pointwise, product

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.compilation.compiled_calls import DISPATCH_S, GUARDS, call_cost
from gobrrr.fixes.compilation.compiled_part import (
    compiled_part,
    in_recurrent_layer,
    pieces,
    trained_tensors,
)
from gobrrr.fixes.fix import RuledOut

BY_NAME = {fix.name: fix for fix in FIXES}
AS_THERE = {**CEILINGS, "host.dispatches": 1 / DISPATCH_S}


def gates(module, **more):
    return [
        pointwise(name, [i], [i + 1], size=4e3, module=module, host_s=1e-3, **more)
        for i, name in enumerate(("aten::sigmoid", "aten::tanh"))
    ]


def test_recurrent_layers_are_told_by_their_class_or_their_op():
    given = facts(module_classes={"encoder.rnn": "GRU", "head": "Linear"})
    assert in_recurrent_layer(given, gates("encoder.rnn")[0])
    assert in_recurrent_layer(given, gates("LSTM")[0])
    assert in_recurrent_layer(given, op("aten::mkldnn_rnn_layer"))
    assert not in_recurrent_layer(given, gates("head")[0])
    # A cell is traced as any other module is.
    assert not in_recurrent_layer(given, gates("LSTMCell")[0])


def test_a_compiler_leaves_recurrent_layers_alone_and_an_export_does_not():
    given = facts([*gates("GRU"), product(module="head")], 1.0)
    assert [done.module for done in compiled_part(given).ops] == ["head"]
    assert len(compiled_part(given, recurrent=True).ops) == 3
    assert pieces(given) == 1
    split = facts([product(module="embed"), *gates("GRU"), product(module="head")])
    assert pieces(split) == 2


def test_a_program_of_recurrent_layers_alone_has_nothing_to_compile():
    given = facts(gates("LSTM"), 2.1e-3, {"overhead.dispatch": 2e-3})
    for name in ("compile", "compile_max_autotune", "compile_cpp_wrapper"):
        outcome = BY_NAME[name].consider(given)
        assert isinstance(outcome, RuledOut)
        assert "recurrent layers" in outcome.reason
    # The same ops in a module of the user's own are worth a trial.
    other = replace(given, ops=tuple(gates("Mine")))
    assert BY_NAME["compile"].consider(other).expected_s > 0


def test_a_module_that_is_called_often_is_looked_at_once():
    cell = [product(module="cell", host_s=50e-6, fixed_s=0.0), *(
        op(name, module="cell", host_s=25e-6, phase="forward") for name in ("a::b", "a::b")
    )]  # fmt: skip
    once = call_cost(facts(cell, ceilings=AS_THERE), [], 0, 0).enter_s
    often = call_cost(facts(cell * 60, ceilings=AS_THERE), [], 0, 0).enter_s
    assert once == pytest.approx(55e-6 + GUARDS * 100e-6)
    assert often == pytest.approx(once)
    # Without order the rows are sums.
    rows = facts(cell * 60, ceilings=AS_THERE, in_order=False)
    assert call_cost(rows, [], 0, 0).enter_s == pytest.approx(55e-6 + GUARDS * 6e-3)


def test_each_graph_that_a_recurrent_layer_leaves_is_entered():
    given = facts([product()], ceilings=AS_THERE)
    assert call_cost(given, [], 0, 0, broken=3).enter_s == pytest.approx(165e-6)


def test_tensors_trained_by_hand_are_counted():
    forward = [pointwise("aten::mul", [i, 100], [200 + i]) for i in (1, 2)]
    backward = pointwise("aten::mul", [200, 201], [300], phase="backward")
    update = [
        pointwise("aten::sub_", [i, 300], [i], phase="other") for i in (1, 2)
    ]  # fmt: skip
    # A running sum that the forward pass does not read is no parameter.
    total = pointwise("aten::add_", [400, 300], [400], phase="other")
    given = facts([*forward, backward, *update, total], trains=True, ceilings=AS_THERE)
    assert trained_tensors(given) == 2
    assert call_cost(given, [], 0, 0).gradients_s == pytest.approx(2 * 4.3e-6)
    together = op("aten::_foreach_sub_", reads=((1, 4e3), (2, 4e3), (300, 4e3)), phase="other")
    assert trained_tensors(facts([*forward, backward, together], trains=True)) == 2
    assert trained_tensors(facts([*forward, *update])) == 0
    assert trained_tensors(replace(given, in_order=False)) == 0
