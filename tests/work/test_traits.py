"""What is known of an operator stands with its formula, for every reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gobrrr.prediction.kernels.walks.walk import Machine
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import register_work, unregister_work, work_of
from gobrrr.work.estimate import Work
from gobrrr.work.registry import failed_formulas, failure_notices, forget_failures
from gobrrr.work.traffic import account
from gobrrr.work.traits import Role, Space, describe, space_of, traits_of

NAME = "my_ops::row_scale"
ROWS = TensorSpec((64, 96), "float32")
CALL = OpCall(NAME, (ROWS,), (ROWS,))
GPU = Machine(kind="cuda", units=100, cache_bytes=50_000_000, strided=0.5)


def row_scale(call: OpCall) -> Work:
    (x,) = call.tensors
    return account([x], [x], vector=3.0 * x.numel, dtype="float32", op_class="normalisation")


def rows(call: OpCall) -> Space:
    return Space(Role.NORMALISATION, call.tensors[0].numel, call.tensors[0].shape[-1])


@pytest.fixture
def added() -> Iterator[None]:
    # One file (this one) and one line.
    register_work(NAME, row_scale, fusion=rows, passes="reduction", rate="_softmax")
    yield
    unregister_work(NAME)


def test_an_op_from_outside_is_known_to_every_reader(added: None) -> None:
    work = work_of(CALL)
    # 3 for each of 64 * 96.
    assert work is not None and work.vector_flops == 18432
    assert space_of(CALL) == Space(Role.NORMALISATION, 6144, 96)
    assert traits_of(NAME).rate == "_softmax"
    plain = OpCall("aten::sum", (ROWS,), (ROWS,))
    assert walks_of(CALL, work, GPU) == walks_of(plain, work, GPU)


def test_it_is_gone_when_it_is_taken_back(added: None) -> None:
    unregister_work(NAME)
    assert space_of(CALL) == Space(Role.EXTERN, 6144)
    assert traits_of(NAME).passes is None


def test_a_trait_is_stated_once() -> None:
    with pytest.raises(ValueError, match="fusion of aten::mm is stated already"):
        describe("mm", fusion=Role.POINTWISE)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("aten::addmm_", Role.CONTRACTION), ("aten::relu_", Role.POINTWISE),
        ("aten::view", Role.NOTHING), ("aten::sort", Role.EXTERN),
        ("xformers::memory_attention", Role.ATTENTION),
    ],
)  # fmt: skip
def test_roles(name: str, role: Role) -> None:
    space = space_of(OpCall(name, (ROWS,), (ROWS,)))
    assert space is not None and space.role is role


def test_in_place_runs_at_the_rate_of_its_twin() -> None:
    assert traits_of("aten::erf_").rate == "erf"
    assert traits_of("aten::hardswish").rate == "silu"


def test_a_formula_that_fails_on_a_whole_call_is_ours_to_mend() -> None:
    whole = OpCall("aten::native_group_norm", (ROWS, None, None, 1, 2, 3, "many", 1e-5), (ROWS,))
    assert work_of(whole) is None
    assert list(failed_formulas()) == ["aten::native_group_norm"]
    (notice,) = failure_notices([whole])
    assert "aten::native_group_norm" in notice and "a bug in gobrrr" in notice
    # Of another program nothing is said, nor of a trace that leaves arguments out.
    assert failure_notices([OpCall("aten::relu", (ROWS,), (ROWS,)), OpCall(whole.name, ())]) == []
    forget_failures()
    # A trace leaves arguments out, and results always.
    assert work_of(OpCall("aten::native_group_norm", whole.args)) is None
    assert failed_formulas() == {}
