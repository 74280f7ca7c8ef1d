"""Arguments written into the calls of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst
from libcst import matchers as m

from gobrrr.fixes.edits import FirstArgument, Keyword
from gobrrr.fixes.rewriting.imported_names import ImportedNames
from gobrrr.fixes.rewriting.script_names import is_changed_in_loops, last_name


class SetKeyword(cst.CSTTransformer):
    """Sets arguments in every call of some functions.

    Attributes:
        seen: how many calls there are.
        made: how many of them were changed.
        once: whether each of these runs once at the most.
        unclear: whether one has arguments that cannot be edited.
        left_out: whether one has not been given what ``edit.lasting`` is.
    """

    def __init__(self, edit: Keyword, names: ImportedNames) -> None:
        super().__init__()
        self.edit = edit
        self.names = names
        self.seen = self.made = 0
        self.once = True
        self.unclear = self.left_out = False
        self._called_on: set[str] = set()

    def leave_Call(  # noqa: N802 - LibCST's name
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.Call:
        """The call with the arguments."""
        edit = self.edit
        if not (
            self.names.are(original_node.func, edit.home, edit.calls)
            if edit.home
            else m.matches(updated_node.func, m.Attribute())
            and last_name(updated_node.func) in edit.calls
        ):
            return updated_node
        self.seen += 1
        if edit.one_owner:
            self._called_on.add(cst.Module([]).code_for_node(original_node.func))
            # Whose method each of several is, is not known.
            self.unclear = self.unclear or len(self._called_on) > 1
        old = updated_node.args
        positional = sum(arg.keyword is None for arg in old)
        given = {arg.keyword.value: arg.value for arg in old if arg.keyword is not None}
        if any(arg.star for arg in old):
            self.unclear = True
            return updated_node
        decided = given.get(edit.unless) if edit.unless else None
        if edit.unless and positional > edit.place:
            decided = old[edit.place].value
        if decided is not None and _is_on(decided):
            return updated_node
        values = dict((*edit.arguments, *self._lasting(old, given)))
        changed = [given[name] for name in (*values, *edit.without) if name in given]
        changed += [decided] if decided is not None else []
        # The first argument has none before it to hand its comments to.
        first = old[0].keyword.value if old and old[0].keyword is not None else ""
        if (
            positional > edit.place
            or first in edit.without
            or not all(_is_on(value) or _is_off(value) for value in changed)
        ):
            self.unclear = True
            return updated_node
        self.made += 1
        self.once = self.once and self.names.runs_once(original_node)
        kept: list[cst.Arg] = []
        for arg in old:
            name = arg.keyword.value if arg.keyword is not None else ""
            if name in edit.without:
                kept[-1] = _followed(kept[-1], _space_after(arg))
                continue
            # Where it stands: a comment can be beside it.
            value = cst.parse_expression(values.pop(name)) if name in values else arg.value
            kept.append(arg.with_changes(value=value))
        new = [_argument(name, value) for name, value in values.items()]
        return updated_node.with_changes(args=_appended(kept, new))

    def _lasting(
        self, args: Sequence[cst.Arg], given: Mapping[str, cst.BaseExpression]
    ) -> tuple[tuple[str, str], ...]:
        edit = self.edit
        data = given.get(edit.data, args[0].value if args else None)
        if not edit.lasting or data is None:
            return edit.lasting
        changes = is_changed_in_loops(self.names.tree, data, *edit.calls)
        self.left_out = self.left_out or changes
        return () if changes else edit.lasting


class SetFirst(cst.CSTTransformer):
    """Sets the first argument in every call of some functions."""

    def __init__(self, edit: FirstArgument, names: ImportedNames) -> None:
        super().__init__()
        self.edit = edit
        self.names = names

    def leave_Call(  # noqa: N802 - LibCST's name
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.Call:
        """The call with the argument."""
        its = self.names.are(original_node.func, self.edit.home, self.edit.calls)
        if not its or not updated_node.args:
            return updated_node
        first = updated_node.args[0].with_changes(value=cst.parse_expression(self.edit.value))
        return updated_node.with_changes(args=[first, *updated_node.args[1:]])


def _is_off(value: cst.BaseExpression) -> bool:
    """Whether it is 0, False or None as written: what the trial takes for not given."""
    if isinstance(value, cst.Integer):
        return value.evaluated_value == 0
    return m.matches(value, m.Name("False") | m.Name("None"))


def _is_on(value: cst.BaseExpression) -> bool:
    """Whether it is another number, or True, as written."""
    if isinstance(value, cst.Integer):
        return value.evaluated_value != 0
    return m.matches(value, m.Name("True"))


def _argument(name: str, value: str) -> cst.Arg:
    no_space = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(cst.parse_expression(value), cst.Name(name), equal=no_space)


def _appended(args: Sequence[cst.Arg], new: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Arguments with some more; the last hands on the white space before ``)``."""
    end = _space_after(args[-1]) if args else cst.SimpleWhitespace("")
    one_space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    made = [*args, *new]
    if args and new:
        made[len(args) - 1] = _parenthesised(args[-1])
    for place in range(max(len(args) - 1, 0), len(made) - 1):
        made[place] = made[place].with_changes(
            comma=one_space, whitespace_after_arg=cst.SimpleWhitespace("")
        )
    made[-1] = made[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)
    return made


def _parenthesised(arg: cst.Arg) -> cst.Arg:
    """A generator needs no parentheses of its own as long as it is the only argument."""
    value = arg.value
    if arg.keyword is not None or not isinstance(value, cst.GeneratorExp) or value.lpar:
        return arg
    own = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return arg.with_changes(value=own)


def _space_after(arg: cst.Arg) -> cst.BaseParenthesizableWhitespace:
    """Up to what follows, with the comments in it."""
    comma = arg.comma
    return comma.whitespace_after if isinstance(comma, cst.Comma) else arg.whitespace_after_arg


def _followed(arg: cst.Arg, space: cst.BaseParenthesizableWhitespace) -> cst.Arg:
    """An argument with the white space of one that stood behind it, and the comments of both."""
    own = _space_after(arg)
    if isinstance(own, cst.ParenthesizedWhitespace) and m.findall(own, m.Comment()):
        if not isinstance(space, cst.ParenthesizedWhitespace):
            return arg
        beside = space.first_line.comment
        line = cst.EmptyLine(indent=own.indent, whitespace=own.last_line, comment=beside)
        between = [*own.empty_lines, *([line] if beside is not None else [])]
        space = space.with_changes(
            first_line=own.first_line, empty_lines=[*between, *space.empty_lines]
        )
    return arg.with_changes(comma=cst.Comma(whitespace_after=space))
