"""Names from the user's program and from compilers, as people read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

# Stands in a table of lines for time that none of the user's holds.
UNKNOWN_LINE = "(no line of the program: the framework's own Python)"
# The same for time at lines that nobody asked for: only the main thread can be asked.
UNASKED_LINE = "(line not known: not in the main thread)"
NO_LINES = (UNKNOWN_LINE, UNASKED_LINE)


def plain_name(name: str, limit: int = 400) -> str:
    """A name from the user's program as one line that cannot steer a terminal.

    Control, format (direction overrides among them) and surrogate characters become spaces or
    ``\N{REPLACEMENT CHARACTER}``; what is longer than ``limit`` is cut in the middle.
    """
    if len(name) > limit:
        half = limit // 2
        name = f"{name[:half]}…{name[-half:]}"
    if name.isprintable():
        # Nearly all are: no character of those categories is, and no space but the usual one.
        return name
    safe = []
    for character in name:
        if character.isspace():
            safe.append(" ")
        elif unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            safe.append("\N{REPLACEMENT CHARACTER}")
        else:
            safe.append(character)
    return "".join(safe)


# Controls that terminals obey beside those that JSON escapes anyway, and marks of direction.
_STEERS = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def printable_json(data: bytes) -> bytes:
    """The same JSON, with what could steer a terminal escaped, so that it may be printed."""
    if data.isascii() and b"\x7f" not in data:
        return data
    text = data.decode(errors="surrogateescape")
    text = _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode(errors="surrogateescape")


def op_name(name: str) -> str:
    """``aten::addmm`` -> ``addmm``: the namespace of nearly all ops is noise."""
    return plain_name(short_kernel_name(name).removeprefix("aten::"))


_LONG_NAME = 60
_CPP_FUNCTION = re.compile(r"(?:void )?(?P<name>[\w:~]+[<(].*[)>])\Z", re.DOTALL)


def short_kernel_name(name: str) -> str:
    """A C++ kernel's name without return type, parameters and namespaces, and with a cut template.

    ``void at::native::f<c10::Half, int>(Half const*, int)`` -> ``f<Half, int>``. Other names, and
    names that are no function's with a parameter list or a template, stay as they are.
    """
    match = _CPP_FUNCTION.match(name.replace("(anonymous namespace)::", ""))
    if match is None:
        return name
    text = match["name"]
    depth, end = 0, len(text)
    for position, character in enumerate(text):
        # The list of parameters is the first parenthesis outside a template.
        if character == "(" and depth == 0:
            end = position
            break
        depth += (character == "<") - (character == ">")
    text = text[:end]
    if len(text) > _LONG_NAME or match["name"] != name:
        # From the begin of a word alone: in time that is linear in the name's length.
        text = re.sub(r"\b\w+::", "", text)
    return text if len(text) <= _LONG_NAME else f"{text[: _LONG_NAME - 1]}…"


def starred(path: str) -> str:
    """A module's path without its places in lists: ``layers.3.mlp`` -> ``layers.*.mlp``."""
    return re.sub(r"\b\d+\b", "*", path)


# Between a line of a package and the user's own line that led to it.
FROM = ", from "
# What torch's profiler writes around a call of compiled code, and how its calls are counted.
COMPILED_REGION, COMPILED_REGIONS = "Torch-Compiled Region", "compiled_regions"
# The recorded op that stands for all kernels of a CUDA graph.
GRAPH_REPLAY = "gobrrr::graph_replay"
# Kernels per step, and those of them that launches of graphs ran; the latter where there are any.
KERNELS_COUNTED, KERNELS_OF_GRAPHS = "kernels", "graph_kernels"
# Seconds per step of the kernels that convert the layout of images inside convolutions.
LAYOUT_KERNELS_S = "layout_kernels_s"
# From this share of its kernels on a step is one of CUDA graphs.
MOSTLY_GRAPHS = 0.9
_SOURCE = re.compile(r"(?P<path>.+?):(?P<line>\d+)(?: in .*)?\Z")


def share_of_graphs(counters: Mapping[str, float]) -> float:
    """Of a step's kernels, the share that launches of CUDA graphs ran.

    >>> share_of_graphs({"kernels": 200.0, "graph_kernels": 150.0}), share_of_graphs({})
    (0.75, 0.0)
    """
    kernels = counters.get(KERNELS_COUNTED, 0.0)
    return min(1.0, counters.get(KERNELS_OF_GRAPHS, 0.0) / kernels) if kernels > 0 else 0.0


def short_source(source: str) -> str:
    """``package/model.py:61 in forward`` -> ``model.py:61``, where there is room for no more.

    Of a package's line and the user's own that led to it ``modeling_bert.py:61 (train.py:9)``.
    """
    deepest, _, own = source.partition(FROM)
    if own:
        return f"{short_source(deepest)} ({short_source(own)})"
    match = _SOURCE.match(source)
    if match is None:
        return plain_name(source)
    parts = re.split(r"[/\\]", match["path"])
    # __init__.py and __main__.py say nothing without their folder.
    name = "/".join(parts[-2:]) if parts[-1].startswith("__") else parts[-1]
    return plain_name(f"{name}:{match['line']}")
