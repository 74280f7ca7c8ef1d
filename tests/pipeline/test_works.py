from gobrrr.attribution.recorded_work import works_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec


def multiplication(left: int, right: int) -> StepOp:
    x, y = (TensorSpec((1000,), "float32", (1,), storage, offset=0) for storage in (left, right))
    out = TensorSpec((1000,), "float32", (1,), 9, offset=0)
    return StepOp(OpCall("aten::mul", (x, y), (out,), "Tensor"), "", "", Phase.FORWARD, 0)


def test_a_tensor_used_twice_is_read_once_though_the_calls_compare_equal():
    square, product = multiplication(1, 1), multiplication(1, 2)
    assert square.call == product.call
    works = works_of([square, product, multiplication(3, 4)])
    assert [work.bytes_read for work in works] == [4000, 8000, 8000]  # 1000 * 4 and 2 * 1000 * 4
