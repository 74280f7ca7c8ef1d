"""What outlives a step is read, however it is kept; what has other numbers is no constant."""

import copy
import io
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from fixes.recorded_facts import EACH_S, considered, facts_of, names  # noqa: E402
from gobrrr.fixes.fix import RuledOut  # noqa: E402
from gobrrr.fixes.gathering.kept_tensors import with_kept_tensors  # noqa: E402
from gobrrr.fixes.gathering.seen_modules import storages_of  # noqa: E402
from gobrrr.fixes.patterns.dataflow import flow_of  # noqa: E402
from gobrrr.fixes.patterns.side_effects import acts_besides  # noqa: E402
from gobrrr.fixes.patterns.unneeded_work import unread_ops  # noqa: E402
from gobrrr.timeline.ops import OpCall, TensorSpec  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch


@dataclass
class Output:
    logits: torch.Tensor


class Runner:
    def __init__(self):
        self.last = None


X = torch.randn(8, 64)
KEPT = {
    "dataclass": lambda y: Output(y),
    "namespace": lambda y: SimpleNamespace(y=y),
    "list": lambda y: y.tolist(),
    "array": lambda y: y.numpy(),
    "copied array": lambda y: y.numpy().copy(),
    "one number": lambda y: float(y[0, 0]),
    "function": lambda y: lambda: y,
    "file": lambda y: torch.save(y, io.BytesIO()),
    "text": lambda y: str(y),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_what_is_given_in_any_form_is_read(kept):
    def step():
        with torch.no_grad():
            return kept(torch.tanh(X))

    assert isinstance(considered("unread_results", facts_of(step)), RuledOut)


def test_what_an_object_or_a_list_outside_keeps_is_read():
    runner, log = Runner(), []

    def kept():
        runner.last = torch.tanh(X)

    def logged():
        log[:] = [torch.exp(X)]

    def printed():
        log[:] = torch.cosh(X).sum(0).tolist()

    for step in (kept, logged, printed):
        assert isinstance(considered("unread_results", facts_of(step)), RuledOut)


def test_a_step_that_leaves_nothing_behind_computes_for_nobody():
    def step():
        torch.tanh(X)

    assert considered("unread_results", facts_of(step)).expected_s == pytest.approx(2 * EACH_S)


def test_a_sort_is_needed_where_all_of_its_values_are_kept():
    runner = Runner()

    def few():
        values = X.sort(-1).values
        return values[:, :5].sum()

    def all_kept():
        runner.last = X.sort(-1).values
        return runner.last[:, :5].sum()

    def first_returned():
        # Autograd keeps all values alive for the view, and nobody else does.
        return X.sort(-1).values[:, :5]

    def all_in_an_array():
        values = X.sort(-1).values
        return values.numpy(), values[:, :5]

    for step in (few, first_returned):
        assert considered("topk", facts_of(step)).expected_s > 0
    for step in (all_kept, all_in_an_array):
        assert isinstance(considered("topk", facts_of(step)), RuledOut)


def constants(facts):
    flow = flow_of(facts)
    return names(facts, flow.constant - flow.views)


def test_what_has_other_numbers_at_the_next_step_is_no_constant():
    runner = Runner()
    runner.last = 0

    def step():
        table = torch.arange(runner.last, runner.last + 8) / 3.0
        filled = torch.full_like(table, runner.last)
        runner.last += 8
        return table.sin() * filled * torch.ones(8).exp()

    assert constants(facts_of(step)) == ["ones", "exp"]


def test_of_one_recorded_step_no_number_is_known_to_stay():
    facts = facts_of(lambda: torch.arange(8) * X[0, :8])
    assert constants(facts) == ["arange"]
    once = replace(facts, ops=tuple(replace(op, varies=None) for op in facts.ops))
    assert constants(once) == []
    assert "one step" in considered("constants_each_step", once).reason


def test_numbers_that_the_host_read_of_data_may_be_in_what_follows():
    lengths = torch.tensor([3, 5])

    def item():
        before = torch.ones(4).exp()
        return torch.arange(int(lengths.max())), before

    def listed():
        before = torch.ones(4).exp()
        return torch.arange(max(lengths.tolist())), before

    def branched():
        # Of a truth, no number is made.
        return torch.arange(8) if (lengths > 2).all() else None

    for step in (item, listed):
        assert constants(facts_of(step)) == ["ones", "exp"]
    assert constants(facts_of(branched)) == ["arange"]


def test_a_number_that_was_another_in_another_step_is_not_in_what_stayed():
    total = torch.zeros(())

    def step():
        total.add_(1.0)
        float(total)
        return torch.arange(8)

    assert constants(facts_of(step)) == ["arange"]


def test_counting_by_indices_of_data_is_no_constant():
    labels = torch.tensor([2, 0, 2, 1])

    def step():
        counts = torch.zeros(3)
        for label in labels:
            counts[label] += 1
        return counts

    assert constants(facts_of(step)) == ["zeros"]
    assert isinstance(considered("constants_each_step", facts_of(step)), RuledOut)


def test_weights_that_the_step_itself_changes_are_not_fixed():
    ema, net = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    @torch.no_grad()
    def step():
        scaled = ema.weight * 2.0
        for old, new in zip(ema.parameters(), net.parameters()):
            old.lerp_(new, 0.1)
        return scaled

    assert constants(facts_of(step, ema)) == []


class Heads(torch.nn.Module):
    """A head that is trained, and another whose result goes to ``use``."""

    def __init__(self, use, other):
        super().__init__()
        self.trunk, self.head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)
        self.use, self.other = use, other

    def forward(self, x):
        z = self.trunk(x).relu()
        self.use(self.other(z))
        return self.head(z)


