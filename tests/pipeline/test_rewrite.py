from __future__ import annotations

import ast

import pytest

from gobrrr.fixes import FIXES
from gobrrr.pipeline.rewrite import difference, model_name, rewrite
from gobrrr.timeline.errors import InputError

BY_NAME = {fix.name: fix for fix in FIXES}
SCRIPT = '''"""Trains. Ümlauts count as two bytes."""
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,
)
loader = DataLoader([1, 2], batch_size=2)  # ü
for x in loader:
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
'''


def write(*names, source=SCRIPT):
    return rewrite(source, [BY_NAME[name] for name in names], 1.5)


def test_arguments_are_added_to_the_calls():
    text = write("fused_optimizer", "loader_workers").text
    assert "    lr=1e-3, fused=True\n)" in text
    assert "DataLoader([1, 2], batch_size=2, num_workers=4, persistent_workers=True)  # ü" in text


def test_a_model_is_compiled_before_its_loop():
    text = write("compile").text
    lines = text.splitlines()
    at = lines.index("model.compile()")
    assert lines[at - 1] == "# gobrrr fix: 1.50x here with compile"
    assert lines[at + 1] == "for x in loader:"


def test_lines_are_indented_as_the_function_they_stand_in():
    source = (
        "import torch\n\ndef main():\n    net = torch.nn.Linear(1, 1)\n    net.eval()\n"
        "    for _ in range(3):\n        net(torch.ones(1, 1))\n\nmain()\n"
    )
    text = write("compile_cpp_wrapper", source=source).text
    assert "    net.compile(options={'cpp_wrapper': True})\n    for _" in text
    ast.parse(text)


def test_settings_stand_after_the_imports():
    text = write("one_thread").text
    assert text.index("torch.set_num_threads(1)") < text.index("model =")
    assert text.index("torch.set_num_threads(1)") > text.index("import DataLoader")


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_whatever_the_fix_the_result_is_valid_python(fix):
    result = rewrite(SCRIPT, [fix], 1.1)
    ast.parse(result.text)
    # Changed, or said that it is the author's to change.
    assert result.text != SCRIPT or result.notes


def test_an_unclear_model_is_a_note_and_not_a_guess():
    source = "a.eval()\nb.eval()\na(1)\nb(2)\n"
    assert model_name(ast.parse(source)) is None
    result = write("compile", source=source)
    assert result.text == source
    assert "compile is yours to write" in result.notes[0]


def test_variables_of_the_environment_are_a_note():
    assert "GLIBC_TUNABLES=" in write("glibc_tunables").notes[0]


def test_a_difference_names_both_files():
    text = write("fused_optimizer").text
    shown = difference(SCRIPT, text, "train.py", "fast.py")
    assert shown.startswith("--- train.py\n+++ fast.py\n")
    assert "+    lr=1e-3, fused=True" in shown


def test_what_is_not_python_is_refused():
    with pytest.raises(InputError, match="line 1"):
        write("compile", source="for\n")
