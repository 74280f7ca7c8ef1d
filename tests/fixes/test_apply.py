"""What fixes do to a workload: the same numbers, and nothing left behind."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from gobrrr.fixes.attention.graphs import fuse_attention_in_graph  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.compilation.cuda_graph import _with_own_results  # noqa: E402
from gobrrr.fixes.gradients import counting_checkpoints  # noqa: E402
from gobrrr.fixes.programs import Program, as_program, with_setting  # noqa: E402
from gobrrr.fixes.scripts import before_first_call, compile_in_place  # noqa: E402
from gobrrr.live.steps import StepWatcher  # noqa: E402
from gobrrr.observe.compiler_counters import graphs_compiled  # noqa: E402
from gobrrr.observe.module_hooks import watch_module  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402
from gobrrr.verification.copies import StepFunction  # noqa: E402
from gobrrr.verification.trial import Changes  # noqa: E402

pytestmark = pytest.mark.torch
BY_NAME = {fix.name: fix for fix in FIXES}
# Those that build code, need a GPU or another package are tried in benchmarks/fixes.
QUICK = (
    "inference_mode", "fused_optimizer", "foreach_optimizer", "set_to_none", "all_threads",
    "one_thread", "channels_last", "bf16_storage", "bf16_autocast", "bf16_matmul",
    "no_checkpointing", "activation_checkpointing", "unused_gradients", "fp16_autocast",
)  # fmt: skip
TRAINS = ("fused_optimizer", "foreach_optimizer", "set_to_none", "unused_gradients",
          "no_checkpointing", "activation_checkpointing")  # fmt: skip


def workload(trains):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4)))
    if not trains:
        return Workload(model.eval(), torch.randn(6, 8))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
    return Workload(
        model, torch.randn(6, 8), loss=nn.functional.cross_entropy, optimizer=optimizer,
        targets=torch.arange(6) % 4,
    )  # fmt: skip


def settings():
    return (
        torch.get_num_threads(), torch.is_inference_mode_enabled(), torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision(),
        torch.optim.Optimizer.zero_grad, torch.utils.checkpoint.checkpoint, nn.Module.__call__,
        DataLoader.__init__,
    )  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_fix_computes_the_same_and_leaves_every_setting(name):
    fix, trains = BY_NAME[name], name in TRAINS
    expected = workload(trains)
    wanted = [expected.step().detach() for _ in range(3)]
    before = settings()
    with fix.apply(workload(trains)) as changed:
        got = [changed.step().detach().float() for _ in range(3)]
        assert settings()[:5] == before[:5] or fix.name == "bf16_storage"
    assert settings() == before
    loose = "16" in name
    for one, other in zip(wanted, got):
        torch.testing.assert_close(other, one, rtol=0.1 if loose else 1e-4,
                                   atol=0.1 if loose else 1e-5)  # fmt: skip


@pytest.mark.parametrize(
    "name", [fix.name for fix in FIXES if fix.in_script is not None and fix.name != "cuda_graph"]
)
def test_what_is_installed_for_a_script_is_removed(name):
    before = settings()
    with BY_NAME[name].in_script():
        pass
    assert settings() == before


def test_a_fused_optimizer_is_fused():
    with BY_NAME["fused_optimizer"].apply(workload(True)) as changed:
        changed.step()
        assert all(group["fused"] for group in changed.optimizer.param_groups)


def test_an_optimizer_of_another_library_is_left_as_it_is():
    # It has a name of torch's, and no such setting.
    foreign = type("SGD", (torch.optim.SGD,), {"__module__": "mylib"})
    for name in ("fused_optimizer", "foreach_optimizer"):
        work = workload(True)
        optimizer = foreign(work.model.parameters(), lr=0.1, foreach=False)
        with BY_NAME[name].in_script():
            optimizer.step()
        assert not any(group["fused"] or group["foreach"] for group in optimizer.param_groups)


def test_an_optimizer_that_has_stepped_can_still_be_fused():
    work = workload(True)
    work.step()
    with BY_NAME["fused_optimizer"].apply(work) as changed:
        assert torch.isfinite(changed.step())


def test_a_script_s_optimizer_is_changed_before_its_first_step():
    work = workload(True)
    with BY_NAME["fused_optimizer"].in_script():
        work.step()
    assert work.optimizer.param_groups[0]["fused"]


def test_a_script_s_loader_gets_workers_unless_it_has_some():
    data = TensorDataset(torch.zeros(4, 1))
    with BY_NAME["loader_workers"].in_script():
        assert DataLoader(data).num_workers >= 1
        assert DataLoader(data, num_workers=1).num_workers == 1
    assert DataLoader(data).num_workers == 0


def test_a_loader_is_pinned_where_it_is_not():
    data = TensorDataset(torch.zeros(4, 1))
    fix = BY_NAME["pinned_memory"]
    before = fix.changes_made()
    with fix.in_script():
        assert DataLoader(data, pin_memory=False).pin_memory
        assert fix.changes_made() == before + 1
        assert DataLoader(data, pin_memory=True).pin_memory
        # By position: data, batch size, shuffle, samplers, workers, collate function, pinned.
        given = (data, 1, False, None, None, 0, None, False)
        assert not DataLoader(*given).pin_memory
        assert fix.changes_made() == before + 1


def test_a_scripts_own_autocast_is_off_again_after_it():
    model = nn.Linear(8, 8)
    with BY_NAME["bf16_autocast"].in_script():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(2, 8)).sum()
        assert not torch.is_autocast_enabled("cpu")
        loss.backward()
        assert not torch.is_autocast_enabled("cpu")


def test_a_module_that_another_fix_compiles_keeps_its_compiler():
    model = nn.Sequential(nn.Linear(4, 4))
    made = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    with BY_NAME["fused_attention"].in_script():
        compile_in_place(model, backend=backend)
        model(torch.ones(1, 4))
    assert made


def test_a_replayed_graph_keeps_its_hands_off_other_inputs_and_earlier_results():
    buffer = torch.zeros(2, 3)

    def graphed(x):
        return buffer.copy_(x)

    call = _with_own_results(graphed, lambda x: x + 1, (torch.zeros(2, 3),))
    first, second = call(torch.ones(2, 3)), call(torch.zeros(2, 3))
    assert first.sum() == 6 and second.sum() == 0
    assert call(torch.ones(1, 3)).tolist() == [[2.0] * 3]


def test_a_script_under_autocast_gets_float32_back():
    model = nn.Linear(8, 8)
    seen = []
    model.register_forward_hook(lambda module, args, result: seen.append(result.dtype))
    with BY_NAME["bf16_autocast"].in_script():
        assert model(torch.randn(2, 8)).dtype == torch.float32
    assert seen == [torch.bfloat16]


def test_unused_gradients_are_not_computed():
    work = workload(True)
    work.optimizer.param_groups[0]["params"] = list(work.model[1].parameters())
    with BY_NAME["unused_gradients"].apply(work) as changed:
        changed.step()
    assert work.model[0].weight.grad is None
    assert work.model[1][1].weight.grad is not None


def test_checkpoints_are_counted_and_taken_away():
    from torch.utils import checkpoint as home

    layer = nn.Linear(4, 4)

    def step():
        return home.checkpoint(layer, torch.ones(1, 4), use_reentrant=False).sum()

    with counting_checkpoints() as count:
        step()
    assert count == [1]
    work = StepFunction(step)
    with BY_NAME["no_checkpointing"].apply(work) as changed, counting_checkpoints() as count:
        changed.step()
    assert count == [0]


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) * 0.5
        if self.causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(mask, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_hand_is_rewritten_and_computes_the_same(causal):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind(0)
    model = Attention(causal)
    graph = torch.fx.symbolic_trace(model) if not causal else None
    if graph is not None:
        fuse_attention_in_graph(graph, ())
        targets = [getattr(node.target, "__name__", "") for node in graph.graph.nodes]
        assert "scaled_dot_product_attention" in targets
        assert "softmax" not in targets
        torch.testing.assert_close(graph(q, k, v), model(q, k, v))
    with BY_NAME["fused_attention"].apply(Workload(model, (q, k, v))) as changed:
        torch.testing.assert_close(changed.step(), model(q, k, v))


class Filled(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def forward(self, q, k, v, mask):
        scores = (q @ k.transpose(-2, -1)).masked_fill(mask, self.fill)
        return torch.softmax(scores, dim=-1) @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fill", [-1e9, -1e5, torch.finfo(torch.bfloat16).min])
def test_a_row_that_is_filled_whole_keeps_its_equal_weights(fill, dtype):
    torch.manual_seed(0)
    q, k, v = (20 * torch.randn(3, 2, 4, 6, 8)).to(dtype).unbind(0)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    mask[2] = True
    # A number that changes between compilations is no longer one in the graph.
    torch._dynamo.reset()
    model, made = Filled(fill), BY_NAME["fused_attention"].changes_made
    before = made()
    with BY_NAME["fused_attention"].apply(Workload(model, (q, k, v, mask))) as changed:
        out = changed.step()
    assert made() == before + 1
    torch.testing.assert_close(out, model(q, k, v, mask))
    torch.testing.assert_close(out[..., 2, :], v.mean(-2))


def test_scores_that_are_filled_get_no_gradient_from_a_row_that_is_filled_whole():
    torch.manual_seed(0)
    q, k, v = (part.requires_grad_() for part in torch.randn(3, 2, 4, 6, 8).unbind(0))
    mask = torch.zeros(2, 1, 1, 6, dtype=torch.bool)
    mask[0] = True
    mask[1, ..., 4:] = True
    model = Filled(-1e9)
    torch._dynamo.reset()
    before = BY_NAME["fused_attention"].changes_made()
    changed = torch.compile(model, backend=fuse_attention_in_graph)
    found = torch.autograd.grad(changed(q, k, v, mask).square().sum(), (q, k, v))
    assert BY_NAME["fused_attention"].changes_made() == before + 1
    expected = torch.autograd.grad(model(q, k, v, mask).square().sum(), (q, k, v))
    torch.testing.assert_close(found, expected)
    assert not found[0][0].any()


def test_a_fill_of_float16_keeps_the_equal_weights_of_a_row():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 4, 8).half().unbind(0)
    mask = torch.ones(4, 4, dtype=torch.bool)
    torch._dynamo.reset()
    before = BY_NAME["fused_attention"].changes_made()
    with BY_NAME["fused_attention"].apply(Workload(Filled(-6e4), (q, k, v, mask))) as changed:
        out = changed.step()
    assert BY_NAME["fused_attention"].changes_made() == before + 1
    torch.testing.assert_close(out, v.mean(-2, keepdim=True).expand_as(v))


def test_a_step_of_a_workload_s_own_takes_inputs_that_are_a_tensor():
    class Own(Workload):
        def step(self):
            return self.model(self.inputs) + 1

    work = Own(nn.Linear(4, 4), torch.ones(2, 4))
    torch.testing.assert_close(as_program(work).step(), work.step())


def test_scores_that_are_used_elsewhere_are_left_alone():
    class Returned(nn.Module):
        def forward(self, q, k, v):
            weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
            return weights @ v, weights

    graph = torch.fx.symbolic_trace(Returned())
    before = len(graph.graph.nodes)
    fuse_attention_in_graph(graph, ())
    assert len(graph.graph.nodes) == before


def test_settings_hold_inside_a_step_alone_and_add_up():
    seen = []
    program = as_program(Workload(lambda: seen.append(torch.is_inference_mode_enabled())))
    program = with_setting(program, torch.inference_mode)
    program = with_setting(program, torch.enable_grad, forward_only=True)
    program.step()
    assert seen == [True]
    assert not torch.is_inference_mode_enabled()


def test_a_bare_step_keeps_its_own_gradient_mode():
    x = torch.ones(1, requires_grad=True)
    program = as_program(lambda: (x * 2).requires_grad)
    assert isinstance(program, Program)
    assert program.step() is True
    assert as_program(StepFunction(lambda: (x * 2).requires_grad)).step() is True


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        nn.Linear(4, 4),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        Attention(causal=False),
    ],
    ids=["Sequential", "Linear", "TransformerEncoderLayer", "own forward"],
)
def test_compiling_in_place_compiles_modules_of_torch_s_own(model):
    inputs = (torch.randn(2, 3, 4),) * (3 if isinstance(model, Attention) else 1)
    torch._dynamo.reset()
    before = graphs_compiled()
    expected = model(*inputs)
    compile_in_place(model, backend="eager")
    torch.testing.assert_close(model(*inputs), expected)
    assert graphs_compiled() == before + 1
    torch._dynamo.reset()


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.inner(x) + 1


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 1),
        Own(),
    ],
    ids=["Sequential", "TransformerEncoder", "own forward"],
)
def test_calls_of_a_script_s_compiled_module_are_seen(model):
    inputs = (torch.randn(2, 3, 4),)
    torch._dynamo.reset()
    ends, outputs = [], []
    compiling = before_first_call(partial(compile_in_place, backend="eager"))
    watcher = StepWatcher(lambda source, restarted: ends.append(source))
    before = graphs_compiled()
    with compiling:
        watcher.install()
        try:
            for call in range(8):
                if call == 4:
                    unwatch = watch_module(model, after=lambda *call: outputs.append(call[2]))
                model(*inputs)
        finally:
            watcher.remove()
    unwatch()
    assert graphs_compiled() > before
    # A step is known from its third repetition on.
    assert len(ends) >= 5 and len(outputs) == 4
    # What is copied or saved of it is as it was.
    assert "forward" not in vars(model)
    torch._dynamo.reset()


def test_a_fix_counts_what_it_changes():
    fix = BY_NAME["fused_optimizer"]
    changes = Changes([fix])
    assert changes.idle() == ("fused_optimizer",)
    with fix.apply(workload(True)) as changed:
        changed.step()
    assert changes.idle() == ()
    # What is fused already is not changed by it.
    again = Changes([fix])
    with fix.apply(changed):
        pass
    assert again.idle() == ("fused_optimizer",)


class CastWeights(TorchDispatchMode):
    """Counts what is cast to bfloat16 and has the shape of a layer's weight."""

    def __init__(self, weight):
        super().__init__()
        self.shape, self.count = weight.shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") == torch.bfloat16:
            self.count += args[0].shape == self.shape
        return func(*args, **kwargs)