def trained(use, other=None, train=lambda y: y.square().sum().backward()):
    torch.manual_seed(0)
    model = Heads(use, other or torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        train(model(X))
        optimizer.step()

    return facts_of(step, trains=True)


def test_what_reaches_no_loss_is_unread_in_training():
    found = considered("unread_results", trained(lambda y: None))
    assert found.expected_s == pytest.approx(4 * EACH_S)  # addmm, tanh
    assert "neither the backward pass" in found.because
    assert "test_kept_tensors.py" in found.sources[0]


LOG, TOTAL = [], torch.zeros(64)


def bias_of(y):
    """The bias of the layer whose tanh it is."""
    return y.grad_fn.next_functions[0][0].next_functions[0][0].variable


READ_IN_TRAINING = {
    "printed": lambda y: str(y),
    "one number": lambda y: y.mean().item(),
    "decides": lambda y: bool((y > 0).any()),
    "kept": lambda y: LOG.append(y.detach()),
    "averaged": lambda y: TOTAL.lerp_(y.detach().mean(0), 0.1),
    "size": lambda y: y[y > 0].numel(),
    "loss of its own": lambda y: y.sum().backward(retain_graph=True),
    "loss without a number": lambda y: y.backward(torch.ones_like(y), retain_graph=True),
    "gradient": lambda y: torch.autograd.grad(y, bias_of(y), torch.ones_like(y), retain_graph=True),
}


@pytest.mark.parametrize("use", READ_IN_TRAINING.values(), ids=READ_IN_TRAINING)
def test_what_anyone_reads_in_training_is_read(use):
    assert isinstance(considered("unread_results", trained(use)), RuledOut)


def test_statistics_and_random_numbers_of_what_is_not_trained_count_as_read():
    def unread(last):
        other = torch.nn.Sequential(torch.nn.Linear(64, 64), last)
        ops = unread_ops(trained(lambda y: None, other))
        # (Room for what a GPU would keep for the backward pass is made here for nobody.)
        return [op.name for op in ops if op.name != "aten::empty"]

    assert unread(torch.nn.BatchNorm1d(64)) == []
    assert "aten::native_batch_norm" in unread(torch.nn.BatchNorm1d(64).eval())
    assert "aten::native_batch_norm" in unread(torch.nn.BatchNorm1d(64, track_running_stats=False))
    assert unread(torch.nn.RReLU()) == []
    assert "aten::bernoulli_" not in unread(torch.nn.Dropout())


def test_where_a_backward_pass_begins_at_an_edge_nothing_is_claimed():
    def train(y):
        torch.autograd.backward([torch.autograd.graph.get_gradient_edge(y.square().sum())])

    facts = trained(lambda y: None, train=train)
    assert facts.returned is None
    assert isinstance(considered("unread_results", facts), RuledOut)


def test_attention_without_dropout_draws_nothing():
    q = torch.randn(1, 1, 8, 16)

    def unread(dropout):
        call = OpCall(
            "aten::_scaled_dot_product_flash_attention", (None, None, None, dropout, False),
            (TensorSpec((2, 2), "float32"),),
        )  # fmt: skip
        return not acts_besides(call)

    def step():
        torch.nn.functional.scaled_dot_product_attention(q * 2.0, q, q)

    assert considered("unread_results", facts_of(step)).expected_s > 0
    assert (unread(0.0), unread(0.1)) == (True, False)


def test_sparse_results_are_followed():
    def step():
        return torch.sparse.mm(torch.tanh(X).relu().to_sparse(), X.t())

    assert isinstance(considered("unread_results", facts_of(step)), RuledOut)


def test_a_deep_copy_is_read():
    def step():
        return copy.deepcopy({"embedding": torch.tanh(X @ X.t())})

    ops = unread_ops(facts_of(step))
    # (What it makes room with is written over, or stands for other memory at once.)
    assert {op.name for op in ops} <= {"aten::empty", "aten::new_empty"}


@pytest.mark.parametrize(
    "fill",
    [
        lambda x, a: torch.sum(x, dim=0, out=a),
        lambda x, a: torch.pow(x[0], 2, out=a),
        lambda x, a: torch.max(x, dim=0, out=(a, torch.zeros(64, dtype=torch.long))),
        lambda x, a: torch.add(x[0], 1, out=a),
    ],
    ids=["sum", "pow", "max", "add"],
)
def test_what_is_written_into_a_given_tensor_is_no_constant(fill):
    data = [torch.randn(64, 64)]

    def step():
        data[0] = data[0] + 1
        room = torch.empty(64)
        fill(data[0], room)
        return room.exp()

    assert "aten::exp" not in constants(facts_of(step))


def test_buffers_too_large_to_be_copied_are_not_taken_for_fixed(monkeypatch):
    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.randn(64, 64))

        def forward(self, x):
            return x.mean() + torch.tanh(self.cache)

    model = Cached().eval()
    work = Workload(model, X)
    facts = replace(facts_of(work.step, model), workload=work)
    cache = storages_of([model.cache])
    assert with_kept_tensors(facts, work.step).fixed_storages == cache
    monkeypatch.setattr("gobrrr.fixes.gathering.kept_tensors._MOST_COPIED_BYTES", 64 * 64 * 4 - 1)
    assert with_kept_tensors(facts, work.step).fixed_storages == frozenset()
