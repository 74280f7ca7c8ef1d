"""What a script does with an object that it has a name for, told from its text."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from gobrrr.fixes.rewriting.around_calls import calls_that_reach

# What these are given they neither keep, change nor call.
ONLY_LOOK = ("print", "len", "isinstance", "type", "repr", "str", "id", "hasattr", "enumerate",
             "deepcopy", "save", "AveragedModel")  # fmt: skip


def defined_in(tree: cst.Module) -> set[str]:
    """Names of the script's own functions, methods and classes."""
    defined = m.findall(tree, m.FunctionDef() | m.ClassDef())
    return {one.name.value for one in defined if isinstance(one, (cst.FunctionDef, cst.ClassDef))}


def last_name(expression: cst.CSTNode) -> str:
    """``c`` of ``a.b.c``; empty for what is neither a name nor an attribute."""
    if isinstance(expression, cst.Attribute):
        return expression.attr.value
    return expression.value if isinstance(expression, cst.Name) else ""


def is_changed_in_loops(tree: cst.Module, value: cst.BaseExpression, *but: str) -> bool:
    """Whether a loop may change this data set, or what it is made of.

    That is: calls a method of it, assigns to a part of it or gives it to a function, other than
    those that ``ONLY_LOOK`` and ``but`` name. Loaders have it as ``dataset``.
    """
    names, attributes = _made_of(tree, value)

    def reaches(node: cst.BaseExpression) -> bool:
        while isinstance(node, (cst.Attribute, cst.Subscript)):
            if isinstance(node, cst.Attribute) and node.attr.value in attributes:
                return True
            node = node.value
        return isinstance(node, cst.Name) and node.value in names

    def looks(function: cst.BaseExpression) -> bool:
        return last_name(function) in (*ONLY_LOOK, *but)

    of_it = m.MatchIfTrue(reaches)
    part = m.Attribute(value=of_it) | m.Subscript(value=of_it)
    changes = (
        m.Call(func=m.Attribute(value=of_it))
        | m.AssignTarget(target=part)
        | m.AugAssign(target=part | m.Name(value=m.MatchIfTrue(lambda name: name in names)))
        | m.Call(
            func=~m.MatchIfTrue(looks), args=[m.ZeroOrMore(), m.Arg(value=of_it), m.ZeroOrMore()]
        )
    )
    reached = calls_that_reach(changes, tree)
    return any(m.findall(loop, reached) for loop in m.findall(tree, m.For() | m.While()))


def is_handed_on(
    node: cst.CSTNode,
    name: str,
    tree: cst.Module,
    inside: frozenset[str] = frozenset(),
    *,
    may_call: bool = False,
) -> bool:
    """Whether something else may hold or call the object of this name, once a statement has run.

    ``may_call``: only whether it may hold it; the script's own functions may call it.

    Not where it is only given to what ``ONLY_LOOK`` names, and to functions of the script that
    neither call it nor hand it on; ``inside`` are those that are being looked into.
    """
    it = m.Name(name)
    # Where it gets its name as it is used, too: ``print(model := Net())``.
    it_or_made = it | m.NamedExpr(target=it)
    given = m.Call(args=[m.ZeroOrMore(), m.Arg(value=it_or_made), m.ZeroOrMore()])
    calls = m.findall(node, given)
    if not all(
        _only_looks(cst.ensure_type(one, cst.Call), name, tree, inside, may_call=may_call)
        for one in calls
    ):
        return True
    # Its own calls and attributes, what only looks at it, and its name where it gets a value.
    use = m.SaveMatchedNode(it, "use")
    made = m.NamedExpr(target=use)
    free = (
        m.Arg(value=made) | m.Expr(value=made) | m.AnnAssign(target=use) |
        m.Call(func=m.Attribute(value=made)) |
        m.Call(func=use) | m.Arg(value=use) | m.AssignTarget(target=use)
        | m.Attribute(value=use, attr=~(m.Name("forward") | m.Name("__call__")))
        | m.Call(func=m.Attribute(value=use))
    )  # fmt: skip
    harmless = {id(found["use"]) for found in m.extractall(node, free)}
    return any(id(one) not in harmless for one in m.findall(node, it))


def _only_looks(
    call: cst.Call, name: str, tree: cst.Module, inside: frozenset[str], *, may_call: bool
) -> bool:
    called = last_name(call.func)
    own = [
        cst.ensure_type(one, cst.FunctionDef)
        for one in m.findall(tree, m.FunctionDef(name=m.Name(called)))
    ]
    if not own:
        return called in ONLY_LOOK
    if not isinstance(call.func, cst.Name):
        return False
    if called in inside:
        return True
    for function in own:
        parameters = function.params.params
        for place, arg in enumerate(call.args):
            it = m.Name(name)
            if not m.matches(arg.value, it | m.NamedExpr(target=it)):
                continue
            if arg.star or (arg.keyword is None and place >= len(parameters)):
                return False
            its = arg.keyword.value if arg.keyword is not None else parameters[place].name.value
            if not may_call and m.findall(function.body, m.Call(func=m.Name(its))):
                return False
            within = inside | {called}
            if is_handed_on(function.body, its, tree, within, may_call=may_call):
                return False
    return True


def _made_of(tree: cst.Module, value: cst.BaseExpression) -> tuple[set[str], set[str]]:
    """Variables and attributes that hold a value, and those given to the calls that made it."""
    names: set[str] = set()
    attributes = {"dataset"}
    assigned = [cst.ensure_type(one, cst.Assign) for one in m.findall(tree, m.Assign())]
    # The items of a loop have their names from then on, whatever had them before.
    loops = [cst.ensure_type(one, cst.For) for one in m.findall(tree, m.For())]
    items = {name for loop in loops for name in _names_in(loop.target)}
    open_ = [value]
    while open_:
        one = open_.pop()
        if isinstance(one, cst.Call):
            open_ += [arg.value for arg in one.args if last_name(arg.value) not in items]
        known = attributes if isinstance(one, cst.Attribute) else names
        name = last_name(one)
        if name and name not in known:
            known.add(name)
            open_ += [
                made.value
                for made in assigned
                if any(name in _names_in(target) for target in made.targets)
            ]
    return names, attributes


def _names_in(node: cst.CSTNode) -> Iterator[str]:
    return (cst.ensure_type(one, cst.Name).value for one in m.findall(node, m.Name()))
