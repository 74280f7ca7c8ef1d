"""Names as people read them."""

from __future__ import annotations

import json

import msgspec
import pytest

from gobrrr.timeline.names import plain_name, printable_json, short_kernel_name, short_source


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("train.py:88", "train.py:88"),
        ("package/models/qwen2.py:61 in forward", "qwen2.py:61"),
        ("C:\\code\\train.py:7 in <module>", "train.py:7"),
        ("package/__init__.py:3 in f", "package/__init__.py:3"),
        ("train.py:41 self.down(x)", "train.py:41 self.down(x)"),
        ("", ""),
    ],
)
def test_short_source(source: str, text: str) -> None:
    assert short_source(source) == text


def test_names_cannot_steer_a_terminal() -> None:
    hostile = "a\x1b[31mred\x07\nnext\t\u202egnp.exe\ud800"
    assert plain_name(hostile) == "a�[31mred� next �gnp.exe�"


def test_json_that_is_printed_cannot_steer_a_terminal_and_reads_as_before() -> None:
    hostile = {"a\x9b31m": "\x1b\x7f \u202egnp.exe ü 日"}
    text = printable_json(msgspec.json.encode(hostile))
    assert json.loads(text) == hostile
    assert "\\u009b" in text.decode() and "\\u202e" in text.decode() and "ü 日" in text.decode()
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in text.decode())


def test_huge_names_are_cut_in_the_middle() -> None:
    cut = plain_name("x" * 10_000 + "end", 20)
    assert cut == "x" * 10 + "…" + "x" * 7 + "end"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::f<c10::Half, int>(c10::Half const*, int)", "f<Half, int>"),
        ("void (anonymous namespace)::g<int>(x)", "g<int>"),
        ("ncclKernel_SendRecv_RING_Sum(ncclWorkElem)", "ncclKernel_SendRecv_RING_Sum"),
        ("f<(lambda)()>(int)", "f<(lambda)()>"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("enumerate(DataLoader)#x.__next__", "enumerate(DataLoader)#x.__next__"),
        ("torch::autograd::CppNode<Op>", "torch::autograd::CppNode<Op>"),
        ("aten::addmm", "aten::addmm"),
        ("k<" + "a" * 80 + ">(int)", "k<" + "a" * 57 + "…"),
        # Would take days if the time grew with the square of the length.
        ("k<" + "a" * 5_000_000 + ">(int)", "k<" + "a" * 57 + "…"),
    ],
)
def test_kernel_names_without_types(name: str, short: str) -> None:
    assert short_kernel_name(name) == short
