"""What the page's charts draw from: columns of a diagnosis, in few bytes and safe to embed."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gobrrr.diagnosis.schema import Diagnosis, GroupRow, OpRow, TimelineColumns
from gobrrr.reports.blocks import join_blocks
from gobrrr.reports.glossary import meaning_of
from gobrrr.reports.tables import time_scale
from gobrrr.reports.words import CAUSE_LABELS, CLASS_MEANINGS
from gobrrr.timeline.data import HostKind
from gobrrr.timeline.names import op_name, plain_name

# Columns hold unsigned 32-bit integers; a step of over 4.29 s is drawn in units of more than 1 ns.
_MOST = 2**32 - 1
_NAME_LIMIT = 300
_Row = TypeVar("_Row")

HOST_KINDS: tuple[str, ...] = tuple(kind.name.lower().replace("_", " ") for kind in HostKind)
_OP_TEXTS: tuple[str, ...] = (
    "name", "shapes", "dtypes", "regime", "dtype", "memory_level", "unit", "op_class", "module",
    "source", "phase",
)  # fmt: skip
_OP_NUMBERS: tuple[str, ...] = (
    "count", "time_s", "kernel_s", "fixed_s", "flops", "bytes", "intensity", "flops_per_s",
    "bytes_per_s", "roof_s", "roof_fraction", "below_s", "page_faults_s",
)  # fmt: skip
# Headers of the table of ops that have a gloss.
_TERMS = ("bound by", "of ceiling", "FLOP/B")
_GROUP_TEXTS = ("name", "phase", "regime", "module_class")
_GROUP_NUMBERS = (
    "count", "time_s", "compute_s", "memory_s", "overhead_s", "unmodelled_s", "flops", "bytes",
)  # fmt: skip


def chart_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Tables as columns (text by index into its distinct values), ceilings, and units.

    Names are made plain (``quantities.plain_name``); what is not finite is ``None``.
    """
    scale = time_scale(diagnosis)
    return {
        "step_s": number(diagnosis.accounted_s),
        "scale": {"unit": scale.unit, "unit_s": scale.unit_s, "decimals": scale.decimals},
        "device": {"kind": diagnosis.device.kind},
        "ops": _op_columns(diagnosis.ops),
        "modules": _group_columns(diagnosis.modules),
        "joined": _group_columns(join_blocks(diagnosis.modules)),
        "lines": _group_columns(diagnosis.lines),
        "ceilings": [
            {"name": plain_name(row.name), "value": number(row.value), "unit": row.unit,
             "how": plain_name(row.how), "source": plain_name(row.source)}
            for row in diagnosis.device.ceilings
        ],
        "levels": [
            {"name": plain_name(level.name), "capacity": number(level.capacity_bytes),
             "rates": [[number(part), number(rate)] for part, rate in level.rates]}
            for level in diagnosis.device.levels
        ],
        "terms": {term: meaning_of(term) for term in _TERMS},
        "causes": CAUSE_LABELS,
        "classes": CLASS_MEANINGS,
    }  # fmt: skip


def embed(data: Any) -> str:
    """JSON that can stand inside ``<script>``: no tag, comment or line separator can end it.

    See https://html.spec.whatwg.org/multipage/scripting.html#restrictions-for-contents-of-script-elements
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float | None) -> float | int | None:
    """Seven significant digits, more than a screen shows; ``None`` for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or value == int(value):
        return int(value)
    return float(f"{value:.7g}")


def text_column(values: Iterable[str | None]) -> dict[str, list[Any]]:
    """``{"values": distinct texts, "index": position of each row's, -1 for none}``."""
    positions: dict[str, int] = {}
    index = [-1 if not v else positions.setdefault(v, len(positions)) for v in values]
    return {"values": [plain_name(v, _NAME_LIMIT) for v in positions], "index": index}


