"""Scripts with fixes written in: what was tried, in the author's own layout, or nothing."""

from __future__ import annotations

import ast

import pytest

cst = pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.rewriting.rewrite import difference, model_name, rewrite  # noqa: E402
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
    assert "l = DataLoader(d, num_workers=2)\n" in (
        write("loader_workers", source=f"{kept}m = DataLoader(d)\n").text
    )
    # Where nothing is left to set, nothing is claimed to have been.
    assert write("loader_workers", source=kept).text is None


@pytest.mark.parametrize("off", ["0", "None", "False"])
def test_an_argument_that_is_off_is_switched_on_as_in_the_trial(off):
    source = f"from torch.utils.data import DataLoader\nl = DataLoader(d, num_workers={off})\n"
    assert "DataLoader(d, num_workers=min(4" in write("loader_workers", source=source).text
    layer = f"import torch\ntable = torch.nn.Embedding(9, 2, sparse={off})\n"
    text = write("sparse_gradients", source=layer).text
    assert text.endswith("table = torch.nn.Embedding(9, 2, sparse=True)\n")
    optimizer = f"import torch\no = torch.optim.SGD(p, fused={off})\n"
    text = write("foreach_optimizer", source=optimizer).text
    assert text.endswith(f"SGD(p, fused={off}, foreach=True)\n")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("loader_workers", "DataLoader(d, num_workers=args.workers)"),
        ("loader_workers", "DataLoader(d, 2, True, None, None, 0)"),
        ("sparse_gradients", "Embedding(9, 2, None, None, 2.0, False, False)"),
        ("foreach_optimizer", "SGD(p, fused=fused)"),
        ("fused_optimizer", "SGD(p, fused=args.fused)"),
        ("fused_optimizer", "SGD(p, foreach=args.foreach)"),
        ("generate_cache", "model.generate(ids, use_cache=args.cache)"),
    ],
)
def test_an_argument_whose_value_is_not_known_is_not_guessed(name, call):
    home = "from torch.optim import SGD\nfrom torch.nn import Embedding\n"
    source = f"{home}from torch.utils.data import DataLoader\nx = {call}\n"
    result = write(name, source=source)
    assert result.text is None and "in a call whose arguments cannot be" in result.notes[0]


def test_workers_are_not_given_to_an_iterable_data_set():
    source = (
        "from torch.utils.data import DataLoader, IterableDataset\n"
        "class Stream(IterableDataset): ...\n"
        "a, b = DataLoader([1]), DataLoader(Stream())\n"
    )
    result = write("loader_workers", source=source)
    assert result.text is None and "IterableDataset" in result.notes[0]


def test_a_model_is_compiled_before_its_loop():
    text = rewrite(SCRIPT, [BY_NAME["compile"]], 1.5, compiles_by_method=True).text
    lines = text.splitlines()
    at = lines.index("model.compile()")
    assert lines[at - 1] == "# gobrrr fix: 1.50x here with compile"
    assert lines[at + 1] == "for x in loader:"


def test_lines_are_indented_as_the_function_they_stand_in():
    source = (
        "import torch\n\ndef main():\n    net = torch.nn.Linear(1, 1)\n    net.eval()\n"
        "    for _ in range(3):\n        net(torch.ones(1, 1))\n\nmain()\n"
    )
    text = rewrite(source, [BY_NAME["compile_cpp_wrapper"]], 1.5, compiles_by_method=True).text
    assert "    net.compile(options={'cpp_wrapper': True})\n    for _" in text
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


UPDATED = """import torch

net = torch.nn.Linear(4, 4, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

losses = []
for x in [torch.ones(2, 4)] * 3:
    loss = net(x).square().mean()
    losses.append(loss.item())
    update(loss)
"""
CONTEXT = "with torch.autocast(next(net.parameters()).device.type, torch.bfloat16):"


@pytest.mark.parametrize(
    ("back", "update"),
    [
        ("update(loss)", "def update(loss):\n    loss.backward()\n"),
        ("trainer.update(loss)", "from mine import trainer, optim\n"),
        ("g = torch.autograd.grad(loss, net.parameters())", ""),
    ],
    ids=["own function", "elsewhere", "autograd.grad"],
)
def test_a_loop_that_trains_has_a_context_in_each_turn(back, update):
    source = (
        f"import torch\n{update}net = torch.nn.Linear(4, 4)\nnet.train()\nfor x in data:\n"
        f"    loss = net(x).sum()\n    {back}\n"
    )
    text = write("bf16_autocast", source=source).text
    assert f"    {CONTEXT}\n        loss = net(x).sum()\n    {back}\n" in text
    assert text.count("with torch.autocast") == 1