def test_one_autocast_holds_from_the_first_call_of_a_step_to_its_backward_pass():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 8)
    with BY_NAME["bf16_autocast"].in_script(), CastWeights(model.weight) as cast:
        for _ in range(2):
            first, second = model(x), model(x)
            assert torch.is_autocast_enabled("cpu")
            (first + second).sum().backward()
            assert not torch.is_autocast_enabled("cpu")
            assert model.weight.grad.dtype == torch.float32
            optimizer.step()
            optimizer.zero_grad()
    # Once in each of two steps, though the model is called twice.
    assert cast.count == 2


def test_an_evaluation_under_autocast_does_not_take_the_gradients_from_training():
    model = nn.Linear(8, 8)
    x = torch.randn(2, 8)
    with BY_NAME["bf16_autocast"].in_script(), CastWeights(model.weight) as cast:
        with torch.no_grad():
            for _ in range(3):
                model(x)
        assert cast.count == 1
        loss = model(x).sum()
        assert cast.count == 2
        loss.backward()
        assert model.weight.grad is not None
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("go_back", ["grad", "optimizer"])
def test_what_changes_weights_ends_the_context(go_back):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with BY_NAME["bf16_autocast"].in_script():
        loss = model(torch.randn(2, 8)).sum()
        assert torch.is_autocast_enabled("cpu")
        if go_back == "grad":
            torch.autograd.grad(loss, list(model.parameters()))
        else:
            optimizer.step()
        assert not torch.is_autocast_enabled("cpu")


def test_a_class_with_a_compile_method_of_its_own_is_compiled_all_the_same():
    class Net(nn.Linear):
        def compile(self, optimizer, loss):
            raise AssertionError

        def forward(self, x):
            return x @ self.weight

    net = Net(4, 4)
    compile_in_place(net, backend="eager")
    assert net._compiled_call_impl is not None
    assert torch.equal(net(torch.eye(4)), net.forward(torch.eye(4)))