def _columns(rows: Sequence[_Row], texts: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {"length": len(rows)}
    for name in texts:
        columns[name] = text_column(getattr(row, name) for row in rows)
    for name in numbers:
        columns[name] = [number(getattr(row, name)) for row in rows]
    return columns


def _op_columns(ops: Sequence[OpRow]) -> dict[str, Any]:
    columns = _columns(ops, _OP_TEXTS, _OP_NUMBERS)
    columns["name"]["values"] = [op_name(name) for name in columns["name"]["values"]]
    return columns


def _group_columns(groups: Sequence[GroupRow]) -> dict[str, Any]:
    return _columns(groups, _GROUP_TEXTS, _GROUP_NUMBERS)


def timeline_data(timeline: TimelineColumns | None) -> dict[str, Any] | None:
    """The step's spans: a header, and ``data``, its columns as gzipped, base64 little-endian bytes.

    Each lane kind (host, kernel, idle) is sorted by start, longer spans first among equals. Starts
    are differences to the row before. ``None`` if there is nothing to draw.
    """
    if timeline is None or not (timeline.host_start_ns or timeline.kernel_start_ns):
        return None
    names = text_column(timeline.names)
    # Distinct after being made plain, and an index for names that are empty.
    name_of = np.array([*names["index"], -1], np.int64)
    regimes, causes = text_column(timeline.kernel_regime), text_column(timeline.idle_cause)
    threads, streams = _distinct(timeline.host_thread), _distinct(timeline.kernel_stream)
    kinds: list[tuple[str, Sequence[int], Sequence[int], dict[str, Any]]] = [
        ("host", timeline.host_start_ns, timeline.host_duration_ns, {
            "lane": _position(threads, timeline.host_thread),
            "kind": timeline.host_kind,
            "name": name_of[np.asarray(timeline.host_name, np.int64)] + 1,
        }),
        ("kernel", timeline.kernel_start_ns, timeline.kernel_duration_ns, {
            "lane": _position(streams, timeline.kernel_stream),
            "kind": np.asarray(regimes["index"], np.int64) + 1,
            "name": name_of[np.asarray(timeline.kernel_name, np.int64)] + 1,
        }),
        ("idle", timeline.idle_start_ns, timeline.idle_duration_ns, {
            "kind": np.asarray(causes["index"], np.int64) + 1,
        }),
    ]  # fmt: skip
    spans = [(_natural(starts), _natural(lengths)) for _, starts, lengths, _ in kinds]
    end = max((int((start + length).max()) for start, length in spans if len(start)), default=0)
    unit_ns = max(1, math.ceil(end / _MOST))
    pieces: list[bytes] = []
    layout: list[dict[str, Any]] = []
    for (kind, _, _, others), (start_ns, length_ns) in zip(kinds, spans):
        start, length = start_ns // unit_ns, length_ns // unit_ns
        order = np.lexsort((-length, start))
        columns = {"start": np.diff(start[order], prepend=0), "duration": length[order]}
        columns |= {name: np.asarray(values, np.int64)[order] for name, values in others.items()}
        for name, values in columns.items():
            stored = values.astype(_narrowest(values))
            layout.append({"lane": kind, "column": name, "bytes": stored.dtype.itemsize,
                           "length": len(stored)})  # fmt: skip
            pieces.append(stored.tobytes())
    packed = gzip.compress(b"".join(pieces), compresslevel=6, mtime=0)
    return {
        "end": end // unit_ns,
        "unit_ns": unit_ns,
        "names": names["values"],
        "regimes": regimes["values"],
        "causes": causes["values"],
        "host_kinds": HOST_KINDS,
        "threads": threads,
        "streams": streams,
        "layout": layout,
        "data": base64.b64encode(packed).decode("ascii"),
    }


def _natural(values: Sequence[int]) -> NDArray[np.int64]:
    return np.maximum(np.asarray(values, np.int64), 0)


def _narrowest(values: NDArray[np.int64]) -> str:
    largest = int(values.max()) if len(values) else 0
    return "<u1" if largest < 2**8 else "<u2" if largest < 2**16 else "<u4"


def _distinct(values: Sequence[int]) -> list[int]:
    return sorted(set(values))


def _position(distinct: Sequence[int], values: Sequence[int]) -> list[int]:
    where: Callable[[int], int] = {value: i for i, value in enumerate(distinct)}.__getitem__
    return [where(value) for value in values]
