"""Which line is blamed: the deepest outside torch, and the user's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gobrrr.capture import source_lines
from gobrrr.capture.source_lines import blamed_line, user_line
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
