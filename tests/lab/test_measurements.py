"""What experiments compute from samples, and the kernels they run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.devices.native import compiler  # noqa: E402
from gobrrr.lab.batch import fixed_parts  # noqa: E402
from gobrrr.lab.compiled import compile_chains  # noqa: E402
from gobrrr.lab.counting import count  # noqa: E402
from gobrrr.lab.dit_parts import attend  # noqa: E402
from gobrrr.lab.intensity import COMPILED, LOOPS, _check, crossovers, flops_per_repeat  # noqa: E402
from gobrrr.lab.networks import build, encoder_layer  # noqa: E402
from gobrrr.lab.remat import Pass, peak_bytes  # noqa: E402
from gobrrr.lab.setting import Setting  # noqa: E402
from gobrrr.lab.tensor_cores import flops_of_product  # noqa: E402
from gobrrr.measure import Series  # noqa: E402

pytestmark = pytest.mark.torch
MIB = 2**20


def series(*seconds: float) -> Series:
    return Series(seconds, True)


def test_the_crossover_of_a_roofline_is_its_ridge() -> None:
    # Memory takes 1 s, arithmetic 1/40 s per repeat: the ridge is at 40 repeats.
    found = {r: series(*[max(1.0, r / 40)] * 5) for r in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
    assert crossovers(found) == pytest.approx([40.0] * 5, rel=0.1)


def test_a_time_that_never_rises_has_no_crossover() -> None:
    assert crossovers({1: series(1.0, 1.0), 64: series(1.0, 1.2)}) == []


def test_the_fixed_part_is_where_the_line_starts() -> None:
    # 3 ms and 2 ms per item, in two rounds of which the second is twice as slow.
    found = {b: series(3e-3 + 2e-3 * b, 6e-3 + 4e-3 * b) for b in (1, 2, 4, 8)}
    assert fixed_parts(found) == pytest.approx([3e-3, 6e-3])


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("curve", LOOPS)
def test_the_loops_do_the_arithmetic(curve: str) -> None:
    loops = compile_chains()
    adds, many = LOOPS[curve]
    x = torch.rand(loops.granule * 64) + 0.5
    y = torch.zeros_like(x)
    for repeat in (1, 3, 200):
        loops.run(x, y, repeat, factor=1.0001, term=1e-4 if adds else None, many=many, threads=2)
        _check(curve, repeat, x, y)
    with pytest.raises(ArithmeticError, match="wrong results"):
        _check(curve, 2000, x, y)


def test_a_multiply_add_counts_two() -> None:
    assert [flops_per_repeat(curve) for curve in (COMPILED, *LOOPS)] == [1, 1, 1, 2, 2]


def test_bytes_of_two_operators_are_twice_those_of_one() -> None:
    x = torch.rand(1000)
    # Two reads and two writes of 4 bytes each; one read and one write.
    assert count(lambda: x.cos().cos()).bytes_moved == 16_000
    assert count(lambda: x.cos()).bytes_moved == 8_000


def test_flops_of_a_product() -> None:
    assert flops_of_product(64, "float32") == 2 * 64**3


def test_an_encoder_layer_has_berts_matrix_flops() -> None:
    layer = build(Setting(), lambda: encoder_layer(64, 4, 256))
    x = torch.randn(2, 16, 64)
    with torch.no_grad():
        flops = count(lambda: layer(x)).flops
    tokens = 2 * 16
    # Projections 3 + 1, two products of scores, up and down.
    matrix = 2 * tokens * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 2 * tokens * 16 * 64
    assert flops is not None
    assert matrix < flops < 1.1 * matrix


def test_building_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = build(Setting(seed=1), lambda: torch.nn.Linear(4, 4))
    assert torch.equal(torch.rand(1), expected)
    second = build(Setting(seed=1), lambda: torch.nn.Linear(4, 4))
    assert torch.equal(first.weight, second.weight)


def test_peak_memory_counts_what_is_held_at_once() -> None:
    held: list[object] = []

    def step() -> None:
        a = torch.empty(MIB, dtype=torch.uint8)
        b = torch.empty(2 * MIB, dtype=torch.uint8)
        del a
        held[:] = [torch.empty(MIB, dtype=torch.uint8)]
        del b

    # 1 and 2 MiB together, then 2 and 1; what an earlier pass left is dropped before.
    for _ in range(2):
        assert peak_bytes(Pass(step, held.clear)) == pytest.approx(3 * MIB, rel=0.01)


def test_both_kinds_of_attention_agree() -> None:
    q, k, v = (torch.randn(1, 2, 32, 16) for _ in range(3))
    assert torch.allclose(attend(q, k, v, flash=True), attend(q, k, v, flash=False), atol=1e-5)


def test_functions_of_one_definition_get_code_of_their_own() -> None:
    from gobrrr.lab.compiled import _with_own_code

    def made(power: int) -> object:
        def function(x: float) -> float:
            return x**power

        return _with_own_code(function)

    square, cube = made(2), made(3)
    assert (square(2.0), cube(2.0)) == (4.0, 8.0)  # type: ignore[operator]
    assert square.__code__ is not cube.__code__  # type: ignore[attr-defined]
