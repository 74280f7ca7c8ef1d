from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.observe.leaf_ops import leaf_op_mode, name_of, only_calls_others
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import TensorSpec

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """No mode, hook or wrapper may outlive a test."""
    from torch.utils import _python_dispatch as dispatch

    call, zero_grad = nn.Module.__call__, torch.optim.Optimizer.zero_grad
    yield
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not dispatch._is_in_torch_dispatch_mode
    assert nn.Module.__call__ is call
    assert torch.optim.Optimizer.zero_grad is zero_grad


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return x + torch.relu(self.layer(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def names(ops: list[StepOp], phase: Phase | None = None) -> list[str]:
    return [op.call.name for op in ops if phase is None or op.phase == phase]


def find(ops: list[StepOp], name: str, phase: Phase | None = None) -> StepOp:
    return next(op for op in ops if op.call.name == name and phase in (None, op.phase))


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return next(f":{i} " for i, line in enumerate(lines, 1) if line.strip() == text)


def test_arguments_in_schema_order_with_defaults() -> None:
    bias, a, b = torch.ones(5), torch.ones(2, 3), torch.ones(5, 3)
    with OpRecorder() as recorder:
        torch.addmm(bias, a, b.t(), alpha=2)
    call = find(recorder.ops, "aten::addmm").call
    # addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)
    assert call.args == (
        TensorSpec((5,), "float32", (1,)),
        TensorSpec((2, 3), "float32", (3, 1)),
        TensorSpec((3, 5), "float32", (1, 3)),
        1,
        2,
    )
    assert call.outputs == (TensorSpec((2, 5), "float32", (5, 1)),)
    assert call.overload == ""
    assert call.args[2].storage == b.untyped_storage()._cdata  # type: ignore[union-attr]
    assert call.args[0].device == "cpu"  # type: ignore[union-attr]


def test_lists_dtypes_and_offsets() -> None:
    x = torch.ones(4, 6)
    with OpRecorder() as recorder:
        torch.cat([x[1:], x[:1]], dim=0).to(torch.bfloat16)
    cat = find(recorder.ops, "aten::cat").call
    first, second = cat.args[0]  # type: ignore[misc]
    assert (first.offset, second.offset) == (6, 0)
    assert first.storage == second.storage
    assert find(recorder.ops, "aten::_to_copy").call.args[1] == "bfloat16"


def test_modules_phases_and_lines_of_a_training_step() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    recorder = OpRecorder()
    recorder.start()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    ops = recorder.stop()
    forward = [op.module for op in ops if op.call.name == "aten::addmm"]
    assert forward == ["blocks.0.layer", "blocks.1.layer", "head"]
    # Each layer's backward multiplies twice, but for the first one: its input needs a gradient
    # too, as the norm before it has weights.
    backward = [op.module for op in ops if op.call.name == "aten::mm"]
    assert backward == [name for name in reversed(forward) for _ in range(2)]
    mm = find(ops, "aten::mm", Phase.BACKWARD)
    assert line_of("return self.head(x)") in mm.source
    assert mm.source.endswith(" in forward")
    relu = find(ops, "aten::threshold_backward")
    assert relu.module == "blocks.1"
    assert line_of("return x + torch.relu(self.layer(self.norm(x)))") in relu.source
    assert find(ops, "aten::addcdiv_").phase == Phase.OPTIMIZER
    assert line_of("optimizer.step()") in find(ops, "aten::addcdiv_").source
    assert find(ops, "aten::zero_").phase == Phase.OPTIMIZER
    assert find(ops, "aten::ones").phase == Phase.FORWARD
    order = [op.phase for op in ops if op.phase != Phase.OTHER]
    assert order == sorted(order)


def test_gradients_accumulate_in_the_parameters_module() -> None:
    model = Net()
    model(torch.ones(2, 4)).sum().backward()
    with OpRecorder({"": model}) as recorder:
        model(torch.ones(2, 4)).sum().backward()
    modules = {op.module for op in recorder.ops if op.call.name == "aten::add_"}
    assert {"head", "blocks.0.norm", "blocks.1.layer"} <= modules


def test_roots_name_what_is_called_without_them() -> None:
    model = Net()
    with OpRecorder({"net": model}) as recorder:
        model.blocks[1](torch.ones(1, 4))
    assert find(recorder.ops, "aten::addmm").module == "net.blocks.1.layer"


def test_a_module_that_raises_does_not_unbalance() -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(2, 2), Fails())
    layer = nn.Linear(2, 2)
    with OpRecorder() as recorder:
        with pytest.raises(ValueError, match="no"):
            model(torch.ones(1, 2))
        torch.ones(1) + 1
        layer(torch.ones(1, 2))
    assert find(recorder.ops, "aten::add").module == ""
    assert [op.module for op in recorder.ops if op.call.name == "aten::addmm"] == ["0", "Linear"]


def test_an_op_that_raises_reaches_the_user_unchanged() -> None:
    with OpRecorder() as recorder, pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(2) + torch.ones(3)
    assert "aten::add" not in names(recorder.ops)


def test_results_and_random_numbers_are_those_without_it() -> None:
    def step() -> tuple[Any, Any]:
        torch.manual_seed(3)
        model = nn.Sequential(Net(), nn.Dropout(0.5))
        loss = model(torch.randn(8, 4)).square().sum()
        loss.backward()
        return loss.detach(), torch.rand(4)

    plain = step()
    with OpRecorder():
        recorded = step()
    assert torch.equal(plain[0], recorded[0])
    assert torch.equal(plain[1], recorded[1])


def test_no_tensor_is_kept_alive() -> None:
    recorder = OpRecorder()
    recorder.start()
    x = torch.ones(10, 10)
    y = x * 2
    alive = weakref.ref(y)
    del x, y
    gc.collect()
    assert alive() is None
    recorder.stop()
    model = Net()
    with OpRecorder({"": model}) as recorder:
        model(torch.ones(1, 4))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_inference_mode_is_seen_below_the_composites() -> None:
    model = Net()
    with OpRecorder() as recorder, torch.inference_mode():
        model(torch.ones(2, 4))
    seen = names(recorder.ops)
    assert seen.count("aten::addmm") == 3
    assert "aten::linear" not in seen
    assert find(recorder.ops, "aten::addmm").module == "blocks.0.layer"


def test_a_recording_that_begins_and_ends_inside_inference_mode_sees_what_is_between() -> None:
    net, x, recorder = torch.nn.Linear(4, 4), torch.ones(2, 4), OpRecorder()
    exit_before = torch._C._InferenceMode.__exit__

    @torch.inference_mode()
    def predict(then: Any) -> Any:
        y = net(x)
        then()
        return y * 2

    predict(recorder.start)
    x + 1
    predict(recorder.stop)
    assert names(recorder.ops)[:2] == ["aten::mul", "aten::add"]
    assert names(recorder.ops)[-1] == "aten::addmm"
    # Nothing is left behind, in the class or among the thread's keys.
    assert torch._C._InferenceMode.__exit__ is exit_before
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
    assert torch.equal(predict(lambda: None), net(x).detach() * 2)


def test_recomputed_forward_belongs_to_its_module_and_the_backward() -> None:
    from torch.utils.checkpoint import checkpoint

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Outer()
    with OpRecorder() as recorder:
        model(torch.ones(2, 4)).sum().backward()
    again = [op for op in recorder.ops if op.call.name == "aten::addmm"]
    assert [(op.module, op.phase) for op in again] == [
        ("inner.layer", Phase.FORWARD),
        ("inner.layer", Phase.BACKWARD),
    ]
    assert {op.module for op in recorder.ops if op.call.name == "aten::mm"} == {"inner.layer"}


def test_custom_functions_map_back() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return torch.sin(grad)

    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return Double.apply(x)

    model = nn.Sequential(nn.Linear(2, 2), Twice())
    with OpRecorder() as recorder:
        model(torch.ones(1, 2)).sum().backward()
    sine = find(recorder.ops, "aten::sin")
    assert (sine.module, sine.phase) == ("1", Phase.BACKWARD)


def test_higher_order_gradients() -> None:
    layer = nn.Linear(2, 1)
    x = torch.ones(3, 2, requires_grad=True)
    with OpRecorder() as recorder:
        (grad,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        grad.square().sum().backward()
    assert {op.module for op in recorder.ops if op.call.name == "aten::mm"} == {"Linear"}


# Other modes and subclasses


def _counting_mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen += 1
            return func(*args, **(kwargs or {}))

    return Counts()


def test_a_users_mode_that_was_there_first_may_leave_first() -> None:
    recorder, mode = OpRecorder(), _counting_mode()
    with mode:
        recorder.start()
        torch.ones(2)
    torch.ones(3)
    ops = recorder.stop()
    assert names(ops) == ["aten::ones", "aten::ones"]
    assert mode.seen == 1


def test_a_users_mode_that_came_later_may_stay_longer() -> None:
    recorder, mode = OpRecorder(), _counting_mode()
    recorder.start()
    with mode:
        torch.ones(2)
        ops = recorder.stop()
        torch.ones(3)
    assert names(ops) == ["aten::ones"]
    assert mode.seen == 2


def test_a_fake_tensor_mode_may_be_active() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), OpRecorder() as recorder:
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    assert find(recorder.ops, "aten::mm").call.outputs == (TensorSpec((2, 4), "float32", (4, 1)),)


def test_ops_of_a_tensor_subclass_are_those_inside_it() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    pair = TwoTensor(torch.ones(2, 3), torch.zeros(2, 3))
    with OpRecorder() as recorder:
        result = pair @ torch.ones(3, 4)
    assert type(result) is TwoTensor
    assert names(recorder.ops).count("aten::mm") == 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_tensors_are_what_they_hold_and_nested_ones_are_not_described() -> None:
    sparse = torch.eye(3).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with OpRecorder() as recorder:
        torch.sparse.mm(sparse, torch.ones(3, 2))
        sparse * 2
        nested + nested
    product = find(recorder.ops, "aten::_sparse_addmm").call
    held = TensorSpec((2, 3), "int64", (3, 1)), TensorSpec((3,), "float32", (1,))
    assert product.args[1] == ("sparse_coo", *held)
    assert product.args[2] == TensorSpec((3, 2), "float32", (2, 1))
    assert find(recorder.ops, "aten::mul").call.outputs == held
    assert find(recorder.ops, "aten::add").call.outputs is None


def test_higher_order_operators_are_one_op() -> None:
    from torch._higher_order_ops.strict_mode import strict_mode

    with OpRecorder() as recorder:
        result = strict_mode(lambda x: (x * 2,), (torch.ones(2),))
    assert result[0].tolist() == [2.0, 2.0]
    assert any(name.startswith("higher_order::") for name in names(recorder.ops))


def test_compiled_regions_stay_compiled() -> None:
    compiled: list[int] = []
    runs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(len(inputs))

        def run(*args: Any) -> Any:
            runs.append(1)
            return graph.forward(*args)

        return run

    model = Net()
    fast = torch.compile(model, backend=backend)
    x = torch.ones(2, 4)
    fast(x)
    before = list(compiled)
    with OpRecorder() as recorder:
        fast(x)
    fast(x)
    # Compiled once; run compiled three times: before, while recorded (the ops that the backend
    # left to libraries are seen), and after.
    assert compiled == before
    assert len(runs) == 3 * len(before)
    assert names(recorder.ops).count("aten::addmm") == 3


def test_detaches_that_only_exist_under_a_dispatch_mode_are_left_out() -> None:
    # relu saves its output for the backward; autograd detaches it through the mode.
    x = torch.ones(2, requires_grad=True)
    with OpRecorder() as recorder:
        x.relu()
    assert names(recorder.ops) == ["aten::relu"]
    with OpRecorder() as recorder:
        x.detach()
    assert names(recorder.ops) == ["aten::detach"]


def test_the_nodes_that_autograd_makes_for_each_op() -> None:
    x = torch.ones(2, requires_grad=True)
    with OpRecorder() as recorder:
        x.relu().mul(2.0)
        with torch.no_grad():
            x.relu()
        torch.ones(2).mul(2.0)
    assert [(op.call.name, op.nodes) for op in recorder.ops] == [
        ("aten::relu", 1), ("aten::mul", 1), ("aten::relu", 0), ("aten::ones", 0),
        ("aten::mul", 0),
    ]  # fmt: skip


def test_the_class_of_each_module_is_kept() -> None:
    model = Net()
    recorder = OpRecorder()
    recorder.start()
    model(torch.ones(2, 4))
    recorder.stop()
    assert recorder.classes["head"] == "Linear"
    assert recorder.classes["blocks.0.norm"] == "LayerNorm"
    assert recorder.classes["Net"] == "Net"


def test_several_networks_have_the_names_of_the_function_that_runs_them() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.generator = nn.Linear(2, 2)

        def run(self, critic: nn.Module, watch: CallWatch) -> dict[str, nn.Module]:
            return inner(self.generator, watch) and inner(critic, watch)

    def inner(model: nn.Module, watch: CallWatch) -> dict[str, nn.Module]:
        model(torch.ones(1, 2))
        return watch.roots()

    watch, unnamed = CallWatch(), [nn.Bilinear(2, 2, 2)]
    watch.install()
    undo = watch.discover()
    try:
        unnamed[0](torch.ones(1, 2), torch.ones(1, 2))
        names = Trainer().run(nn.Linear(2, 2), watch)
    finally:
        undo()
        watch.remove()
    # Outer names first: the inner function calls both of them ``model``.
    assert list(names) == ["Bilinear", "generator", "critic"]


@pytest.mark.parametrize("held", [["a list"], None, 7])
def test_what_a_program_calls_modules_need_not_be_a_dict(held: object) -> None:
    class Slotted:
        __slots__ = ()

        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

        def roots(self, watch: CallWatch) -> dict[str, nn.Module]:
            return watch.roots()

    class Trainer:
        def __init__(self) -> None:
            self._modules, self.generator, self.critic = held, nn.Linear(2, 2), nn.Linear(2, 2)

        def run(self, watch: CallWatch) -> dict[str, nn.Module]:
            self.critic(self.generator(torch.ones(1, 2)))
            return Slotted().roots(watch)

    watch = CallWatch()
    watch.install()
    undo = watch.discover()
    try:
        names = Trainer().run(watch)
    finally:
        undo()
        watch.remove()
    assert set(names) == {"generator", "critic"}


@pytest.mark.parametrize("name", ["sym_size", "sym_stride"])
def test_questions_about_shapes_are_no_composites(name: str) -> None:
    # The dispatcher does not know them: asked for their kernels it raises, and a nested tensor's
    # `linear` asks from C++, where no exception may pass.
    assert not only_calls_others(getattr(torch.ops.aten, name).default)


def test_nested_tensors_pass() -> None:
    seen: list[str] = []

    def visit(func: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        seen.append(name_of(func))
        return func(*args, **kwargs)  # type: ignore[operator]

    rows = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    with leaf_op_mode(visit):
        result = torch.nn.Linear(4, 4)(rows)
    assert result.is_nested and "aten::addmm" in seen


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("inference", [False, True])
def test_composites_of_nested_tensors_without_sizes_run_their_own_kernels(inference: bool) -> None:
    seen: list[str] = []

    def visit(func: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        seen.append(name_of(func))
        return func(*args, **kwargs)  # type: ignore[operator]

    # What attention on jagged tensors makes of them on a CPU.
    rows = [torch.randn(2, 3, 4), torch.randn(2, 5, 4)]
    with torch.inference_mode(inference):
        nested = torch.nested.as_nested_tensor(rows)
        expected = torch._scaled_dot_product_attention_math(nested, nested, nested)[0].unbind()
        with leaf_op_mode(visit):
            attention = torch._scaled_dot_product_attention_math(nested, nested, nested)[0]
            reshaped = nested.reshape(2, 2, -1, 2, 2)
            (torch.ones(3, 2, 4) @ torch.ones(4, 2))
        found = attention.unbind()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert [part.shape for part in reshaped.unbind()] == [(2, 3, 2, 2), (2, 5, 2, 2)]
    # A dense product in the same program is still what it calls.
    assert seen.count("aten::matmul") == 2 and "aten::mm" in seen


def test_modules_that_another_keeps_in_a_list_have_the_name_of_their_class() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Softmax(-1)(self.inner(x) * 2)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [Block() for _ in range(3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    net = Net()
    with OpRecorder({"": net}) as recorder:
        net(torch.ones(2, 4))
    named = [(op.call.name, op.module) for op in recorder.stop()]
    assert named.count(("aten::addmm", "Net.Block.inner")) == 3
    # A module without parameters that is made on the way is a part of the one that makes it.
    assert {module for name, module in named if "softmax" in name} == {"Net.Block"}
