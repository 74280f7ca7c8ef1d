"""Arguments written into the calls of a script."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.rewriting.rewrite import rewrite

BY_NAME = {fix.name: fix for fix in FIXES}


def write(name, *, source):
    return rewrite(source, [BY_NAME[name]], 1.5)


def test_comments_stay_when_their_argument_goes():
    source = (
        "import torch\no = torch.optim.SGD(\n    p,  # all\n    foreach=True,  # why\n    lr=1\n)\n"
    )
    text = write("fused_optimizer", source=source).text
    assert "    p,  # all\n    # why\n    lr=1, fused=True\n)" in text
    text = write("fused_optimizer", source=source.replace(",  # why\n    lr=1", "  # why")).text
    assert "    p, fused=True  # all\n    # why\n)" in text


def test_a_generator_beside_another_argument_has_parentheses():
    source = "import torch\no = torch.optim.SGD(p for p in ps if p.requires_grad)\n"
    text = write("fused_optimizer", source=source).text
    assert text.endswith("SGD((p for p in ps if p.requires_grad), fused=True)\n")
    compile(text, "script", "exec")


def test_what_would_not_be_valid_python_is_refused():
    # LibCST reads more than Python does.
    result = write("one_thread", source="import torch\nreturn\n")
    assert result.text is None
    assert "line 5 of the changed script would not be valid Python" in result.notes[0]
    assert write("one_thread", source="\ufeffimport torch\n").text is not None


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("set_to_none", "class T:\n    def zero_grad(self): ...\nT().zero_grad()\n"),
        (
            "sparse_gradients",
            "class Embedding(nn.Module):\n    def __init__(self, n):\n"
            "        self.e = nn.Embedding(n, 4)\ne = Embedding(4)\n",
        ),
        (
            "loader_workers",
            "class DataLoader:\n    def __init__(self, d):\n"
            "        self.d = torch.utils.data.DataLoader(d)\nd = DataLoader(9)\n",
        ),
        ("generate_cache", "def generate(m, i):\n    return m.generate(i)\ngenerate(m, i)\n"),
        ("one_thread", "def set_num_threads(n): ...\nset_num_threads(4)\n"),
    ],
)
def test_functions_of_the_script_itself_are_not_given_arguments(name, source):
    result = write(name, source=f"import torch\nfrom torch import nn\n{source}")
    assert result.text is None and "which the script defines itself" in result.notes[0]


def test_a_method_of_the_name_of_something_else_is_not_given_the_argument():
    source = (
        "import torch\nfrom data import generate\nrows = generate(9)\nout = model.generate(ids)\n"
    )
    text = write("generate_cache", source=source).text
    assert "rows = generate(9)" in text and "model.generate(ids, use_cache=True)" in text
    result = write("generate_cache", source=source + "more = corpus.generate(9)\n")
    assert result.text is None and "cannot be edited" in result.notes[0]
    # Several optimizers have one method.
    source = "import torch\none.zero_grad(set_to_none=False)\ntwo.zero_grad(set_to_none=False)\n"
    assert write("set_to_none", source=source).text.count("set_to_none=True") == 2


LOADED = """import torch
from torch.utils.data import DataLoader, Subset
x, y = make()
data = Data(x, y)
part = Subset(data, [0])
loader = DataLoader(part, 8)
def begin(epoch, some):
    some.set_epoch(epoch)
data.set_epoch(1)
for epoch in range(2):
    {change}
    for x, y in loader:
        x.mean().backward()
        print(len(data), loader.sampler.set_epoch(1))
