"""Repeated blocks as one row."""

from __future__ import annotations

import pytest

from gobrrr.diagnosis.schema import Diagnosis, GroupRow, IdleRow
from gobrrr.reports.blocks import join_blocks
from gobrrr.reports.tables import cause_table, line_table, module_table


def row(name: str, time_s: float = 1.0, *, phase: str = "forward", **more: object) -> GroupRow:
    known = {"compute_s": time_s, "memory_s": 0.0, "overhead_s": 0.0, "flops": 10.0, **more}
    return GroupRow(
        name=name, phase=phase, count=1, time_s=time_s, unmodelled_s=0.0, bytes=1.0, **known
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["blocks.0.attn", "blocks.1.attn"], ["blocks.*.attn x2"]),
        # The layers of a Sequential are different things.
        (["mlp.0", "mlp.2"], ["mlp.0", "mlp.2"]),
        (["0", "2"], ["0", "2"]),
        (["b.0.mlp.0", "b.0.mlp.2", "b.1.mlp.0", "b.1.mlp.2"], ["b.*.mlp.0 x2", "b.*.mlp.2 x2"]),
        # A block's own time, beside that of its children.
        (["b.0", "b.0.norm", "b.1", "b.1.norm"], ["b.* x2", "b.*.norm x2"]),
        (["layer1.0.conv1", "layer2.0.conv1"], ["layer1.0.conv1", "layer2.0.conv1"]),
        (["a.0.b.0.c", "a.0.b.1.c", "a.1.b.0.c", "a.1.b.1.c"], ["a.*.b.*.c x4"]),
        (["Layer_0.Attention_0", "Layer_13.Attention_13"], ["Layer_*.Attention_* x2"]),
        (["Block.a", "Block#2.a", "Block#11.a", "Head"], ["Block.a x3", "Head"]),
        (["", "(after the last op)"], ["", "(after the last op)"]),
        ([], []),
    ],
)
def test_names(names: list[str], joined: list[str]) -> None:
    assert sorted(group.name for group in join_blocks([row(name) for name in names])) == joined


def test_sums_and_order() -> None:
    rows = [
        row("head", 3.0),
        row("b.0.attn", 2.0, compute_s=0.5, memory_s=1.5),
        row("b.1.attn", 4.0, compute_s=1.0, memory_s=3.0),
        row("b.1.attn", 1.0, phase="backward"),
    ]
    joined = join_blocks(rows)
    assert [group.name for group in joined] == ["b.*.attn x2", "head", "b.1.attn"]
    # 2 + 4 = 6 s, of it memory 1.5 + 3 = 4.5 s; FLOPs 10 + 10
    assert (joined[0].time_s, joined[0].memory_s, joined[0].flops) == (6.0, 4.5, 20.0)
    assert (joined[0].regime, joined[0].count) == ("memory", 2)


def test_unknown_stays_unknown() -> None:
    assert join_blocks([row("b.0.x", flops=None), row("b.1.x")])[0].flops is None


def test_blocks_of_one_class_keep_it_and_of_several_have_none() -> None:
    same = [row(f"b.{i}.mlp", module_class="MLP") for i in range(2)]
    mixed = [row(f"b.{i}.act", module_class=name) for i, name in enumerate(("ReLU", "GELU"))]
    classes = {group.name: group.module_class for group in join_blocks(same + mixed)}
    assert classes == {"b.*.mlp x2": "MLP", "b.*.act x2": None}


@pytest.mark.parametrize(
    ("name", "module_class", "shown"),
    [
        ("head", "Linear", "head (Linear)"),
        ("encoder.layer.3", "BertLayer", "encoder.layer.3 (BertLayer)"),
        ("Net", "Net", "Net"),
        ("head", None, "head"),
        # The path alone where both do not fit.
        ("encoder.layer.3.attention.self", "BertSelfAttention", "encoder.layer.3.attention.self"),
    ],
)
def test_modules_are_named_with_their_class(
    minimal: Diagnosis, name: str, module_class: str | None, shown: str
) -> None:
    minimal.modules = [row(name, module_class=module_class)]
    assert [r.cells[0] for r in module_table(minimal, 5).rows] == [shown]


def test_a_line_of_a_package_is_shown_with_the_users_own(minimal: Diagnosis) -> None:
    minimal.lines = [row("hf/bert.py:4 in forward, from train.py:9 in main"), row("own.py:3 in f")]
    names = [r.cells[0] for r in line_table(minimal, 5).rows]
    assert names == ["bert.py:4 (train.py:9)", "own.py:3 in f"]


def test_a_cause_at_a_line_of_a_package_shows_both_lines(minimal: Diagnosis) -> None:
    source = "hf/bert.py:4 in forward, from train.py:9 in main"
    minimal.idle = [IdleRow(cause="python", time_s=1.0, source=source, detail="why")]
    assert cause_table(minimal, 5).rows[0].cells[-1] == "bert.py:4 (train.py:9) · why"
