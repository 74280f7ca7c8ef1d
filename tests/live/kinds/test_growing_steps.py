"""Steps that grow, told by processor time and page faults, and steps that do not."""

import random

import pytest

from gobrrr.live.kinds.growing_steps import TimedStep, growing_notice

MS = 1_000_000


def block(first, number, time_ms, faults=lambda i: 0, ran=True, noise=0.0, seed=0):
    """Steps whose time is ``time_ms`` of their place, by a share of noise up or down."""
    draw = random.Random(seed)
    steps = []
    for place in range(first, first + number):
        ns = round(time_ms(place) * MS * (1 + noise * draw.uniform(-1, 1)))
        steps.append(TimedStep(place, 5 * ns, ns if ran else None, faults(place)))
    return steps


def growing(i):
    return 80 + 3 * i


def test_steps_that_grow_are_told_with_the_first_and_the_last():
    told = growing_notice([block(6, 6, growing), block(25, 6, growing)])
    assert "101 ms of processor time at the first" in told
    assert "167 ms 24 steps later" in told


def test_page_faults_that_grow_make_a_noisy_growth_certain():
    def faults(i):
        return 2000 + 488 * i

    blocks = [block(6, 6, growing, faults, noise=0.02), block(25, 6, growing, faults, noise=0.02)]
    assert growing_notice(blocks)
    # They alone say nothing of the time.
    assert not growing_notice([block(first, 6, lambda i: 80, faults) for first in (6, 25)])


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_steps_of_one_length_do_not_grow_and_a_jump_between_blocks_is_no_growth(noise):
    for seed in range(20):
        even = [block(6, 20, lambda i: 80, noise=noise, seed=seed),
                block(40, 20, lambda i: 80, noise=noise, seed=seed + 50)]  # fmt: skip
        jump = [even[0], block(40, 20, lambda i: 130, lambda i: 9_000, noise=noise, seed=seed)]
        assert not growing_notice(even) and not growing_notice(jump)


def test_wall_time_has_to_be_more_certain_and_few_steps_tell_nothing():
    slow = [block(6, 6, growing, ran=False, noise=0.05), block(25, 4, growing, ran=False)]
    assert not growing_notice(slow)
    assert growing_notice([block(6, 40, growing, ran=False, noise=0.05)])
    assert not growing_notice([block(0, 4, growing)]) and not growing_notice([])
