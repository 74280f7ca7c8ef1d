"""Statements written before a script's first call of its model: where they have their effect."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.rewriting.rewrite import rewrite

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
    assert (
        text.index(before) < text.index("model._compiled_call_impl") < text.index("for x in data")
    )


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
    assert text.index("model._compiled_call_impl") < text.index("for x in data")


MODELS = {
    "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())": False,
    "Net()": True,
}
NET = """class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(4, 4))
    def forward(self, x):
        return self[0](x)
"""


@pytest.mark.torch
@pytest.mark.parametrize("made", MODELS)
def test_a_compiled_model_is_what_it_was_for_the_rest_of_the_script(made, monkeypatch):
    import torch

    from gobrrr.observe.compiler_counters import graphs_compiled

    # Both are compiled as in the trial; a C++ compiler is not what is asked for here.
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call: compile_(call, backend="eager"))
    rest = "names = [*model.state_dict()]\nfirst, copied = model[0], copy.deepcopy(model)\n"
    source = filled(functions=f"import copy\n{NET}data = [torch.rand(2, 4)] * 3") + rest
    source = source.replace("Net()\nopt", f"{made}\nopt").replace("parameters()", "parameters(), 0")
    text = rewrite(source, [BY_NAME["compile"]], 1.5, compiles_by_method=MODELS[made]).text
    assert ("model.compile()\n" in text) == MODELS[made]
    before, scope = graphs_compiled(), {"__name__": "script"}
    exec(compile(text, "script", "exec"), scope)
    assert graphs_compiled() == before + 1
    assert scope["names"] == ["0.weight", "0.bias"] and type(scope["first"]) is torch.nn.Linear
    assert scope["copied"](torch.ones(1, 4)).shape == (1, 4)


@pytest.mark.torch
def test_each_of_several_models_runs_its_own_weights(monkeypatch):
    import torch

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call: compile_(call, backend="eager"))
    made = "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())"
    source = f"""import torch
x, kept = torch.rand(2, 4), []
for fold in range(2):
    model = {made}
    model.train()
    model(x)
    kept.append(model)
"""
    scope = {"__name__": "script"}
    exec(write(source).text, scope)
    assert all(torch.equal(each(scope["x"]), each.forward(scope["x"])) for each in scope["kept"])


def test_names_are_the_same_before_and_after_a_model_is_compiled():
    taken = "kept = {n: p.clone() for n, p in model.named_parameters()}"
    result = write(filled(taken, taken))
    assert result.text is not None and result.notes == ()


EVALUATES = """import torch
{functions}
model = Net()
model.eval()
model.load_state_dict(torch.load("weights.pt"))
for x in data:
    with gobrrr.step():
        model(x)
{after}
"""
TUNED = "optimizer = torch.optim.SGD(model.parameters())\nmodel(x).sum().backward()"


@pytest.mark.parametrize("name", ["inference_mode", "compile_freezing"])
@pytest.mark.parametrize(
    ("after", "functions"),
    [
        (TUNED, ""),
        ("tune(model)", "from tuning import tune"),
        ("tune(model)", f"def tune(model):\n    {TUNED.partition(chr(10))[0]}\n"),
    ],
)
def test_what_no_gradients_go_through_is_not_written_where_a_script_may_train_later(
    name, after, functions
):
    result = write(EVALUATES.format(functions=functions, after=after), name)
    assert result.text is None and "may train it later" in result.notes[0]
    for looks in ("print(net)", "with torch.no_grad():\n        return [net(x) for x in data]"):
        kept = EVALUATES.format(functions=f"def look(net):\n    {looks}\n", after="look(model)")
        assert write(kept, name).text is not None


def test_weights_in_compiled_code_are_not_written_where_a_script_may_set_others():
    source = EVALUATES.format(functions="", after="model.load_state_dict(other)\nmodel(x)")
    result = write(source, "compile_freezing")
    assert result.text is None and "may set others later" in result.notes[0]
    # Other weights need no other compilation.
    assert write(source).text is not None and write(source, "inference_mode").text is not None


@pytest.mark.parametrize(
    "made", ["model: torch.nn.Module = Net()", "(model := Net())", "print(model := Net())",
             "size = len((model := Net()))", "model: Net\nmodel = Net()"],
)  # fmt: skip
def test_a_model_is_made_by_any_assignment(made):
    result = write(filled().replace("model = Net()", made))
    assert result.text is not None, result.notes
    compiled = result.text.index("model._compiled_call_impl")
    assert result.text.index(made) < compiled < result.text.index("for x in data")


def test_what_gets_the_model_as_it_is_made_may_call_it_too():
    for made in ("trainer = Trainer(model := Net())", "nets = [model := Net()]"):
        result = write(filled().replace("model = Net()", made))
        assert result.text is None and "may call it too" in result.notes[0]
    again = write(filled() + "model: Net = Net()\nmodel(x)\n")
    assert again.text is None and "more than one place" in again.notes[0]


def test_a_model_is_found_that_a_function_s_first_statement_makes():
    body = "(model := Net()).train()\n    model.train()\n    for x in data:\n        model(x)\n"
    assert write(f"import torch\ndef main():\n    {body}main()\n").text is not None
