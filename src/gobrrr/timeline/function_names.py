"""Which functions a file offers, read from its source: nothing of it runs."""

from __future__ import annotations

import ast
from pathlib import Path

from gobrrr.timeline.errors import InputError

# What can define names that the source does not show.
_DYNAMIC = frozenset(("globals", "locals", "vars", "setattr", "exec", "eval", "__dict__"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def require_function(path: str, name: str) -> None:
    """Raises InputError if the file is no valid Python, or cannot define ``name``.

    A file that makes names as it runs (``globals()``, ``import *`` and the like) may define it.
    """
    tree = _tree(path)
    if name in _bound(tree) or _makes_names(tree):
        return
    raise no_such_function(path, name)


def no_such_function(path: str, name: str) -> InputError:
    """The error for a function that a file does not have, with those that it offers."""
    there = offered_functions(path)
    has = f"; it has {', '.join(there)}" if there else ""
    return InputError(f"{path} has no function {name!r}{has}")


def offered_functions(path: str) -> tuple[str, ...]:
    """Names of the file's own functions that may make a step: they need nothing, and return.

    In order. Raises InputError.
    """
    return tuple(
        node.name for node in _tree(path).body
        if isinstance(node, _FUNCTIONS) and not node.name.startswith("_") and not _needs(node)
        and _returns(node)
    )  # fmt: skip


def refuse_without_result(path: str, name: str) -> None:
    """Raises InputError if the file's function ``name`` returns nothing, which no step's does."""
    for node in _tree(path).body:
        if isinstance(node, _FUNCTIONS) and node.name == name and not _returns(node):
            raise InputError(
                f"{path}:{name} returns nothing; a function makes the step and returns it. If "
                f"{name} runs the program, give the script: {path}"
            )


def which_function(path: str) -> str:
    """A question that names the functions of a file, for an error message."""
    asked = f"which function of {path}? write {path}:FUNCTION"
    try:
        names = offered_functions(path)
    except InputError:
        return asked
    return f"{asked}; it has {', '.join(names)}" if names else asked


def _tree(path: str) -> ast.Module:
    try:
        return ast.parse(Path(path).read_bytes(), path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise InputError(f"{path}:{error.lineno} is not valid Python: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"{path} is not a Python file: {error}") from None


def _needs(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function has a parameter without a default."""
    given = node.args
    positional = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return positional > 0 or any(default is None for default in given.kw_defaults)


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a call may give a value, or raise, as far as the source shows."""
    if node.decorator_list or isinstance(node.body[-1], ast.Raise):
        return True
    todo: list[ast.AST] = list(node.body)
    while todo:
        part = todo.pop()
        if isinstance(part, (ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(part, ast.Return) and part.value is not None:
            return True
        if not isinstance(part, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(part)
    return False


def _bound(tree: ast.Module) -> set[str]:
    """Every name that is bound anywhere in the source; one of a function's own does no harm."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
    return names


def _makes_names(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _DYNAMIC:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _DYNAMIC:
            return True
        if isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            return True
        if isinstance(node, _FUNCTIONS) and node.name == "__getattr__":
            return True
    return False
