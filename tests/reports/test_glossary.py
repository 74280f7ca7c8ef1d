"""The words: one meaning each, on the page of the docs, in the HTML report and by command."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gobrrr.attribution.leaves import LEAVES
from gobrrr.causes.catalogue import CAUSES
from gobrrr.cli import main
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.catalogue import FIXES
from gobrrr.reports.explanations import explanations, explanations_of
from gobrrr.reports.glossary import TERMS, Glosses, meaning_of
from gobrrr.reports.html import report_html
from gobrrr.reports.words import PARTS

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
RULE = "|---|---|---|"
HEADS = ("| word | meaning | also |", "| part | meaning | in the JSON |")


def page_of_docs() -> str:
    before = PAGE.read_text().partition(HEADS[0])[0].rstrip("\n")
    lines = [before, "", HEADS[0], RULE]
    lines += [f"| {t.word} | {t.meaning} | {', '.join(t.spellings)} |" for t in TERMS]
    lines += ["", "The parts of a step, which sum to it:", "", HEADS[1], RULE]
    for part in itertools.chain(*PARTS.values()):
        leaves = filter(None, (part.leaf, part.roof, part.below))
        names = ", ".join(f"`{leaf}`" for leaf in leaves)
        lines.append(f"| {part.label} | {part.meaning} | {names} |")
    return "\n".join(lines) + "\n"


def test_the_page_says_what_the_glossary_says() -> None:
    wanted = page_of_docs()
    if os.environ.get("GOBRRR_UPDATE_SNAPSHOTS"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted


def test_no_spelling_has_two_meanings() -> None:
    spellings = [text.lower() for term in TERMS for text in (term.word, *term.spellings)]
    assert len(spellings) == len(set(spellings))


def test_a_term_is_marked_where_it_first_stands_and_nowhere_else() -> None:
    gloss = Glosses()
    assert gloss("a <b> of Memory traffic") == (
        f'a &lt;b&gt; of <abbr title="{meaning_of("traffic").replace(chr(39), "&#39;")}">'
        "Memory traffic</abbr>"
    )
    assert gloss("traffic") == "traffic"
    assert gloss("memory").startswith("<abbr")
    assert gloss("in-memory rooflines") == "in-memory rooflines"


def test_the_html_report_explains_each_term_once(training: Diagnosis) -> None:
    marked = re.findall(r'<abbr title="[^"]+">([^<]+)</abbr>', report_html(training))
    meanings = [meaning_of(text) for text in marked]
    assert len(meanings) == len(set(meanings))
    assert {"compute", "memory", "overhead", "speed of light", "Roofline", "MFU"} <= set(marked)


@pytest.mark.parametrize(
    "name", [*LEAVES, *(cause.name for cause in CAUSES), *(fix.name for fix in FIXES)]
)
def test_every_name_of_a_report_is_explained(name: str) -> None:
    assert explanations_of(name)


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    return shown


def test_a_cause_has_its_remedy_the_words_and_the_fix(capsys: pytest.CaptureFixture[str]) -> None:
    shown = explained(capsys, "no_loader_workers")
    for part in ("known cause", "num_workers=4", "DataLoader bottleneck", "--only loader_workers"):
        assert part in shown


def test_a_fix_has_its_change_and_a_part_the_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "model = torch.compile(model)" in explained(capsys, "torch.compile")
    assert "fused_attention" in explained(capsys, "page", "faults")


def test_a_word_that_people_search_for_finds_its_causes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = explained(capsys, "NUM_WORKERS")
    assert "no_loader_workers" in shown and "image_decoding" in shown


def test_without_a_word_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = explained(capsys)
    lines = shown.splitlines()
    for kind, of_kind in explanations().items():
        assert kind in lines
        assert all(f" {each.name}" in shown for each in of_kind)
    # A line each, and one screen or two.
    assert len([line for line in lines if line.startswith("  step:")]) == 1 and len(lines) < 100


def test_a_word_of_the_verdict_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "processor time" in explained(capsys, "provisional")
    assert "neither compute nor memory" in explained(capsys, "overhead")


@pytest.mark.parametrize(("word", "near"), [("rofline", "roofline"), ("num_worker", "num_workers")])
def test_an_unknown_word_gets_the_nearest(
    word: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 2
    said = capsys.readouterr().err
    assert word in said and near in said


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from gobrrr.cli import main; main(['explain', 'SOL']);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