"""


@pytest.mark.parametrize(
    "change",
    [
        "data.set_epoch(epoch)",
        "part.indices[0] = epoch",
        "loader.dataset.epoch = epoch",
        "begin(epoch, part)",
        "data.epoch += 1",
    ],
)
def test_workers_do_not_outlive_a_change_of_their_data(change):
    result = write("loader_workers", source=LOADED.format(change=change))
    assert "DataLoader(part, 8, num_workers=min(" in result.text
    assert "persistent_workers" not in result.text
    assert any("persistent_workers=True" in note for note in result.notes)
    named = LOADED.replace("DataLoader(part, 8)", "DataLoader(batch_size=8, dataset=part)")
    text = write("loader_workers", source=named.format(change=change)).text
    assert "persistent_workers" not in text


def test_workers_of_data_that_stay_as_they_are_live_on():
    result = write("loader_workers", source=LOADED.format(change="model.train()"))
    assert "persistent_workers=True" in result.text and not result.notes


@pytest.mark.parametrize(
    ("name", "source", "written"),
    [
        (
            "fused_optimizer",
            "from torch.optim import AdamW as Opt, Adam\na, b = Opt(p), Adam(q)\n",
            ["Opt(p, fused=True)", "Adam(q, fused=True)"],
        ),
        ("fused_optimizer", "from torch.optim import *\no = SGD(p)\n", ["SGD(p, fused=True)"]),
        ("fused_optimizer", "import torch.optim as o\na = o.SGD(p)\n", ["o.SGD(p, fused=True)"]),
        (
            "sparse_gradients",
            "from torch import nn\na = nn.Embedding.from_pretrained(w, freeze=False)\n"
            "b = nn.Embedding(9, 2)\n",
            ["from_pretrained(w, freeze=False, sparse=True)", "Embedding(9, 2, sparse=True)"],
        ),
        (
            "loader_workers",
            "from torch.utils.data import DataLoader as L\nl = L(d)\n",
            ["L(d, num_workers=min("],
        ),
        (
            "one_thread",
            "import numba, torch\nfrom torch import set_num_threads as threads\n"
            "numba.set_num_threads(4)\nthreads(8)\n",
            ["numba.set_num_threads(4)", "\nthreads(1)"],
        ),
        (
            "fused_optimizer",
            "from torch.optim import SGD, Optimizer\no: SGD = SGD(p)\n"
            "def show(o: SGD):\n    assert isinstance(o, SGD) and type(o) is SGD\n",
            ["o: SGD = SGD(p, fused=True)", "isinstance(o, SGD)"],
        ),
        (
            "fused_optimizer",
            "import torch\nclass Mine(torch.optim.SGD): ...\na, b = torch.optim.SGD(p), Mine(q)\n",
            ["SGD(p, fused=True), Mine(q)"],
        ),
        (
            "one_thread",
            "import torch\nif hasattr(torch, 'compile'):\n    d = getattr(torch, 'bfloat16')\n"
            "torch.set_num_threads(4)\n",
            ["set_num_threads(1)"],
        ),
    ],
)
def test_calls_are_told_by_where_their_names_come_from(name, source, written):
    text = write(name, source=source).text
    assert all(part in text for part in written)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fused_optimizer", "from mylib import SGD\na = SGD(p)"),
        ("fused_optimizer", "import mylib\na = mylib.SGD(p)"),
        ("fused_optimizer", "try:\n    from apex import Adam\nexcept ImportError:\n"
         "    from torch.optim import Adam\na = Adam(p)"),
        ("fused_optimizer", "C = torch.optim.SGD\na = C(p)"),
        ("fused_optimizer", "a = functools.partial(torch.optim.Adam, lr=1)(p)"),
        ("fused_optimizer", "a = getattr(torch.optim, name)(p)"),
        ("fused_optimizer", "a = {'adam': torch.optim.Adam}[name](p)"),
        ("sparse_gradients", "make = torch.nn.Embedding\na = make(4, 4)"),
        ("loader_workers", "class L(torch.utils.data.DataLoader): ...\na = L(d)"),
        ("one_thread", "threads = torch.set_num_threads\nthreads(4)"),
    ],
)  # fmt: skip
def test_nothing_is_written_where_what_was_tried_may_not_be_all_in_sight(name, line):
    sure = (
        "o = torch.optim.SGD(p)\ne = torch.nn.Embedding(9, 2)\nl = torch.utils.data.DataLoader(d)"
    )
    source = f"import torch, functools\n{sure}\n"
    assert write(name, source=source).text is not None
    result = write(name, source=f"{source}{line}\n")
    assert result.text is None and ", and line " in result.notes[0]


@pytest.mark.parametrize(
    ("source", "once"),
    [
        ("o = torch.optim.SGD(p)\n", True),
        ("def main():\n    o = torch.optim.SGD(p)\nif __name__ == '__main__':\n    main()\n", True),
        ("for p in ps:\n    o = torch.optim.SGD(p)\n", False),
        ("os = [torch.optim.SGD(p) for p in ps]\n", False),
        ("def make(p):\n    return torch.optim.SGD(p)\na, b = make(p), make(q)\n", False),
        ("def make(p):\n    return torch.optim.SGD(p)\nos = map(make, ps)\n", False),
        ("def turn():\n    o = torch.optim.SGD(p)\n    turn()\n", False),
        ("class T:\n    def begin(self):\n        self.o = torch.optim.SGD(p)\n", False),
    ],
)
def test_where_more_was_changed_than_a_script_makes_nothing_is_written(source, once):
    source = f"import torch\nfrom helpers import another\n{source}"
    fix = [BY_NAME["fused_optimizer"]]
    assert rewrite(source, fix, 1.5, objects={"fused_optimizer": 1}).text is not None
    result = rewrite(source, fix, 1.5, objects={"fused_optimizer": 2})
    assert (result.text is None) == once
    assert not once or "changed 2 of what" in result.notes[0]
