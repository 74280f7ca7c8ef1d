"""What generated kernels take: fusion spares bytes, and nothing else."""

import pytest
from tests.fixes.facts import facts, op, pointwise

from gobrrr.diagnosis.fusion.groups import find_groups
from gobrrr.fixes.compilation.generated_kernels import generated_kernels
from gobrrr.work.estimate import Work


def generated(given):
    return generated_kernels(given, find_groups(given))


def special(name, reads, writes, size=40e6, **more):
    """An op of one transcendental function per element that takes ten times its bytes' time."""
    elements = size / 4
    work = Work(0.0, elements, round(2 * size), 0, round(2 * size), "float32", "elementwise",
                special=elements)  # fmt: skip
    made = op(name, reads=((reads[0], size),), writes=((writes[0], size),))
    settings = {"kernel_s": 10 * 2 * size / 10e9, "phase": "forward"}
    return type(made)(made.call, work, **(settings | more))


def test_an_op_that_is_fused_with_none_takes_what_it_takes():
    (copy,) = [pointwise("aten::clone", [1], [2], kernel_s=0.02)]
    found = generated(facts([copy]))
    slow_s, expected_s, fast_s = found.after_s
    # 80 MB at 10 GB/s would be 8 ms; the copy that there is takes 20 ms, and stays.
    assert expected_s == pytest.approx(0.02)
    assert slow_s > expected_s > fast_s
    assert found.bytes_after == found.bytes_now == 80e6


def test_functions_take_as_long_in_a_fused_kernel():
    # 80 ms, of which 8 ms move bytes; the other two ops 8 ms each.
    chain = [
        pointwise("aten::mul", [1], [2]),
        special("aten::sin", [2], [3]),
        pointwise("aten::add", [3], [4]),
    ]
    slow_s, expected_s, fast_s = generated(facts(chain)).after_s
    assert expected_s == pytest.approx(0.072)
    assert slow_s == pytest.approx(0.08)
    # At the best they run at the ceiling of exponentials.
    assert fast_s == pytest.approx(0.01 / 0.9)


def drawn(name, size=40e6):
    work = Work(0.0, size, 0, round(size), round(size), "float32", "elementwise")
    made = op(name, reads=((1, size),), writes=((1, size),))
    return type(made)(made.call, work, kernel_s=0.4, phase="forward")


@pytest.mark.parametrize(("name", "times"), [("aten::bernoulli_", 0.75), ("aten::uniform_", 2.5)])
def test_random_numbers_take_as_long_as_the_generator_of_generated_code(name, times):
    chain = [drawn(name), pointwise("aten::mul", [1], [2])]
    slow_s, expected_s, fast_s = generated(facts(chain)).after_s
    assert expected_s == pytest.approx(times * 0.4)
    assert slow_s > expected_s > fast_s > 0.2
    alone_s = generated(facts(chain[:1])).after_s[1]
    assert alone_s == pytest.approx(times * 0.4)
    # A GPU computes them faster than it moves them.
    assert generated(facts(chain, device_kind="cuda")).after_s[1] < 0.1


def test_page_faults_within_a_function_s_kernel_are_no_arithmetic():
    chain = [
        special("aten::sin", [1], [2], page_faults_s=0.05),
        pointwise("aten::add", [2], [3], fresh_bytes=0.0),
    ]
    expected_s = generated(facts(chain)).after_s[1]
    assert expected_s == pytest.approx(0.08 - 0.05 - 0.008 + 0.05)


def test_ops_without_a_known_bandwidth_take_what_they_take():
    chain = [pointwise("aten::mul", [1], [2]), pointwise("aten::add", [2], [3])]
    found = generated(facts(chain, ceilings={}))
    assert found.after_s == (found.now_s,) * 3
