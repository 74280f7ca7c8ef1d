"""What is constant, unread or only printed, in steps that were recorded op by op."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from fixes.recorded_facts import BY_NAME, EACH_S, considered, facts_of, names  # noqa: E402
from gobrrr.diagnosis.facts import LoaderFact, OptimizerFact  # noqa: E402
from gobrrr.diagnosis.fusion.groups import seconds_to_move  # noqa: E402
from gobrrr.fixes.attention.dropout import watching_attention  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.fix import RuledOut  # noqa: E402
from gobrrr.fixes.light import speed_of_light_with  # noqa: E402
from gobrrr.fixes.parametrizations import parametrized  # noqa: E402
from gobrrr.fixes.patterns.dataflow import cost_s, flow_of, only_for_the_host  # noqa: E402
from gobrrr.fixes.patterns.layout_copies import can_view  # noqa: E402
from gobrrr.fixes.patterns.training_by_hand import watching_kept_graphs  # noqa: E402
from gobrrr.live.watch.optimizer_facts import describe_optimizer  # noqa: E402
from gobrrr.observe.op_recorder import OpRecorder  # noqa: E402
from gobrrr.timeline.ops import TensorSpec  # noqa: E402
from gobrrr.timeline.quantities import time_text  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_table_of_numbers_is_constant_and_what_meets_the_input_is_not():
    x = torch.randn(8, 4)

    def step():
        table = torch.sin(torch.arange(8.0)[:, None] / 3.0)
        return x * table + torch.randn(8, 4)

    facts = facts_of(step)
    made = names(facts, flow_of(facts).constant - flow_of(facts).views)
    assert made == ["arange", "div", "sin"]
    found = considered("constants_each_step", facts)
    # Three ops of a millisecond and one of overhead each.
    assert found.expected_s == pytest.approx(6 * EACH_S)
    assert "test_dataflow.py" in found.sources[0]


def test_weights_are_constant_where_no_step_trains_them_whatever_the_mode():
    model = nn.Linear(4, 4, dtype=torch.float16).eval()
    x = torch.randn(2, 4)

    def step():
        with torch.no_grad():
            return functional.linear(x, model.weight.float())

    assert names_of_constants(step, model) == ["_to_copy"]
    assert names_of_constants(step, model.train()) == ["_to_copy"]
    assert names_of_constants(step, None) == []


def test_buffers_are_constant_where_their_own_part_is_not_in_training_mode():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)).eval()
    model[1].train()

    def step():
        with torch.no_grad():
            return model[0].running_mean.sin(), model[1].running_mean.cos()

    assert names_of_constants(step, model) == ["sin"]


def test_what_a_script_reads_after_its_step_is_not_guessed():
    facts = replace(facts_of(lambda: torch.rand(100).sort().values[:3]), returned=None)
    for name in ("topk", "unread_results"):
        assert "give a function or a workload" in considered(name, facts).reason


def test_where_nothing_is_known_to_be_constant_more_is_not_claimed():
    table, x = torch.rand(4), torch.rand(4)
    found = considered("constants_each_step", facts_of(lambda: x * table.half()))
    # The table may be another at each step, for all that is known of it.
    assert "unknown" in found.reason


def names_of_constants(step, module):
    facts = facts_of(step, module)
    flow = flow_of(facts)
    return names(facts, flow.constant - flow.views)


def test_a_tensor_of_python_numbers_is_data():
    values = iter(range(100))
    facts = facts_of(lambda: torch.tensor([next(values)]) * 2)
    assert not flow_of(facts).constant - flow_of(facts).views


def test_in_place_changes_of_a_constant_by_data_end_it():
    x = torch.randn(4)

    def step():
        y = torch.zeros(4)
        y.add_(x)
        return y * 2

    facts = facts_of(step)
    assert names(facts, flow_of(facts).constant) == ["zeros"]


def test_what_cannot_be_kept_is_no_constant_to_keep():
    x = torch.randn(4, requires_grad=True)

    def step():
        total = torch.zeros(4)
        total.add_(x.detach())
        # The ``ones_like`` of its loss is ``backward``'s own.
        (x * total).sum().backward()
        x.grad = None

    facts = facts_of(step, trains=True)
    assert {"zeros", "ones_like"} <= set(names(facts, flow_of(facts).constant))
    assert isinstance(considered("constants_each_step", facts), RuledOut)


def test_what_python_did_before_a_constant_is_not_saved_with_it():
    x = torch.randn(8, 4)
    facts = facts_of(lambda: x * torch.full((8, 4), 3.0) + x)
    ops = tuple(replace(op, host_s=50 * EACH_S) if op.name == "aten::full" else op
                for op in facts.ops)  # fmt: skip
    found = considered("constants_each_step", replace(facts, ops=ops, step_s=56 * EACH_S))
    # Its kernel, and the overhead that each of the others has.
    assert found.expected_s == pytest.approx(2 * EACH_S)


def test_what_is_neither_returned_nor_read_is_unread():
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)

    def step():
        with torch.no_grad():
            y = model(x)
            torch.exp(torch.tanh(y))
            return torch.stack([row * 2 for row in y])

    found = considered("unread_results", facts_of(step, model))
    assert found.expected_s == pytest.approx(4 * EACH_S)
    assert "2 ops" in found.because


def test_a_compiler_is_expected_to_drop_what_is_unread():
    x, w = torch.randn(8, 8), torch.randn(8, 8)

    def step():
        torch.mm(x, w)
        return x * 2

    facts = facts_of(step, has_compiler=True)
    found = considered("compile", facts)
    assert f"drops results that nothing reads: {time_text(EACH_S)}" in found.because


def test_what_a_compiler_drops_bounds_no_compiled_step():
    x, w = torch.randn(8, 8), torch.randn(8, 8)

    def step():
        torch.mm(x, w)
        return torch.mm(torch.exp(x * 2), torch.eye(8))

    facts = facts_of(step, has_compiler=True)
    facts = replace(facts, ops=tuple(replace(op, roof_s=1.0) for op in facts.ops))
    by_name = {fix.name: fix for fix in FIXES}
    assert speed_of_light_with(facts, ()) == pytest.approx(len(facts.ops))
    compiled = speed_of_light_with(facts, (by_name["compile"],))
    # One product is unread and the other's matrix constant; the chain is one kernel, which only
    # moves.
    assert compiled == pytest.approx(1.0 + seconds_to_move(facts, 2 * 8 * 8 * 4))


def test_what_is_kept_outside_is_read():
    x, kept = torch.randn(4), torch.zeros(4)

    def step():
        kept.copy_(torch.tanh(x))
        return x * 2

    assert isinstance(considered("unread_results", facts_of(step)), RuledOut)


def test_a_sort_of_which_little_is_read_is_a_top_k():
    x = torch.randn(3, 1000)
    few = considered("topk", facts_of(lambda: torch.sort(x)[0][:, :5]))
    assert few.expected_s == pytest.approx(0.85 * 2 * EACH_S)
    assert isinstance(considered("topk", facts_of(lambda: torch.sort(x)[0])), RuledOut)


def test_copies_of_views_that_a_product_could_read():
    x, w = torch.randn(6, 3, 4), torch.randn(3, 4, 5)
    copied = considered("layout_copies", facts_of(lambda: x.transpose(0, 1).contiguous() @ w))
    assert "1 copies" in copied.because
    # A reshape that merges what a transpose has pulled apart needs its copy.
    merged = facts_of(lambda: x.transpose(0, 1).reshape(18, 4) @ w[0])
    assert isinstance(considered("layout_copies", merged), RuledOut)


def test_what_can_be_viewed_is_what_torch_can_view():
    for shape, order, new in (((6, 3, 4), (1, 0, 2), (3, 24)), ((6, 3, 4), (1, 0, 2), (18, 4)),
                              ((2, 1, 4), (1, 0, 2), (8,)), ((4, 6), (0, 1), (2, 12)),
                              ((4, 6), (1, 0), (6, 2, 2)), ((4, 6), (1, 0), (24,))):  # fmt: skip
        view = torch.empty(shape).permute(order)
        try:
            view.view(new)
            possible = True
        except RuntimeError:
            possible = False
        spec = TensorSpec(tuple(view.shape), "float32", tuple(view.stride()))
        assert can_view(spec, new) == possible, (shape, order, new)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(10))

    def forward(self, x, recurrent):
        h = c = x.new_zeros(2, 5)
        for t in range(10):
            if recurrent:
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = torch.tanh(self.layers[t](h))
        return h


def test_a_cell_in_a_loop_is_a_layer_and_layers_in_a_loop_are_none():
    model, x = Cell().eval(), torch.randn(2, 10, 3)
    work = {"aten::addmm": 100.0}

    def of(recurrent):
        with torch.no_grad():
            facts = facts_of(lambda: model(x, recurrent), model, modules=("LSTMCell",))
        ops = tuple(
            replace(op, work=_product_work()) if op.name in work else op for op in facts.ops
        )
        return considered("fused_rnn", replace(facts, ops=ops))

    assert "10 times" in of(True).because
    assert isinstance(of(False), RuledOut)


def _product_work():
    from gobrrr.work.estimate import Work

    return Work(100.0, 0.0, 10, 10, 20, "float32", "contraction")


def test_parameters_updated_one_by_one_and_values_that_are_only_printed():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))
    x = torch.randn(2, 3)

    def step():
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad.norm().item()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.1)

    facts = facts_of(step, trains=True)
    printed = names(facts, only_for_the_host(facts, flow_of(facts)))
    assert set(printed) == {"linalg_vector_norm", "_local_scalar_dense"}
    assert "values that are only read" in considered("remove_syncs", facts).because
    by_hand = considered("optimizer_by_hand", facts)
    # 12 products and 12 subtractions.
    assert "24 ops update 12 parameters" in by_hand.because
    assert isinstance(considered("vectorise_loop", facts), RuledOut)
    own = replace(facts, optimizers=(OptimizerFact("SGD", 12, 72),))
    assert "torch's own" in considered("optimizer_by_hand", own).reason


def test_parameters_are_counted_whatever_their_update_computes_besides():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))
    momenta = [torch.zeros_like(p) for p in model.parameters()]
    x = torch.randn(2, 3)

    def step(way="in place"):
        model.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for p, m in zip(model.parameters(), momenta):
                m.copy_(0.9 * m + 0.1 * p.grad)
                if way == "in place":
                    p -= 0.01 * m / (m.square().sqrt() + 1.0)
                elif way == "other data":
                    p.data = p - 0.01 * m
                else:
                    p.set_(p - 0.01 * m)

    because = considered("optimizer_by_hand", facts_of(step, trains=True)).because
    assert "update 12 parameters one by one" in because
    for way in ("other data", "other memory"):
        new = considered("optimizer_by_hand", facts_of(lambda way=way: step(way), trains=True))
        assert "ops update tensors one by one" in new.because


def test_gradients_are_filled_with_zeros_by_whatever_clears_them():
    model, x = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6))), torch.randn(2, 3)

    def by_model():
        model.zero_grad(set_to_none=False)
        model(x).square().mean().backward()

    def by_hand():
        for p in model.parameters():
            p.grad.zero_()
        model(x).square().mean().backward()

    def to_none():
        model.zero_grad()
        zeros = torch.empty(3, 3).zero_()
        (model(x) + zeros.sum()).square().mean().backward()

    for step in (by_model, by_hand):
        # 12 gradients: each filled and half of the additions saved.
        found = considered("set_to_none", facts_of(step, trains=True))
        assert found.expected_s == pytest.approx(12 * 1.5 * 2 * EACH_S)
    assert isinstance(considered("set_to_none", facts_of(to_none, trains=True)), RuledOut)
    with BY_NAME["set_to_none"].in_script():
        by_model()
        model.zero_grad(set_to_none=False)
    assert model[0].weight.grad is None


def test_what_an_optimizer_reads_of_itself_is_not_logged():
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    optimizer = torch.optim.NAdam(model.parameters(), foreach=False)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    facts = facts_of(step, trains=True)
    assert "aten::_local_scalar_dense" in {op.name for op in facts.ops}
    assert not only_for_the_host(facts, flow_of(facts))


def test_a_graph_that_is_kept_for_a_second_backward_pass_is_seen_with_its_line():
    x = torch.randn(3, requires_grad=True)

    def step():
        y = torch.tanh(x)
        y.sum().backward(retain_graph=True)
        y.square().sum().backward()

    with watching_kept_graphs() as lines:
        step()
    assert len(lines) == 1
    assert "test_dataflow.py" in lines[0]
    facts = facts_of(step, trains=True, graphs_kept=tuple(lines))
    assert considered("one_backward", facts).expected_s > 0
    with watching_kept_graphs() as lines:
        torch.tanh(x).sum().backward()
    assert not lines


def test_attention_that_is_fused_already_is_told_about_its_dropout():
    q = torch.randn(2, 2, 16, 8)

    def step():
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1)

    with watching_attention() as calls:
        step()
    facts = facts_of(step, attention_calls=tuple(calls))
    assert "called already" in considered("fused_attention", facts).reason
    assert "have dropout" in considered("attention_dropout", facts).because


def test_attention_on_rows_that_are_not_contiguous_is_fused_once_they_are():
    q = torch.randn(2, 2, 8, 64).transpose(-1, -2)

    def step():
        return functional.scaled_dot_product_attention(q, q, q)

    with watching_attention() as calls:
        step()
    facts = facts_of(step, attention_calls=tuple(calls))
    assert "(see attention_layout)" in considered("fused_attention", facts).reason
    assert "not contiguous in its last dimension" in considered("attention_layout", facts).because
    assert "with dropout" in considered("attention_dropout", facts).reason
    fix = BY_NAME["attention_layout"]
    before, expected = fix.changes_made(), step()
    with fix.in_script(), OpRecorder() as recorder:
        found = step()
    assert fix.changes_made() == before + 1
    assert torch.allclose(found, expected, atol=1e-6)
    names = {op.call.name for op in recorder.ops}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    with watching_attention() as calls:
        functional.scaled_dot_product_attention(*[q.contiguous()] * 3)
        functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
    assert [call.strided for call in calls] == [False, False]


def test_threads_that_share_the_processors_with_loader_workers_are_too_many():
    x = torch.randn(4)
    facts = facts_of(lambda: x * 2, threads=2, processors=2)
    facts = replace(facts, leaves=facts.leaves | {"compute.vector.roof": facts.step_s})
    crowded = replace(facts, loaders=(LoaderFact(2, False),))
    assert "2 loader workers share 2" in considered("one_thread", crowded).because


def test_optimizers_that_move_only_what_has_a_gradient_take_sparse_ones():
    p = [nn.Parameter(torch.ones(2))]
    assert describe_optimizer(torch.optim.SGD(p, 0.1)).takes_sparse
    assert not describe_optimizer(torch.optim.SGD(p, 0.1, momentum=0.9)).takes_sparse
    assert not describe_optimizer(torch.optim.Adam(p)).takes_sparse
    assert describe_optimizer(torch.optim.Adam(p)).of_torch


def test_modules_that_compute_their_weight_are_counted():
    assert parametrized(parametrizations.weight_norm(nn.Linear(2, 2))) == 1
    assert parametrized(torch.nn.utils.spectral_norm(nn.Linear(2, 2))) == 1
    assert parametrized(nn.Linear(2, 2)) == 0


def test_what_puts_the_slices_together_again_goes_with_their_loop():
    x = torch.randn(12, 4)

    def step():
        rows = [torch.exp(row) for row in x]
        return torch.stack(rows)

    facts = facts_of(step)
    facts = replace(facts, leaves={"overhead.dispatch": 1.0})
    (gather,) = [op for op in facts.ops if op.name in ("aten::stack", "aten::cat")]
    found = considered("vectorise_loop", facts)
    alone = tuple(op for op in facts.ops if op is not gather)
    without = considered("vectorise_loop", replace(facts, ops=alone))
    assert found.expected_s - without.expected_s == pytest.approx(cost_s(gather))


def test_what_a_function_returns_is_not_read_for_nothing():
    x, y = torch.randn(4, 4), torch.randn(4, 4)

    def logs():
        print(f"{(x * y).square().mean().item():.3f}", end="")
        return x + y

    def returns():
        return x + y, {"loss": (x * y).square().mean().item()}

    def returns_percent():
        return x + y, [100 * (x * y).square().mean().item()]

    def returns_object():
        return SimpleNamespace(sum=x + y, loss=(x * y).square().mean().item())

    def returns_text():
        return x + y, f"{(x * y).square().mean().item():.3f}"

    def decides():
        if (x * y).square().mean() > 0:
            return x + y
        return x

    assert "values that are only read back" in considered("remove_syncs", facts_of(logs)).because
    for step in (returns, returns_percent, returns_object, returns_text, decides):
        assert isinstance(considered("remove_syncs", facts_of(step)), RuledOut)


def test_values_that_are_all_a_step_computes_are_what_it_is_for():
    x = torch.randn(4, 4)

    def step():
        print(x.square().mean().item(), end="")

    facts = facts_of(step)
    assert isinstance(considered("remove_syncs", facts), RuledOut)
    assert not isinstance(considered("remove_syncs", replace(facts, trains=True)), RuledOut)
    # What the step returns was not seen.
    unseen = replace(facts, trains=True, returned=None)
    assert isinstance(considered("remove_syncs", unseen), RuledOut)


def test_what_a_library_reads_is_not_the_users_to_change():
    x, y = torch.randn(4, 4), torch.randn(4, 4)

    def step():
        x.square().mean().item()
        return x + y

    facts = facts_of(step)
    assert not isinstance(considered("remove_syncs", facts), RuledOut)
    there = "package/model.py:9 in forward, from train.py:3 in main"
    ops = tuple(replace(op, source=there) for op in facts.ops)
    assert isinstance(considered("remove_syncs", replace(facts, ops=ops)), RuledOut)
