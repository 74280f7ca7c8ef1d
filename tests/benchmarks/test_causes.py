"""The benchmark of causes: its keys, programs and how an answer is held against them."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.causes.keys import HERE, Key, not_run, read_keys
from benchmarks.causes.score import first_sentences, score_program, score_sound, summary

KEYS = read_keys()


def test_every_program_has_a_key_and_every_key_a_program() -> None:
    assert set(KEYS) == {path.name for path in (HERE / "programs").iterdir() if path.is_dir()}
    assert len(KEYS) >= 36
    assert all(row["why"].startswith("needs a GPU") for row in not_run())


@pytest.mark.parametrize("key", KEYS.values(), ids=str)
def test_a_key_names_lines_that_are_there(key: Key) -> None:
    text = key.script("program").read_text()
    lines = text.splitlines()
    assert [lines[number - 1].strip() for number in key.lines] == list(key.holds)
    assert bool(key.lines) != key.note.startswith("no line")
    assert key.words and key.remedy and key.cause.isidentifier()
    assert not set(key.wrong) & {key.cause, *key.aliases, key.fix}


@pytest.mark.parametrize("key", KEYS.values(), ids=str)
def test_program_and_sound_twin_compile_and_differ(key: Key) -> None:
    program, sound = (key.script(which).read_text() for which in ("program", "sound"))
    assert ast.dump(ast.parse(program)) != ast.dump(ast.parse(sound))
    assert ast.get_docstring(ast.parse(program)) == ast.get_docstring(ast.parse(sound))
    # The answer does not stand in the program.
    assert "gobrrr" not in program and "flaw" not in program


def key(**changed: Any) -> Key:
    made = Key(
        name="x", cause="list_of_arrays", aliases=("arrays",), lines=(7, 9), holds=("a", "b"),
        words=("np.stack",), remedy=("from_numpy",), wrong=("compile",), fix="", ranks=1, env={},
    )  # fmt: skip
    return replace(made, **changed)


def finding(name: str, saves_s: float | None, *sources: str) -> dict[str, Any]:
    prediction = None if saves_s is None else {"expected_s": saves_s}
    return {"fix": name, "prediction": prediction, "saving_s": None, "sources": list(sources)}


def diagnosis(verdict: str, *findings: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "findings": list(findings), "step": {"time_s": {"median": 1.0}}}


SAID = "Python takes 0.8 s of it. Use np.stack (np.array) there. It saves half. And more."


def test_a_cause_is_named_only_with_its_word_at_the_beginning() -> None:
    found = finding("list_of_arrays", 0.5, "folder/program.py:9")
    told = score_program(key(), diagnosis(SAID, found), "torch.from_numpy")
    assert (told["named"], told["line"], told["remedy"], told["wrong"]) == (True, True, True, [])
    late = "One. Two. Three. Use np.stack there."
    assert not score_program(key(), diagnosis(late, found), "")["named"]
    assert not score_program(key(), diagnosis(SAID, finding("compile", 0.5)), "")["named"]
    assert score_program(key(), diagnosis(SAID, finding("arrays", 0.1)), "")["named"]


def test_a_line_counts_in_the_program_alone() -> None:
    for source in ("program.py:8", "my_program.py:9", "sound.py:9", "program.py:90"):
        found = finding("list_of_arrays", 0.5, source)
        assert score_program(key(), diagnosis(SAID, found), "")["line"] is False
    assert score_program(key(lines=()), diagnosis(SAID), "")["line"] is None


def test_what_is_wrong_to_say_is_kept() -> None:
    told = score_program(key(), diagnosis(SAID, finding("compile", 0.2)), "")
    assert told["wrong"] == ["compile"]
    assert score_program(key(), diagnosis(SAID, finding("compile", 0.02)), "")["wrong"] == []


def test_a_promise_on_a_sound_program_is_false() -> None:
    causes = frozenset({"list_of_arrays", "gil"})
    rows = {
        "own": finding("list_of_arrays", 0.001),
        "unpredicted": finding("arrays", None),
        "large": finding("gil", 0.2),
        "small": finding("gil", 0.01),
        "fix": finding("loader_workers", 0.5),
    }
    false = {
        name: bool(score_sound(key(), causes, diagnosis("", row))["false"])
        for name, row in rows.items()
    }
    assert false == {"own": True, "unpredicted": True, "large": True, "small": False, "fix": False}


def test_a_dot_in_a_name_ends_no_sentence() -> None:
    assert first_sentences("It takes 0.5 ms in a.b(c). Then x. Y. Z.", 2) == (
        "It takes 0.5 ms in a.b(c). Then x."
    )


def test_misses_are_listed() -> None:
    told = {"named": False, "line": False, "remedy": True, "wrong": []}
    good = {"named": True, "line": None, "remedy": True, "wrong": []}
    found = summary(
        [
            {"program": "a", "told": told, "sound": {"false": ["gil"]}},
            {"program": "b", "told": good, "sound": {"false": []}, "fix": {"verdict": "faster"}},
            {"program": "c", "error": "it ended"},
        ]
    )
    assert found["named"] == [1, 2] and found["line"] == [0, 1] and found["false"] == [1, 2]
    assert found["missed"] == ["a", "c"] and found["errors"] == ["c"] and found["fix"] == [1, 1]


def test_a_key_file_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[x]\ncause = "y"\nline = [1]\n')
    with pytest.raises(TypeError):
        read_keys(path)
