"""What stands in the user's files, by the lines that a step was seen at."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable
from functools import lru_cache

from gobrrr.causes.noted import place_of

# A definition, an import or a comment calls nothing.
_NO_CALL = re.compile(r"^\s*(def|class|import|from|#)\b|^\s*#")


@lru_cache(maxsize=64)
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return None


def statement_at(path: str, number: int) -> tuple[int, int]:
    """The lines of the smallest statement that a line is in; the line alone where none is read."""
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(_tree(path) or ast.Module([], []))
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    return min(spans, key=lambda span: span[1] - span[0], default=(number, number))


def _function_at(path: str, number: int) -> str:
    found = [
        node
        for node in ast.walk(_tree(path) or ast.Module([], []))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= number <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno).name if found else "<module>"


def lines_with(wanted: re.Pattern[str], seen: Iterable[str]) -> tuple[str, ...]:
    """Lines, as ``train.py:31 in main``, of the files of lines that were seen; three at most."""
    paths = dict.fromkeys(where.path for line in seen if (where := place_of(line)) is not None)
    found = [
        f"{path}:{number} in {_function_at(path, number)}"
        for path in paths
        for number, text in enumerate(linecache.getlines(path), 1)
        if wanted.search(text) and not _NO_CALL.search(text)
    ]
    return tuple(found[:3])
