"""Scripts with fixes written in: what was tried, in the author's own layout, or nothing."""

from __future__ import annotations

import ast

import pytest

cst = pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.rewrite import difference, model_name, rewrite  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402

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
IMAGES = """import torch

net = torch.nn.Conv2d(3, 4, 1).eval()
net.eval()
seen = net(torch.rand(2, 3, 5, 5))
"""


def write(*names, source=SCRIPT):
    return rewrite(source, [BY_NAME[name] for name in names], 1.5)


def test_arguments_are_added_to_the_calls():
    text = write("fused_optimizer", "loader_workers").text
    assert "    lr=1e-3, fused=True\n)" in text
    workers = "num_workers=min(4, len(os.sched_getaffinity(0))), persistent_workers=True"
    assert f"DataLoader([1, 2], batch_size=2, {workers})  # ü" in text


def test_an_argument_that_is_there_is_set_and_one_that_contradicts_it_goes():
    source = "import torch\no = torch.optim.SGD(p, lr=1, foreach=True, fused=False)\n"
    assert write("fused_optimizer", source=source).text.endswith("SGD(p, lr=1, fused=True)\n")


def test_a_loader_that_has_workers_keeps_them():
    kept = "from torch.utils.data import DataLoader\nl = DataLoader(d, num_workers=2)\n"
    assert "DataLoader(d, num_workers=2)" in write("loader_workers", source=kept).text


def test_a_model_is_compiled_before_its_loop():
    text = write("compile").text
    lines = text.splitlines()
    at = lines.index("model = torch.compile(model)")
    assert lines[at - 1] == "# gobrrr fix: 1.50x here with compile"
    assert lines[at + 1] == "for x in loader:"


def test_lines_are_indented_as_the_function_they_stand_in():
    source = (
        "import torch\n\ndef main():\n    net = torch.nn.Linear(1, 1)\n    net.eval()\n"
        "    for _ in range(3):\n        net(torch.ones(1, 1))\n\nmain()\n"
    )
    text = write("compile_cpp_wrapper", source=source).text
    assert "    net = torch.compile(net, options={'cpp_wrapper': True})\n    for _" in text
    ast.parse(text)


def test_settings_stand_after_the_imports():
    text = write("one_thread").text
    assert text.index("torch.set_num_threads(1)") < text.index("model =")
    assert text.index("torch.set_num_threads(1)") > text.index("import DataLoader")


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_whatever_the_fix_the_result_is_valid_python(fix):
    result = rewrite(SCRIPT, [fix], 1.1)
    if result.text is None:
        # Said that it is the author's to change, and how.
        assert "Not written" in result.notes[0] and fix.snippet in result.notes[-1]
        return
    ast.parse(result.text)
    assert result.text != SCRIPT or result.notes


def test_a_set_is_written_as_a_whole_or_not_at_all():
    # Together they were verified; fused attention has no place that can be told.
    result = write("fused_optimizer", "fused_attention")
    assert result.text is None
    assert "fused_attention" in result.notes[0]
    assert any("fused=True" in note for note in result.notes)


def test_an_unclear_model_is_a_note_and_not_a_guess():
    source = "a.eval()\nb.eval()\na(1)\nb(2)\n"
    assert model_name(cst.parse_module(source)) is None
    result = write("compile", source=source)
    assert result.text is None
    assert "gobrrr cannot tell its variable" in result.notes[0]
    assert "model = torch.compile(model)" in result.notes[1]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("fused_optimizer", "import torch\no = torch.optim.SGD(p, **options)\n"),
        ("set_to_none", "import torch\noptimizer.zero_grad(False)\n"),
        ("fused_optimizer", "import torch\no = make_optimizer()\n"),
        ("compile", "import torch\nmodel.eval()\nmodel(1)\n"),
    ],
    ids=["spread", "positional", "elsewhere", "made elsewhere"],
)
def test_what_cannot_be_placed_is_not_written(name, source):
    assert write(name, source=source).text is None


def test_variables_of_the_environment_are_a_note():
    result = write("glibc_tunables")
    assert result.text == SCRIPT
    assert "GLIBC_TUNABLES=" in result.notes[0]


def test_a_difference_names_both_files():
    text = write("fused_optimizer").text
    shown = difference(SCRIPT, text, "train.py", "fast.py")
    assert shown.startswith("--- train.py\n+++ fast.py\n")
    assert "+    lr=1e-3, fused=True" in shown


def test_what_is_not_python_is_refused():
    with pytest.raises(InputError, match="line 1"):
        write("compile", source="for\n")


LOOP = """import torch

net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = [torch.ones(2, 4)] * 3
for x in data:
    optimizer.zero_grad()
    # Forward.
    out = net(x)
    loss = out.square().mean()
    if loss == loss:
        loss.backward()
    optimizer.step()
with torch.no_grad():
    for x in data:
        last = net(x)
"""


def test_one_context_goes_around_forward_and_loss_and_around_all_of_an_evaluation():
    text = write("bf16_autocast", source=LOOP).text
    context = "with torch.autocast(next(net.parameters()).device.type, torch.bfloat16):"
    comment = "# gobrrr fix: 1.50x here with bf16_autocast"
    assert (
        f"    # Forward.\n    {comment}\n    {context}\n        out = net(x)\n"
        "        loss = out.square().mean()\n    if loss == loss:\n        loss.backward()\n"
    ) in text
    assert f"{comment}\n{context}\n    with torch.no_grad():\n        for x in data:\n" in text
    assert text.count("with torch.autocast") == 2
    # Results are float32 again from before the first call on.
    assert text.index("register_forward_hook") < text.index("for x in data:")


def test_a_step_of_one_statement_cannot_be_split():
    result = write("bf16_autocast")
    assert result.text is None
    assert "the forward and the backward pass are one statement" in result.notes[0]


@pytest.mark.torch
def test_what_is_written_does_what_was_tried():
    torch = pytest.importorskip("torch")

    def run(name, source=IMAGES):
        made = {}
        exec(compile(write(name, source=source).text, name, "exec"), made)
        return made

    assert run("fused_optimizer", SCRIPT)["optimizer"].param_groups[0]["fused"]
    assert run("inference_mode")["seen"].is_inference()
    made = run("bf16_autocast", LOOP)
    assert made["last"].dtype == torch.float32 and made["net"].weight.grad is not None
    low = run("bf16_autocast")
    assert low["seen"].dtype == torch.float32
    assert low["net"].weight.dtype == torch.float32
    assert run("bf16_storage")["net"].weight.dtype == torch.bfloat16
    assert run("bf16_storage")["seen"].dtype == torch.float32
    seen = run("channels_last")["seen"]
    assert seen.is_contiguous(memory_format=torch.channels_last)
    before = torch.get_float32_matmul_precision()
    try:
        run("bf16_matmul")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
