"""A ``with`` written around the forward pass of a script's step, up to where it goes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import libcst as cst
from libcst import matchers as m

Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement
Body = TypeVar("Body", cst.Module, cst.IndentedBlock)
_GOES_BACK = m.Call(
    func=m.Attribute(attr=m.Name("backward"))
    | m.Attribute(
        value=m.Name("autograd") | m.Attribute(attr=m.Name("autograd")), attr=m.Name("grad")
    )
    | m.Name("grad")
)
# Where none of these stands, no weight changes between two calls of the model.
COMPUTES_GRADIENTS = m.OneOf(*map(m.Name, ("backward", "autograd", "optim", "zero_grad")))
_TRAINS = COMPUTES_GRADIENTS | m.Call(func=m.Attribute(attr=m.Name("step")))
# Other ways to new weights: a checkpoint, an average of them.
SETS_WEIGHTS = m.Call(
    func=m.Attribute(
        attr=m.Name("load_state_dict") | m.Name("parameters") | m.Name("named_parameters")
    )
)
_NO_GRADIENTS = m.Name("no_grad") | m.Name("inference_mode")


class OfEachBlock(cst.CSTTransformer):
    """Changes the statements of the module and of each block in it, from the inside out."""

    def of_block(self, original: Body, block: Body) -> Body:
        """A block as it is to be; ``original``: before what is inside was changed."""
        raise NotImplementedError

    def leave_Module(  # noqa: N802 - LibCST's name
        self, original_node: cst.Module, updated_node: cst.Module
    ) -> cst.Module:
        """The module's own statements."""
        return self.of_block(original_node, updated_node)

    def leave_IndentedBlock(  # noqa: N802 - LibCST's name
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """A block's."""
        return self.of_block(original_node, updated_node)


class AroundCallsOf(OfEachBlock):
    """Puts one ``with`` around each stretch of statements that calls the model.

    A stretch begins with the statement that calls it and ends before the one that goes back
    through the graph, or, where none does, with the last that calls it. A loop without gradients,
    or in a script that does not train, is one statement: the context goes around all of it. In any
    other loop, and in a block that sets weights, it goes around the calls: autocast keeps the
    weights it has cast for as long as the context is open, and would go on with the first ones.

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
        self._back: m.BaseMatcherNode = _GOES_BACK
        self._sets: m.BaseMatcherNode = SETS_WEIGHTS
        self._trains = True
        # How many blocks without gradients are around the one that is visited.
        self._without_gradients = 0
        # Statements of the tree as it was, which a context goes around: first of a stretch or not.
        self._inside: dict[cst.CSTNode, bool] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Outer blocks decide first: what has a context around it gets none inside."""
        if isinstance(node, cst.Module):
            self._back = calls_that_reach(_GOES_BACK, node)
            self._sets = calls_that_reach(SETS_WEIGHTS, node)
            self._trains = bool(m.findall(node, _TRAINS))
        if isinstance(node, (cst.Module, cst.IndentedBlock)):
            self._plan(node)
        elif m.matches(node, self._calls):
            self.unclear = self.unclear or "a call of it is no statement of its own"
        visited = node not in self._inside
        if visited:
            self._without_gradients += _has_no_gradients(node)
        return visited

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        """What was visited is behind."""
        if original_node not in self._inside:
            self._without_gradients -= _has_no_gradients(original_node)
        return super().on_leave(original_node, updated_node)

    def _plan(self, block: cst.Module | cst.IndentedBlock) -> None:
        within = False
        for place, one in enumerate(block.body):
            begins = self._begins(one)
            leads = within and self._leads_back(block.body[place:])
            if (begins or leads) and not self._repeats(one):
                if m.findall(one, m.Yield()):
                    self.unclear = "what takes the results of its generator would run in it"
                self._inside[one] = not within
                within = True
            else:
                within = False

    def _begins(self, one: cst.CSTNode) -> bool:
        """Whether a statement calls the model, and does not go back as well."""
        if isinstance(one, (cst.FunctionDef, cst.ClassDef)) or not m.findall(one, self._calls):
            return False
        if not m.findall(one, self._back):
            return True
        if isinstance(one, cst.SimpleStatementLine):
            self.unclear = "the forward and the backward pass are one statement"
        return False

    def _leads_back(self, rest: Sequence[cst.CSTNode]) -> bool:
        """Whether a statement stands between a call and the backward pass that follows it."""
        first, *later = rest
        return not m.findall(first, self._back) and any(m.findall(one, self._back) for one in later)

    def _repeats(self, one: cst.CSTNode) -> bool:
        """Whether a statement calls the model more than once and weights may change between."""
        compound = isinstance(one, cst.BaseCompoundStatement)
        if compound and m.findall(one, self._calls) and m.findall(one, self._sets):
            return True
        if not self._trains or self._without_gradients or _has_no_gradients(one):
            return False
        if isinstance(one, (cst.For, cst.While)) and m.findall(one, self._calls):
            return True
        return any(map(self._repeats, one.children))

    def of_block(self, original: Body, block: Body) -> Body:
        """With the context around the stretches that were planned."""
        body: list[Statement] = []
        stretch: list[Statement] = []
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

    def _wrapped(self, stretch: Sequence[Statement]) -> list[Statement]:
        if not stretch:
            return []
        self.written += 1
        first, *others = stretch
        above = [*first.leading_lines, cst.EmptyLine(comment=cst.Comment(self._comment))]
        inside = [first.with_changes(leading_lines=[]), *others]
        items = [cst.WithItem(self._context)]
        return [cst.With(items, cst.IndentedBlock(inside), leading_lines=above)]


def calls_that_reach(call: m.BaseMatcherNode, tree: cst.Module) -> m.BaseMatcherNode:
    """What matches ``call``, and calls of the script's own functions in which something does.

    Methods are told by their names alone.
    """
    return _or_own(call, functions_that_reach(call, tree))


def functions_that_reach(call: m.BaseMatcherNode, tree: cst.Module) -> set[str]:
    """Names of the script's own functions in which something matches ``call`` or reaches it."""
    functions = [cst.ensure_type(one, cst.FunctionDef) for one in m.findall(tree, m.FunctionDef())]
    names: set[str] = set()
    while True:
        calls = _or_own(call, names)
        found = {one.name.value for one in functions if m.findall(one.body, calls)}
        if found <= names:
            return names
        names |= found


def _or_own(call: m.BaseMatcherNode, names: set[str]) -> m.BaseMatcherNode:
    named = [m.Name(name) for name in sorted(names)]
    own = [m.Call(func=one | m.Attribute(attr=one)) for one in named]
    return m.OneOf(call, *own) if own else call


def _has_no_gradients(node: cst.CSTNode) -> bool:
    """Whether what is inside runs under ``no_grad`` or ``inference_mode``."""
    around = (
        node.items if isinstance(node, cst.With)
        else node.decorators if isinstance(node, cst.FunctionDef)
        else ()
    )  # fmt: skip
    return any(m.findall(one, _NO_GRADIENTS) for one in around)
