import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.capture.align import match
from gobrrr.capture.candidates import candidate_rows
from gobrrr.capture.profile import RawEvents


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
