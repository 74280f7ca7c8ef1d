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


def _innermost(path: str, number: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function that a line is in; ``None`` outside any."""
    found = [
        node
        for node in ast.walk(_tree(path) or ast.Module([], []))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= number <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def _function_at(path: str, number: int) -> str:
    function = _innermost(path, number)
    return "<module>" if function is None else function.name


@lru_cache(maxsize=256)
def function_text(path: str, number: int) -> str:
    """The source of the innermost function that a line is in; empty outside any."""
    function = _innermost(path, number)
    if function is None:
        return ""
    return "".join(linecache.getlines(path)[function.lineno - 1 : function.end_lineno])


def _statements_with(path: str, number: int) -> list[ast.stmt]:
    """The statements of the function, or of the module, that a line is in, without functions."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    own: list[ast.stmt] = []
    left: list[ast.AST] = list((_tree(path) or ast.Module([], [])).body)
    while left:
        node = left.pop()
        if isinstance(node, functions):
            if node.lineno <= number <= (node.end_lineno or 0):
                own, left = [], list(node.body)
            continue
        if isinstance(node, ast.stmt):
            own.append(node)
        left += ast.iter_child_nodes(node)
    return own


@lru_cache(maxsize=64)
def counted_before(path: str, number: int, calls: frozenset[str]) -> list[tuple[int, int, bool]]:
    """Where the function of a line makes the lists that the line's statement is given.

    Of each statement that does its lines, and whether it counts (``range``); that of the line is
    the first. Left out is what calls any other function than ``calls``.
    """
    first, last = statement_at(path, number)
    own = _statements_with(path, number)
    given: set[str] = set()
    counts = False
    for node in (each for each in own if (each.lineno, each.end_lineno) == (first, last)):
        given, counts = given | _names(node), counts or "range" in _names(node)
    found = [(first, last, counts)]
    for node in sorted(own, key=lambda node: -node.lineno):
        end = node.end_lineno or node.lineno
        if end >= first or not given & _bound(node) or not _called(node) <= calls:
            continue
        given |= _names(node)
        found.append((node.lineno, end, "range" in _names(node)))
    return found


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _bound(node: ast.AST) -> set[str]:
    """Names that a statement assigns, and lists that it appends to."""
    stored = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    methods = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    grown = [each.value for each in methods if each.attr in ("append", "extend")]
    return stored.union(*map(_names, grown))


def _called(node: ast.AST) -> set[str]:
    functions = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return {str(getattr(each, "id", getattr(each, "attr", ""))) for each in functions}


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
