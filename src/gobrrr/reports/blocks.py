"""Rows of repeated blocks joined for a table: ``blocks.0.attn`` to ``blocks.11.attn`` are one.

Sums of rows, nothing else: the diagnosis keeps each row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from gobrrr.diagnosis.schema import GroupRow

# Traces number modules by class: Qwen2DecoderLayer_13.Qwen2Attention_13.
_NUMBERED_CLASS = re.compile(r"_\d+(?=\.|\Z)")
# Modules of one class that the program keeps in a list, and calls one by one: Block, Block#2.
_OF_ONE_CLASS = re.compile(r"#\d+(?=\.|\Z)")
_NUMBER = re.compile(r"\d+\Z")


def join_blocks(rows: Sequence[GroupRow]) -> list[GroupRow]:
    """Rows with the same path but for a block's number as one row, the most time first.

    A number in a path is a block's if the same path follows it under another number too
    (``blocks.0.attn`` and ``blocks.1.attn``); the layers of a ``Sequential`` (``mlp.0``,
    ``mlp.2``) are different things and stay apart. Modules without a name of their own are told by
    their class (``Block``, ``Block#2``) and the same.
    """
    containers = _repeated_containers({row.name for row in rows})
    groups: dict[tuple[str, str | None], list[GroupRow]] = defaultdict(list)
    for row in rows:
        groups[_pattern(row.name, containers), row.phase].append(row)
    joined = [_sum(pattern, members) for (pattern, _), members in groups.items()]
    joined.sort(key=lambda row: -row.time_s)
    return joined


def _repeated_containers(names: set[str]) -> set[str]:
    numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for i, part in enumerate(parts[:-1]):
            if _NUMBER.match(part):
                numbers[".".join(parts[:i]), ".".join(parts[i + 1 :])].add(part)
    return {container for (container, _), found in numbers.items() if len(found) > 1}


def _pattern(name: str, containers: set[str]) -> str:
    parts = name.split(".")
    shown = [
        "*" if _NUMBER.match(part) and ".".join(parts[:i]) in containers else part
        for i, part in enumerate(parts)
    ]
    return _OF_ONE_CLASS.sub("", _NUMBERED_CLASS.sub("_*", ".".join(shown)))


def _sum(pattern: str, members: Sequence[GroupRow]) -> GroupRow:
    if len(members) == 1:
        return members[0]

    def total(field: str) -> float | None:
        values = [getattr(row, field) for row in members]
        return None if None in values else float(sum(values))

    first = members[0]
    split = {
        level: float(sum(getattr(row, f"{level}_s") for row in members))
        for level in ("compute", "memory", "overhead", "unmodelled")
    }
    return replace(
        first,
        name=f"{pattern} x{len(members)}",
        count=sum(row.count for row in members),
        time_s=sum(row.time_s for row in members),
        compute_s=split["compute"],
        memory_s=split["memory"],
        overhead_s=split["overhead"],
        unmodelled_s=split["unmodelled"],
        flops=total("flops"),
        bytes=total("bytes"),
        flops_share=total("flops_share"),
        time_share=total("time_share"),
        # A rate of several rows needs their kernel times, which rows do not keep.
        flops_per_s=None,
        regime=max(split, key=lambda level: split[level]),
        module_class=_one({row.module_class for row in members}),
    )


def _one(classes: set[str | None]) -> str | None:
    return classes.pop() if len(classes) == 1 else None
