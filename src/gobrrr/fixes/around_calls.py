"""A ``with`` written around the forward pass of a script's step, up to where it goes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import libcst as cst
from libcst import matchers as m

_Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement
_Body = TypeVar("_Body", cst.Module, cst.IndentedBlock)
_GOES_BACK = m.Call(func=m.Attribute(attr=m.Name("backward")))


class AroundCallsOf(cst.CSTTransformer):
    """Puts one ``with`` around each stretch of statements that calls the model.

    A stretch begins with the statement that calls it and ends before the one that goes back
    through the graph, or, where none does, with the last that calls it. A loop that evaluates is
    one statement: the context goes around all of it.

    Attributes:
        written: how many were put.
        unclear: why the script cannot be written so; empty if it can.
    """

    def __init__(self, model: str, context: str, comment: str) -> None:
        super().__init__()
        self.written = 0
        self.unclear = ""
        self._context = cst.parse_expression(context)
        self._comment = comment
        called = m.Name(model) | m.Attribute(value=m.Name(model), attr=m.Name("generate"))
        self._calls = m.Call(func=called)
        # Statements of the tree as it was, which a context goes around: first of a stretch or not.
        self._inside: dict[cst.CSTNode, bool] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Outer blocks decide first: what has a context around it gets none inside."""
        if isinstance(node, (cst.Module, cst.IndentedBlock)):
            self._plan(node)
        return node not in self._inside

    def leave_Module(  # noqa: N802 - LibCST's name
        self, original_node: cst.Module, updated_node: cst.Module
    ) -> cst.Module:
        """The module's own statements."""
        return self._around(original_node, updated_node)

    def leave_IndentedBlock(  # noqa: N802 - LibCST's name
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """A block's."""
        return self._around(original_node, updated_node)

    def _plan(self, block: cst.Module | cst.IndentedBlock) -> None:
        within = False
        for place, one in enumerate(block.body):
            begins = self._begins(one)
            if begins or (within and self._leads_back(block.body[place:])):
                self._inside[one] = not within
                within = True
            else:
                within = False

    def _begins(self, one: cst.CSTNode) -> bool:
        """Whether a statement calls the model, and does not go back as well."""
        if isinstance(one, (cst.FunctionDef, cst.ClassDef)) or not m.findall(one, self._calls):
            return False
        if not m.findall(one, _GOES_BACK):
            return True
        if isinstance(one, cst.SimpleStatementLine):
            self.unclear = "the forward and the backward pass are one statement"
        return False

    def _leads_back(self, rest: Sequence[cst.CSTNode]) -> bool:
        """Whether a statement stands between a call and the backward pass that follows it."""
        first, *later = rest
        return not m.findall(first, _GOES_BACK) and any(m.findall(one, _GOES_BACK) for one in later)

    def _around(self, original: _Body, block: _Body) -> _Body:
        body: list[_Statement] = []
        stretch: list[_Statement] = []
        statements: list[Any] = list(block.body)
        for before, one in zip(original.body, statements):
            first = self._inside.get(before)
            if first is not False:
                body += self._wrapped(stretch)
                stretch = []
            if first is None:
                body.append(one)
            else:
                stretch.append(one)
        return block.with_changes(body=[*body, *self._wrapped(stretch)])

    def _wrapped(self, stretch: Sequence[_Statement]) -> list[_Statement]:
        if not stretch:
            return []
        self.written += 1
        first, *others = stretch
        above = [*first.leading_lines, cst.EmptyLine(comment=cst.Comment(self._comment))]
        inside = [first.with_changes(leading_lines=[]), *others]
        items = [cst.WithItem(self._context)]
        return [cst.With(items, cst.IndentedBlock(inside), leading_lines=above)]
