"""Statements written before a script's first call of its model: where they have their effect."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.rewrite import rewrite

BY_NAME = {fix.name: fix for fix in FIXES}
SCRIPT = """import torch
{functions}
model = Net()
optimizer = torch.optim.SGD(model.parameters())
{before}
for x in data:
    model(x).sum().backward()
    optimizer.step()
    {after}
"""


def write(source, name="compile"):
    return rewrite(source, [BY_NAME[name]], 1.5)


def filled(before="pass", after="pass", functions=""):
    return SCRIPT.format(functions=functions, before=before, after=after)


@pytest.mark.parametrize("name", ["compile", "channels_last", "bf16_storage"])
@pytest.mark.parametrize(
    ("before", "functions"),
    [
        ("trainer = Trainer(model)", ""),
        ("trainer.net = model", ""),
        ("nets = [model]", ""),
        ("nets = [model for _ in range(2)]", ""),
        ("net = model if training else None", ""),
        ("net = wrapped or model", ""),
        ("forward = model.forward", ""),
        ("f = lambda x, m=model: m(x)", ""),
        ("step = make(model)", "def make(net):\n    return lambda x: net(x)\n"),
        ("same = checked(net=model)", "def checked(net):\n    return net\n"),
    ],
)
def test_a_model_that_something_else_has_by_then_is_not_changed_too_late(name, before, functions):
    result = write(filled(before, functions=functions), name)
    assert result.text is None and "may call it too" in result.notes[0]


@pytest.mark.parametrize(
    ("before", "functions"),
    [
        ("print(model)", ""),
        ("start = copy.deepcopy(model)", ""),
        ("model = torch.nn.DataParallel(model)", ""),
        ("model, optimizer = accelerator.prepare(model, optimizer)", ""),
        ("begin(model)", "def begin(net):\n    for p in net.parameters():\n        p.zero_()\n"),
    ],
)
def test_what_only_looks_at_the_model_does_not_hold_it(before, functions):
    text = write(filled(before, functions=functions)).text
    assert text.index(before) < text.index("torch.compile(model)") < text.index("for x in data")


def test_a_model_that_two_blocks_make_is_not_changed_in_one_of_them():
    function = "def {0}():\n    model = Net()\n    model.eval()\n    return model(x)\n"
    source = f"import torch\n{function.format('first')}{function.format('second')}second()\n"
    result = write(source)
    assert result.text is None and "more than one place" in result.notes[0]


def test_a_model_that_is_made_again_is_not_changed_once():
    source = filled() + "model = Net()\nfor x in data:\n    model(x)\n"
    result = write(source)
    assert result.text is None and "more than one place" in result.notes[0]


def test_a_closure_that_an_optimizer_is_given_calls_the_model():
    source = filled().replace("model(x).sum().backward()", "optimizer.step(closure)")
    closure = "def closure():\n    loss = model(x).sum()\n    loss.backward()\n    return loss\n"
    text = write(f"{source.replace('for x', f'{closure}for x')}print(model(x))\n").text
    assert text.index("torch.compile(model)") < text.index("for x in data")


KEPT = "kept = {n: p.clone() for n, p in model.named_parameters()}"
TAKEN = "for n, p in model.named_parameters(): kept[n] = p"
GROUPS = "def groups(net):\n    return [p for n, p in net.named_parameters() if n != 'bias']\n"


@pytest.mark.parametrize(
    ("before", "after", "functions"),
    [
        (KEPT, TAKEN, ""),
        ("kept = model.state_dict()", TAKEN, ""),
        (KEPT, "update(model)", f"def update(model):\n    {TAKEN}\n"),
    ],
)
def test_names_that_compiling_changes_are_not_mixed(before, after, functions):
    result = write(filled(before, after, functions))
    assert result.text is None and "by name both before and after" in result.notes[0]
    # Statements that change no names go there.
    assert write(filled(before, after, functions), "bf16_storage").text is not None


def test_names_that_compiling_changes_are_told_to_who_takes_them_later():
    assert "model._orig_mod" in write(filled(after=TAKEN)).notes[0]
    assert write(filled("optimizer = SGD(groups(model))", functions=GROUPS)).notes == ()
