from gobrrr.capture.align import match


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
