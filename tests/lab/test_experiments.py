"""Every experiment states its claims in full; the list and the command know them all."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import gobrrr.lab as lab
from gobrrr.cli import main
from gobrrr.lab import EXPERIMENTS, experiment_names, find_experiment
from gobrrr.timeline.errors import InputError


@pytest.mark.parametrize(("name", "module"), EXPERIMENTS)
def test_an_experiment_says_what_it_claims_and_where_from(name: str, module: str) -> None:
    found = find_experiment(name)
    assert found.name == name
    assert found.question.endswith("?")
    document = import_module(module).__doc__ or ""
    assert "https://horace.io/brrr_intro.html" in document
    assert "Expected" in document
    keys = [claim.key for claim in found.claims]
    assert len(keys) == len(set(keys)) >= 3
    for claim in found.claims:
        assert claim.least is not None or claim.most is not None, claim.key
        assert claim.source.startswith("https://")
        assert claim.article


def test_the_issue_s_twelve_are_there() -> None:
    assert sorted(experiment_names()) == [
        "activations", "batch", "dit", "fusion", "generations", "intensity", "op-classes",
        "overhead", "regimes", "remat", "run-ahead", "tensor-cores",
    ]  # fmt: skip


def test_the_whole_lab_fits_its_budget() -> None:
    # Five minutes on two CPU cores; each experiment spends at most its own part.
    assert sum(find_experiment(name).budget_s for name in experiment_names()) <= 300


def test_no_experiment_imports_torch_or_matplotlib_when_it_is_imported() -> None:
    folder = Path(lab.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            roots = {name.split(".")[0] for name in names}
            assert not roots & {"torch", "matplotlib", "diffusers"}, path.name


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab"]) == 0
    listed, _, _ = capsys.readouterr().out.partition("\n\n")
    # What goes on from the line above is indented.
    begun = [line for line in listed.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in begun] == list(experiment_names())


def test_a_wrong_name_lists_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "intensty"]) == 2
    error = capsys.readouterr().err
    assert "no experiment 'intensty'; did you mean intensity?" in error
    assert all(name in error for name in experiment_names())
    with pytest.raises(InputError, match="no experiment 'xyz'; there are tensor-cores"):
        find_experiment("xyz")
