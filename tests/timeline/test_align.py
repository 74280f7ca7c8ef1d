from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.live.profiles.candidates import candidate_rows
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.timeline.align import match


def test_equal_sequences_match_one_to_one() -> None:
    assert match(["a", "b", "a"], ["a", "b", "a"]).tolist() == [0, 1, 2]


def test_what_only_one_side_has_is_left_out() -> None:
    # Seen a x b c, recorded a b y c: x is nowhere, y was not seen.
    assert match(list("axbc"), list("abyc")).tolist() == [0, -1, 1, 3]


def test_nothing_recorded_matches_nothing() -> None:
    assert match(["a"], []).tolist() == [-1]
    assert match([], ["a"]).tolist() == []


def test_gradients_summed_in_place_are_the_sums_recorded_out_of_place() -> None:
    assert match(["mm", "aten::add_"], ["mm", "aten::add"]).tolist() == [0, 1]


def test_repeated_layers_are_not_matched_one_layer_off() -> None:
    # The recorder saw one op more (b) in the first layer, none in the others.
    layer = ["x", "y", "z"]
    seen = ["a", *layer, *layer, *layer, "c"]
    recorded = ["a", "b", *layer, *layer, "d", *layer, "c"]
    assert match(seen, recorded).tolist() == [0, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12]


def test_an_operator_on_a_subclass_is_what_the_subclass_makes_of_it() -> None:
    # addition on the result of a functional collective: it waits first, and adds then.
    names = ("aten::add", "PythonSubclass", "_c10d_functional::wait_tensor")
    step = RawEvents(
        names=names,
        start_ns=np.array([0, 10, 20, 80, 100], np.int64),
        end_ns=np.array([100, 99, 75, 95, 120], np.int64),
        name=np.array([0, 1, 2, 0, 0], np.int32),
        thread=np.zeros(5, np.int32),
        annotation=np.zeros(5, bool),
        length_ns=120,
    )
    wanted = {"aten::add", "_c10d_functional::wait_tensor"}
    assert candidate_rows(step, wanted).tolist() == [2, 3, 4]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_match_is_a_longest_common_subsequence(seen: list[str], recorded: list[str]) -> None:
    longest = [[0] * (len(recorded) + 1) for _ in range(len(seen) + 1)]
    for i, a in enumerate(seen):
        for j, b in enumerate(recorded):
            same = longest[i][j] + 1 if a == b else 0
            longest[i + 1][j + 1] = max(longest[i][j + 1], longest[i + 1][j], same)
    found = [position for position in match(seen, recorded).tolist() if position >= 0]
    assert len(found) == longest[-1][-1]
    assert found == sorted(set(found))
    pairs = [(seen[i], recorded[j]) for i, j in enumerate(match(seen, recorded).tolist()) if j >= 0]
    assert all(a == b for a, b in pairs)


def _history(turns: int, closures: int = 20, cells: int = 120) -> tuple[list[str], list[int]]:
    """An L-BFGS step and, of each op, its number in the program (-1: of a turn that only some steps
    have): closures of the same ops, and turns of a loop that grow with the history.
    """
    cell = ["mm", "add", "sigmoid", "tanh", "mul", "mul", "add", "tanh", "mul", "addmm"]
    names: list[str] = []
    numbers: list[int] = []
    count = 0
    for _ in range(closures):
        for part in (cell * cells, ["sum"], [f"{name}_backward" for name in cell[::-1]] * cells):
            names += part
            numbers += range(count, count + len(part))
            count += len(part)
        for loop in (["dot", "mul", "add_"], ["dot", "mul", "rsub", "add_"]):
            names += loop * turns
            numbers += [-1] * (len(loop) * turns)
            names += ["div"]
            numbers += [count]
            count += 1
    return names, numbers


def test_long_steps_of_which_one_has_more_turns_of_a_loop_match_all_else() -> None:
    seen, numbers = _history(turns=100)
    recorded, numbers_recorded = _history(turns=60)
    assert len(seen) > 50_000
    found = match(seen, recorded)
    # Far more differs than the fewest insertions could be searched for.
    lost = [
        number
        for number, place in zip(numbers, found.tolist())
        if number >= 0 and (place < 0 or numbers_recorded[place] != number)
    ]
    assert len(lost) < 0.001 * len(seen)
    kept = found[found >= 0]
    assert (np.diff(kept) > 0).all()
    assert len(kept) > 0.999 * len(recorded)


def test_long_steps_that_have_nothing_in_common_are_told_so() -> None:
    number = np.random.default_rng(0).integers(0, 50, 2 * 20_000)
    seen = [f"a{i}" for i in number[:20_000]]
    assert (match(seen, [f"b{i}" for i in number[20_000:]]) == -1).all()


@given(
    st.lists(st.sampled_from("abcd"), min_size=80, max_size=160),
    st.lists(st.tuples(st.integers(0, 159), st.sampled_from("abcd")), max_size=30),
)
def test_words_find_an_increasing_match_of_equal_names(
    recorded: list[str], changes: list[tuple[int, str]]
) -> None:
    from gobrrr.timeline.align import WIDTHS, _by_words

    seen = list(recorded)
    for place, name in changes:
        seen.insert(min(place, len(seen)), name)
    one, other = (np.array([ord(c) for c in names], np.int64) for names in (seen, recorded))
    places = [(a + i, b + i) for a, b, size in _by_words(one, other, WIDTHS) for i in range(size)]
    assert all(seen[a] == recorded[b] for a, b in places)
    assert all(x < a and y < b for (x, y), (a, b) in pairwise(places))
