from gobrrr.live.cycle import CycleFinder


def ends(finder: CycleFinder, events: str) -> str:
    """The events with a bar after each that ends a step."""
    return "".join(event + ("|" if finder.push(event) else "") for event in events)


def test_one_participant_ends_every_step_once_it_has_repeated() -> None:
    assert ends(CycleFinder(repeats=2), "AAAA") == "AA|A|A|"


def test_a_gan_ends_with_the_generator() -> None:
    # D and G alternate: the cycle is known after two rounds, and ends where it was found.
    assert ends(CycleFinder(repeats=2), "DGDGDGDG") == "DGDG|DG|DG|"


def test_several_critic_steps_are_one_cycle() -> None:
    # Five D look like a cycle of one until G has come up twice; then the cycle is DDG.
    finder = CycleFinder(repeats=2)
    ends(finder, "DDGDDGDDGDDG")
    assert finder.cycle == ("D", "D", "G")
    assert ends(finder, "DDGDDG") == "DDG|DDG|"


def test_a_text_encoder_called_once_is_no_part_of_the_cycle() -> None:
    finder = CycleFinder(repeats=3)
    assert ends(finder, "TUUUUU") == "TUUU|U|U|"


def test_a_surprise_forgets_the_cycle() -> None:
    finder = CycleFinder(repeats=2)
    ends(finder, "AAA")
    assert not finder.push("B")
    assert finder.cycle == ()


def test_an_optimizer_for_each_of_hundreds_of_layers_is_one_cycle() -> None:
    finder = CycleFinder(repeats=2)
    rounds = [finder.push(layer) for _ in range(4) for layer in range(300)]
    assert [place for place, ends_a_step in enumerate(rounds) if ends_a_step] == [599, 899, 1199]
