"""Loops over slices, siblings and time steps, and what a larger batch is left with."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from fixes.recorded_facts import EACH_S, considered, facts_of  # noqa: E402
from gobrrr.fixes.fix import RuledOut  # noqa: E402
from gobrrr.fixes.patterns.loops import VECTORISE_LOOP, loops_over_slices, repeated_products  # noqa: E402
from gobrrr.fixes.patterns.recurrence import cells_of  # noqa: E402
from gobrrr.work import work_of  # noqa: E402

pytestmark = pytest.mark.torch
STEPS, WIDTH = 12, 5


class Recurrence(nn.Module):
    """One turn of a loop over time, written by hand: ``turn`` says which."""

    def __init__(self, turn, inputs=3):
        super().__init__()
        self.turn = turn
        self.x, self.h = nn.Linear(inputs, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.both = nn.Linear(inputs + WIDTH, 4 * WIDTH)
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.cell = nn.RNNCell(inputs, WIDTH)
        self.many = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(STEPS))

    def forward(self, x):
        h = c = x.new_zeros(2, WIDTH)
        found = []
        for t in range(STEPS):
            h, c = getattr(self, self.turn)(x[:, t], h, c, t)
            found.append(h)
        return torch.stack(found, 1)

    def gru(self, x, h, c, t):
        xr, xz, xn = self.x(x).chunk(3, -1)
        hr, hz, hn = self.h(h).chunk(3, -1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + r * hn).tanh()
        return n + z * (h - n), c

    def lstm(self, x, h, c, t):
        i, f, o, g = self.both(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def rnn(self, x, h, c, t):
        return self.cell(x, h), c

    def reset_before_the_product(self, x, h, c, t):
        r, z = (self.one(h) + x[:, :1]).sigmoid(), (self.two(h) + x[:, :1]).sigmoid()
        n = self.one(r * h).tanh()
        return n + z * (h - n), c

    def two_layers_deep(self, x, h, c, t):
        return torch.tanh(self.two(self.one(h) + x[:, :1])), c

    def leaking(self, x, h, c, t):
        return h + 0.1 * torch.tanh(self.one(h) + self.x(x)[:, :WIDTH]), c

    def with_a_shortcut(self, x, h, c, t):
        return h + torch.tanh(self.one(h) + x[:, :1]), c

    def with_weights_of_its_own(self, x, h, c, t):
        return torch.tanh(self.many[t](h)), c

    def normalised(self, x, h, c, t):
        return torch.tanh(nn.functional.layer_norm(self.one(h), (WIDTH,))), c


def recurring(turn):
    model, x = Recurrence(turn).eval(), torch.randn(2, STEPS, 3)
    with torch.no_grad():
        return facts_of(lambda: model(x), model)


@pytest.mark.parametrize(("turn", "layer"), [("gru", "GRU"), ("lstm", "LSTM"), ("rnn", "RNN")])
def test_a_cell_by_hand_is_told_by_its_flow_and_its_gates(turn, layer):
    facts = recurring(turn)
    assert {(cell.layer, cell.steps) for cell in cells_of(facts)} == {(layer, STEPS)}
    found = considered("fused_rnn", facts)
    assert f"{STEPS} times" in found.because
    assert f"nn.{layer}" in found.because
    assert "test_loops.py" in found.sources[0]
    # Its products need each other, and those of the inputs are in the layer too.
    assert isinstance(considered("vectorise_loop", facts), RuledOut)


def test_a_cell_that_is_trained_is_one_too():
    model, x = Recurrence("gru"), torch.randn(2, STEPS, 3)
    facts = facts_of(lambda: model(x).square().mean().backward(), trains=True)
    assert {cell.layer for cell in cells_of(facts)} == {"GRU"}


@pytest.mark.parametrize(
    "turn",
    ["reset_before_the_product", "two_layers_deep", "leaking", "with_a_shortcut",
     "with_weights_of_its_own", "normalised"],
)  # fmt: skip
def test_what_no_layer_of_torch_computes_is_no_cell(turn):
    assert isinstance(considered("fused_rnn", recurring(turn)), RuledOut)


def test_layers_one_after_the_other_are_cells_each():
    cells = [(torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)) for _ in range(2)]
    x = torch.randn(STEPS, 2, WIDTH)

    def step():
        sequence = list(x)
        for of_input, of_state in cells:
            h, made = torch.zeros(2, WIDTH), []
            for row in sequence:
                h = torch.tanh(row @ of_input + h @ of_state)
                made.append(h)
            sequence = made
        return torch.stack(sequence)

    facts = facts_of(step)
    assert [(cell.layer, cell.steps) for cell in cells_of(facts)] == [("RNN", STEPS)] * 2
    assert f"{2 * STEPS} times" in considered("fused_rnn", facts).because


def test_a_layer_over_the_sequence_is_what_it_should_be():
    model, x = nn.Sequential(nn.GRU(3, WIDTH, batch_first=True)), torch.randn(2, STEPS, 3)
    with torch.no_grad():
        facts = facts_of(lambda: model(x), model, module_classes={"0": "GRU"})
    assert not cells_of(facts)


def test_of_a_recurrence_only_what_needs_no_state_could_be_batched():
    facts = replace(recurring("leaking"), leaves={"overhead.dispatch": 1.0})
    found = considered("vectorise_loop", facts)
    # The products with the inputs, which are on a line of six ops beside its views: two products,
    # two additions, tanh and a multiplication.
    assert f"{STEPS} times" in found.because
    (line,) = found.sources
    # With the slice of the input that the loop takes for it.
    ops = [op for op in facts.ops if op.source == line or op.name == "aten::select"]
    host_s = sum(op.host_s for op in ops)
    assert found.expected_s == pytest.approx(host_s / 6 * (1 - 1 / STEPS))


def test_views_in_a_loop_are_no_op_that_could_be_batched():
    x = torch.randn(STEPS, 4)

    def step():
        total = torch.zeros(4)
        for row in range(STEPS):
            total = total + x[row]
        return total

    assert isinstance(considered("vectorise_loop", facts_of(step)), RuledOut)


def test_a_line_of_views_goes_with_the_op_that_reads_them():
    x = torch.randn(STEPS, 4)

    def step():
        found = []
        for row in range(STEPS):
            one = x[row]
            found.append(torch.exp(one))
        return torch.cat(found)

    facts = replace(facts_of(step), leaves={"overhead.dispatch": 1.0})
    found = considered("vectorise_loop", facts)
    assert found.expected_s == pytest.approx((2 * STEPS - 2) * EACH_S + 2 * EACH_S)


def test_samples_that_are_vectors_are_called_one_by_one_as_others_are():
    # A layer makes of a vector a matrix of one row, and of the result a vector again.
    model, xs = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(STEPS, 6)

    def products(step):
        facts = facts_of(step, model)
        return repeated_products(
            replace(facts, ops=tuple(replace(op, work=work_of(op.call)) for op in facts.ops))
        )

    loops = products(lambda: torch.stack([model(x) for x in xs]))
    assert [len(places) for places in loops] == [STEPS, STEPS]

    def chain():
        h = xs[0]
        for _ in range(STEPS):
            h = h + model(h).sum()
        return h

    assert products(chain) == []


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        return torch.softmax(self.layer(x), -1)


def test_equal_heads_that_are_modules_of_their_own_are_a_loop_and_layers_are_none():
    heads, x = nn.ModuleList(Head() for _ in range(STEPS)), torch.randn(3, 6)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(STEPS)))
    model = nn.ModuleDict({"heads": heads, "layers": layers})

    def step():
        return torch.cat([head(x) for head in model["heads"]], -1)

    with torch.no_grad():
        found = considered("vectorise_loop", replace(facts_of(step, model), leaves={"overhead": 1}))
        chain = considered("vectorise_loop", facts_of(lambda: model["layers"](x), model))
    assert f"{STEPS} times" in found.because
    assert "in forward" in found.sources[0]
    assert isinstance(chain, RuledOut)


def test_a_larger_batch_is_left_with_what_nothing_more_specific_explains():
    x = torch.randn(STEPS, 4)
    facts = replace(facts_of(lambda: torch.stack([torch.exp(row) for row in x])), step_s=0.1)
    facts = replace(facts, leaves={"overhead.dispatch": 0.05})
    specific = VECTORISE_LOOP.consider(facts)
    found = considered("larger_batch", facts)
    assert found.expected_s == pytest.approx((0.05 - specific.expected_s) / 2)
    assert "beside what vectorise_loop can save" in found.because


def test_an_optimizer_by_hand_does_not_grow_with_the_batch_either():
    model, x = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6))), torch.randn(2, 3)

    def step():
        model.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.1)

    facts = replace(facts_of(step, trains=True), leaves={"overhead.dispatch": 1.0})
    # Two ops for each of 12 tensors, a millisecond each.
    assert "24.0 ms of optimizer kernels" in considered("larger_batch", facts).because


X = torch.randn(8, 8)


def by_its_maximum():
    factor, found = 1.0, []
    for _ in range(STEPS):
        found.append(torch.cos(X * factor))
        factor = found[-1].max().item() * 0.5 + 0.1
    return torch.stack(found)


def by_a_list():
    row, found = X[0], []
    for _ in range(STEPS):
        found.append(torch.cos(X * row))
        row = torch.tensor(found[-1][0].tolist())
    return torch.stack(found)


def into_one_buffer():
    sums, now, found = torch.zeros(8), X, []
    for _ in range(STEPS):
        torch.sum(now, dim=0, out=sums)
        now = torch.cos(X * sums)
        found.append(now)
    return torch.stack(found)


def by_the_place_of_the_best():
    now, found = X[0], []
    for _ in range(STEPS):
        found.append(torch.cos(X * now))
        now = X[(found[-1].sum(1).argmax().item() * 3 + len(found)) % 8]
    return torch.stack(found)


@pytest.mark.parametrize(
    "step", [by_its_maximum, by_a_list, into_one_buffer, by_the_place_of_the_best]
)
def test_what_a_turn_learns_of_the_one_before_orders_them(step):
    found = considered("vectorise_loop", replace(facts_of(step), leaves={"overhead": 1}))
    assert isinstance(found, RuledOut)


def test_a_loop_that_logs_is_a_loop_all_the_same():
    log = []

    def step():
        found = []
        for row in X:
            for turn in range(2):
                found.append(torch.cos(X * row) * 2.0)
                log.append(found[-1][turn].max().item())
        return torch.stack(found)

    found = considered("vectorise_loop", replace(facts_of(step), leaves={"overhead": 1}))
    assert not isinstance(found, RuledOut)


def normalised(batch):
    out = []
    for image in batch:
        image = (image - image.mean()) / (image.std() + 1e-5)
        if torch.rand(()) < 0.5:
            image = image.flip(1)
        out.append(image)
    return torch.stack(out)


def smoothed(batch):
    out = [batch[0]]
    for image in batch[1:]:
        out.append((0.9 * out[-1] + 0.1 * image).clamp(-3, 3))
    return torch.stack(out)


def test_turns_that_differ_by_a_branch_are_turns_of_one_loop():
    torch.manual_seed(0)
    batch = torch.randn(32, 4, 5)
    (found,) = loops_over_slices(facts_of(lambda: normalised(batch)))
    assert found.turns == 32 and len({line.split(":")[1] for line in found.lines}) == 3
    # 8 ops in each turn, and one in about half of them.
    assert 32 * 8 < len(found.places) < 32 * 9
    # Tensors of a model's are no slices of one.
    averages, weights = ([torch.ones(3, 4) for _ in range(32)] for _ in range(2))

    def average():
        for one, other in zip(averages, weights):
            one.mul_(0.9).add_(other.sin(), alpha=0.1)

    assert not loops_over_slices(facts_of(average))
    # Too few, and each needs what the one before made.
    assert not loops_over_slices(facts_of(lambda: normalised(batch[:12])))
    assert not loops_over_slices(facts_of(lambda: smoothed(batch)))


def test_what_records_no_gradients_is_not_undone_slice_by_slice():
    batch = torch.randn(32, 4, 5)
    facts = facts_of(lambda: normalised(batch), leaves={"overhead.python": 1.0})
    alone = considered("vectorise_loop", facts)
    plain = replace(facts, trains=True, ops=tuple(replace(op, nodes=0) for op in facts.ops))
    assert considered("vectorise_loop", plain).expected_s == pytest.approx(alone.expected_s)
