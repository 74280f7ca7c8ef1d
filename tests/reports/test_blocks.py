"""Repeated blocks as one row."""

from __future__ import annotations

import pytest

from gobrrr.diagnosis.schema import GroupRow
from gobrrr.reports.blocks import join_blocks


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
