"""Arguments written into the calls of a script."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.rewrite import rewrite  # noqa: E402

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
