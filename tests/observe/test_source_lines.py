"""Which line is blamed: the deepest outside torch, and the user's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gobrrr.observe import source_lines
from gobrrr.observe.source_lines import blamed_line, user_line
from gobrrr.timeline.names import FROM, short_source

HOME = "/venv/lib/site-packages/"
TORCH = f"{HOME}torch/nn/modules/module.py"
BERT = f"{HOME}transformers/models/bert/modeling_bert.py"
TRAINER = f"{HOME}transformers/trainer.py"
THREADING = "/usr/lib/python3.12/threading.py"


def stack(*frames: tuple[str, int, str]):
    """Frames of (file, line, function), the innermost first."""
    found = None
    for file, line, function in reversed(frames):
        code = SimpleNamespace(co_filename=file, co_name=function)
        found = SimpleNamespace(f_code=code, f_lineno=line, f_back=found)
    return found


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Where packages are, and that nothing is remembered of where they really are."""
    cached = ("_library_prefixes", "_torch_homes", "_installed_homes", "is_user_file",
              "library_path")  # fmt: skip
    for name in cached:
        getattr(source_lines, name).cache_clear()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__=f"{HOME}torch/__init__.py"))
    monkeypatch.setattr(
        source_lines.sysconfig, "get_paths",
        lambda: dict.fromkeys(("stdlib", "platstdlib"), "/usr/lib/python3.12")
        | dict.fromkeys(("purelib", "platlib"), HOME.rstrip("/")) | {"scripts": "/venv/bin"},
    )  # fmt: skip
    yield
    for name in cached:
        getattr(source_lines, name).cache_clear()


@pytest.mark.parametrize(
    ("frames", "blamed"),
    [
        ([("/work/train.py", 9, "main")], "/work/train.py:9 in main"),
        (
            [(TORCH, 1, "_call_impl"), (BERT, 412, "forward"), (TORCH, 1, "_call_impl"),
             (TRAINER, 2000, "training_step"), ("/work/train.py", 9, "main")],
            "transformers/models/bert/modeling_bert.py:412 in forward, from /work/train.py:9 in "
            "main",
        ),
        # Of one's own files the innermost, whatever package called it.
        (
            [(TORCH, 1, "_call_impl"), ("/work/model.py", 3, "forward"),
             (TRAINER, 2000, "training_step"), ("/work/train.py", 9, "main")],
            "/work/model.py:3 in forward",
        ),
        # Python's own library is nobody's to change.
        ([(THREADING, 5, "wait"), ("/work/train.py", 9, "main")], "/work/train.py:9 in main"),
        # A module that is diagnosed by itself has no line of the user's.
        (
            [(BERT, 412, "forward"), (TORCH, 1, "_call_impl")],
            "transformers/models/bert/modeling_bert.py:412 in forward",
        ),
        ([(TORCH, 1, "_call_impl"), (THREADING, 5, "wait")], None),
        ([(f"{HOME}functorch/einops.py", 5, "f"), ("/work/a.py", 2, "g")], "/work/a.py:2 in g"),
        ([("/tmp/torchinductor_me/ab/cab.py", 5, "call"), ("/work/a.py", 2, "g")],
         "/work/a.py:2 in g"),
        ([("/venv/bin/gobrrr", 8, "<module>")], None),
    ],
    ids=["own", "package's", "own inside a package", "standard library", "no line of one's own",
         "nobody's", "functorch", "generated", "a command"],
)  # fmt: skip
def test_the_deepest_line_outside_torch_and_the_users_own(frames, blamed, monkeypatch):
    monkeypatch.setattr(source_lines, "short_path", lambda path: path)
    assert blamed_line(stack(*frames)) == blamed


def test_the_users_own_line_stands_alone_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(source_lines, "short_path", lambda path: path)
    frames = [(BERT, 412, "forward"), ("/work/train.py", 9, "main")]
    assert user_line(stack(*frames)) == "/work/train.py:9 in main"


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("package/model.py:61 in forward", "model.py:61"),
        (f"hf/bert.py:61 in forward{FROM}work/train.py:9 in main", "bert.py:61 (train.py:9)"),
        ("no line at all", "no line at all"),
    ],
)
def test_both_lines_are_shown_where_there_is_little_room(source, short):
    assert short_source(source) == short


def test_an_environment_behind_a_link_is_known_by_both_names(monkeypatch, tmp_path):
    real, linked = tmp_path / "real" / "site-packages", tmp_path / "linked"
    (real / "torch").mkdir(parents=True)
    linked.symlink_to(tmp_path / "real")
    seen_as = f"{linked}/site-packages/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__=seen_as))
    for home in (linked, tmp_path / "real"):
        path = f"{home}/site-packages/torch/nn/modules/linear.py"
        assert source_lines.library_path(path) is None
        assert not source_lines.is_user_file(path)


class Notebook:
    """IPython as far as it is asked for the names of its cells."""

    def __init__(self, **cells: int) -> None:
        self.cells = {f"/tmp/ipykernel_77/{name}.py": number for name, number in cells.items()}
        self.compile = self

    def get_ipython(self):
        return self

    def format_code_name(self, path):
        return ("Cell", f"In[{self.cells[path]}]") if path in self.cells else None


def test_a_cell_has_the_name_that_tracebacks_give_it(monkeypatch):
    notebook = Notebook(_1278=2, _99=5)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    step = stack(("/tmp/ipykernel_77/_1278.py", 6, "step"))
    assert user_line(step) == "In[2]:6 in step"
    assert short_source("In[2]:6 in step") == "In[2]:6"
    blamed = blamed_line(stack((BERT, 412, "forward"), ("/tmp/ipykernel_77/_99.py", 1, "main")))
    assert (
        blamed == f"transformers/models/bert/modeling_bert.py:412 in forward{FROM}In[5]:1 in main"
    )
    # Run again, a cell has another number.
    notebook.cells["/tmp/ipykernel_77/_1278.py"] = 7
    assert user_line(step) == "In[7]:6 in step"
    # A file that the notebook imports is named as ever.
    monkeypatch.setattr(source_lines, "short_path", lambda path: path)
    assert user_line(stack(("/work/model.py", 3, "forward"))) == "/work/model.py:3 in forward"


@pytest.mark.parametrize(
    "ipython",
    [
        SimpleNamespace(),
        SimpleNamespace(get_ipython=lambda: None),
        SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=SimpleNamespace())),
    ],
    ids=["half imported", "no shell", "an old shell"],
)
def test_a_cell_that_nobody_can_name_has_its_files(monkeypatch, ipython):
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    cell = stack(("/tmp/ipykernel_77/_12.py", 6, "step"))
    assert user_line(cell) == f"{source_lines.short_path('/tmp/ipykernel_77/_12.py')}:6 in step"
