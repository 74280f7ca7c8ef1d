"""What a step of the user's own uses is seen: its modules, and where float64 comes from."""

import functools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils.parametrizations import weight_norm  # noqa: E402

from fixes.recorded_facts import considered, facts_of  # noqa: E402
from gobrrr.fixes.fix import RuledOut  # noqa: E402
from gobrrr.fixes.gathering.gather import with_program  # noqa: E402
from gobrrr.fixes.gathering.kept_tensors import with_kept_tensors  # noqa: E402
from gobrrr.fixes.gathering.reached_modules import reached_modules  # noqa: E402
from gobrrr.fixes.patterns.dataflow import flow_of  # noqa: E402
from gobrrr.fixes.programs import as_program  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch
GLOBAL = nn.Linear(2, 2)


def seen(target):
    """Facts of a program, as they are gathered of one that was given."""
    program = as_program(target)
    return with_kept_tensors(with_program(facts_of(program.step), program), program.step)


def test_modules_are_found_wherever_a_function_keeps_them():
    inside = nn.Sequential(nn.Linear(2, 2))

    class Holder:
        def __init__(self):
            self.parts = {"net": [inside]}

        def run(self):
            return self.parts

    head = inside[0]
    for step in (lambda: inside, lambda: (head, inside), Holder().run,
                 functools.partial(print, inside), inside.forward):  # fmt: skip
        assert reached_modules(step) == [inside]
    assert reached_modules(lambda: GLOBAL) == [GLOBAL]
    assert reached_modules(lambda: 1) == []


def test_of_what_can_be_reached_only_what_the_step_uses_counts():
    used, other, x = (
        nn.Linear(4, 4).double(),
        weight_norm(nn.Linear(4, 4)),
        torch.ones(2, 4).double(),
    )

    def step():
        return used(x) if x is not None else other(x)

    facts = seen(step)
    assert (facts.parameters, facts.parameter_dtypes, facts.parametrized) == (2, ("float64",), 0)
    assert facts.modules == ()  # none was given that could be changed


def test_a_weight_computed_at_each_call_is_seen_in_a_function_and_left_to_its_author():
    net, x = weight_norm(nn.Linear(4, 4)).eval(), torch.ones(2, 4)

    def step():
        with torch.no_grad():
            return net(x)

    found = considered("fixed_parametrizations", seen(step))
    assert "1 modules recompute their weight" in found.because
    assert "give (module, inputs)" in found.by_hand
    assert not considered("fixed_parametrizations", seen(Workload(net, x))).by_hand
    unknown = considered("fixed_parametrizations", seen(lambda: x * 2))
    assert "sees no module" in unknown.reason


def test_float64_is_found_whoever_holds_it():
    class Basis(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("basis", torch.ones(4, 4, dtype=torch.float64))

        def forward(self, x):
            return (x.double() @ self.basis).float()

    x, weight = torch.ones(2, 4), torch.ones(4, 4, dtype=torch.float64)
    model, net = Basis().eval(), nn.Linear(4, 4).double()

    given = considered("float32", seen(Workload(model, x)))
    assert "no parameter is in float64, but buffers are" in given.because
    assert not given.by_hand
    assert "give (module, inputs)" in considered("float32", seen(lambda: model(x))).by_hand
    assert "give (module, inputs)" in considered("float32", seen(lambda: net(x.double()))).by_hand

    plain = considered("float32", seen(lambda: torch.tanh(weight @ weight)))
    assert "no module" in plain.because
    assert "modules alone" in plain.by_hand
    assert "test_seen_modules.py" in plain.sources[0]
    assert "it begins with _to_copy" in considered("float32", seen(lambda: x.double() * 2)).because


def test_a_single_number_in_float64_makes_nothing_float64():
    factor, x = torch.tensor(2.0, dtype=torch.float64), torch.ones(4)
    assert isinstance(considered("float32", seen(lambda: x * factor)), RuledOut)


def test_buffers_that_change_outside_of_torch_or_are_replaced_are_not_fixed():
    class Moving(nn.Module):
        def __init__(self, kept):
            super().__init__()
            self.kept = kept
            self.register_buffer("place", torch.zeros(4))
            self.array = self.place.numpy()

        def forward(self):
            moved = self.place.exp()
            if not self.kept:
                self.place = self.place + 1.0
            elif self.kept == "array":
                self.array += 1.0
            return moved

    def constant(kept):
        facts = seen(Workload(Moving(kept).eval()))
        return [facts.ops[place].name for place in flow_of(facts).constant]

    assert constant("array") == []
    assert constant("") == []
    assert constant("still") == ["aten::exp"]


def test_facts_of_a_training_step_have_no_fixed_tensor():
    net, x = nn.Linear(4, 4), torch.ones(2, 4)
    program = as_program(lambda: net(x))
    facts = replace(facts_of(program.step), trains=True)
    assert with_program(facts, program).fixed_storages == frozenset()
