"""Statements written where a script has made its model and not called it yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst import matchers as m

from gobrrr.fixes.rewriting.around_calls import (
    SETS_WEIGHTS,
    Body,
    OfEachBlock,
    Statement,
    calls_that_reach,
    functions_that_reach,
)
from gobrrr.fixes.rewriting.script_names import is_handed_on


class BeforeFirstCall(OfEachBlock):
    """Puts statements before the one that first calls the model, where it is made.

    Attributes:
        places: in how many places they would have to be put.
        handed_on: whether something else may call the model by then.
        handed_on_later: whether something else may have it after the statements.
        weights_set_later: whether what follows the statements may set weights.
    """

    def __init__(self, model: str, tree: cst.Module, put: Sequence[Statement]) -> None:
        super().__init__()
        self.places = 0
        self.handed_on = self.handed_on_later = self.weights_set_later = False
        self._model, self._tree, self._put = model, tree, put
        name = m.Name(model)
        among = m.Tuple(elements=[m.ZeroOrMore(), m.Element(value=name), m.ZeroOrMore()])
        assigned = m.Assign(
            targets=[m.ZeroOrMore(), m.AssignTarget(target=name | among), m.ZeroOrMore()]
        ) | m.AnnAssign(target=name, value=m.MatchIfTrue(lambda value: value is not None))
        self._made = m.SimpleStatementLine(body=[m.ZeroOrMore(), assigned, m.ZeroOrMore()])
        self._made_within = m.NamedExpr(target=name)
        call = m.Call(func=name)
        # A function that is given to another, as a closure to an optimizer, is called by that.
        given = [m.Arg(value=m.Name(one)) for one in functions_that_reach(call, tree)]
        reached = calls_that_reach(call, tree)
        self._sets = calls_that_reach(SETS_WEIGHTS, tree)
        self._calls = m.OneOf(reached, *given) if given else reached

    def _makes_within(self, one: Any) -> bool:
        simple = isinstance(one, cst.SimpleStatementLine)
        return simple and bool(m.findall(one, self._made_within))

    def _hands_on(self, statements: Sequence[Any], *, may_call: bool = False) -> bool:
        return any(
            is_handed_on(one, self._model, self._tree, may_call=may_call) for one in statements
        )

    def of_block(self, original: Body, block: Body) -> Body:
        """With the statements before the first call, if the model is made here."""
        body: list[Any] = list(block.body)
        made, made_at = False, -1
        place: int = -1
        for at, one in enumerate(body):
            if m.matches(one, self._made):
                made, made_at = True, at
            elif self._makes_within(one):
                # What it is made in may keep it.
                made, made_at = True, at - 1
            elif made and not _defines(one) and m.findall(one, self._calls):
                place = at
                break
        if place < 0:
            return block
        # One that is made again needs the statements again.
        later = [one for one in original.body[place:] if not _defines(one)]
        again = self._made | self._made_within
        self.places += 1 + sum(len(m.findall(one, again)) for one in later)
        between = [one for one in body[made_at + 1 : place] if not _defines(one)]
        self.handed_on = self._hands_on(between)
        self.handed_on_later = self._hands_on(later, may_call=True)
        self.weights_set_later = any(m.findall(one, self._sets) for one in later)
        return block.with_changes(body=[*body[:place], *self._put, *body[place:]])


def _defines(statement: cst.CSTNode) -> bool:
    return isinstance(statement, (cst.FunctionDef, cst.ClassDef))