def test_a_loop_without_gradients_is_one_statement_wherever_it_says_so():
    function = "\n@torch.no_grad()\ndef evaluate():\n    for x in data:\n        last = net(x)\n"
    text = write("bf16_autocast", source=LOOP + function).text
    assert f"    {CONTEXT}\n        for x in data:\n            last = net(x)\n" in text
    alone = "import torch\nnet = torch.nn.Linear(4, 4)\nnet.eval()\nfor x in data:\n    net(x)\n"
    assert f"{CONTEXT}\n    for x in data:\n" in write("bf16_autocast", source=alone).text


@pytest.mark.parametrize(
    "loop", ["for x in data: net(x)\n", "while net(x).sum() > 0:\n    x = net(x)\n"]
)
def test_a_call_that_no_context_can_go_around_is_not_left_out(loop):
    assert write("bf16_autocast", source=LOOP + loop).text is None


def test_no_context_is_left_open_by_a_generator():
    source = IMAGES + "def outputs():\n    for x in data:\n        yield net(x)\n"
    assert "generator" in write("bf16_autocast", source=source).notes[0]


@pytest.mark.parametrize("name", ["compile", "bf16_autocast", "one_thread"])
@pytest.mark.parametrize(
    "line", ["import torch as th", "from torch import nn", "def f():\n    import torch"]
)
def test_torch_is_imported_where_it_is_used(name, line):
    source = f'"""Doc."""\nfrom __future__ import annotations\n{line}\nnet.eval()\n'
    source += "net = make()\nfor x in data:\n    net(x)\nimport torch.nn as nn\n"
    text = write(name, source=source).text
    assert text.index("\nimport torch\n") < text.index(line)
    assert write(name, source=text).text.count("\nimport torch\n") == 1
    compile(text, name, "exec")


@pytest.mark.parametrize("line", ["import torch", "import os, torch", "import torch.nn"])
def test_torch_is_imported_once(line):
    source = f"{line}\nnet = make()\nnet.eval()\nnet(1)\n"
    assert write("compile", source=source).text.count("import") == 1


def test_torch_is_not_imported_before_the_environment_is_set():
    source = """import os
os.environ["OMP_NUM_THREADS"] = "1"
from torch import nn, rand
net = nn.Linear(4, 4)
net.eval()
net(rand(2, 4))
"""
    text = write("bf16_autocast", source=source).text
    assert text.index("environ") < text.index("import torch\n") < text.index("from torch")


def test_settings_stand_before_the_run_that_a_late_import_follows():
    text = write("one_thread", source=f"{IMAGES}import json\n").text
    assert text.index("set_num_threads(1)") < text.index("net =")


def test_an_argument_is_replaced_where_it_stands():
    source = (
        "import torch\no = torch.optim.SGD(\n    p,  # all\n    fused=False,  # why\n    lr=1\n)\n"
    )
    text = write("fused_optimizer", source=source).text
    assert text == source.replace("False", "True")


def test_a_function_that_calls_the_model_is_a_call_of_it():
    source = """import torch
model = torch.nn.Linear(4, 4)
model.train()
def step(x):
    model(x).sum().backward()
step(torch.ones(1, 4))
print(model(torch.ones(1, 4)))
"""
    text = write("compile", source=source).text
    assert text.index("torch.compile(lambda") < text.index("\nstep(")


@pytest.mark.parametrize(
    "block",
    [
        "for one in checkpoints:\n    net.load_state_dict(one)\n    seen = net(images)\n",
        "with torch.no_grad():\n    net(images)\n    load(net)\n    seen = net(images)\n",
    ],
)
def test_a_block_that_sets_weights_has_a_context_around_its_calls(block):
    source = IMAGES.replace("net.eval()\n", f"def load(net): net.load_state_dict(one)\n{block}")
    text = write("bf16_autocast", source=f"{source}net.eval()\n").text
    for after in text.split("with torch.autocast")[1:]:
        inside = after.partition("\n")[2]
        assert inside.lstrip().startswith(("net(images)", "seen = net("))


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
    losses = run("bf16_autocast", UPDATED)["losses"]
    assert losses[0] > losses[1] > losses[2]
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
