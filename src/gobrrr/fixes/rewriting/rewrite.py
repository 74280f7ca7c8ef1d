"""A script with fixes written into it, as its author would: exactly what was tried, or nothing.

The text is changed in its concrete syntax tree (LibCST), so that comments and layout stay. A set of
fixes was verified as a whole: where one of them has no place that can be told for sure, none is
written, and all are shown as code.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst import matchers as m

from gobrrr.fixes.edits import (
    AfterImports,
    AroundCalls,
    BeforeLoop,
    Edit,
    FirstArgument,
    Keyword,
)
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.rewriting.around_calls import COMPUTES_GRADIENTS, AroundCallsOf, Statement
from gobrrr.fixes.rewriting.before_loop import BeforeFirstCall
from gobrrr.fixes.rewriting.call_arguments import SetFirst, SetKeyword
from gobrrr.fixes.rewriting.imported_names import ImportedNames, UsesOf
from gobrrr.fixes.rewriting.script_names import defined_in
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import multiple


@dataclass(frozen=True)
class Rewritten:
    """The new text, and what the user has to do besides.

    Attributes:
        text: ``None`` where not all fixes could be written.
        notes: sentences; where there is no text, why, and the fixes as code.
    """

    text: str | None
    notes: tuple[str, ...] = ()


class _NoPlace(Exception):  # noqa: N818 - the fix is shown instead
    """Where an edit belongs cannot be told."""


def rewrite(
    source: str,
    fixes: Sequence[Fix],
    speedup: float,
    modules: int = 1,
    *,
    compiles_by_method: bool = False,
    objects: Mapping[str, int] | None = None,
) -> Rewritten:
    """The script with these fixes, which were tried on so many modules of it.

    ``compiles_by_method``: ``module.compile()`` is known to compile the one. ``objects``:
    how many a fix changed, by its name. Raises InputError if the script is not valid Python.
    """
    try:
        tree = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise InputError(f"line {error.raw_line} is not valid Python: {error.message}") from None
    names = ", ".join(fix.name for fix in fixes)
    comment = f"# gobrrr fix: {multiple(speedup)} here with {names}"
    try:
        edited = _Edited(tree, comment, modules, compiles_by_method, objects or {})
        for fix in fixes:
            _write(edited, fix)
        text = edited.code()
        _refuse_invalid(text)
    except _NoPlace as reason:
        snippets = [f"# {fix.title}\n{fix.snippet}" for fix in fixes]
        return Rewritten(None, (f"Not written: {reason}. By hand:", *snippets))
    started = [
        f"{fix.name} has to be set when the script is started: "
        + " ".join(f"{name}={value}" for name, value in fix.environment.items())
        + " python ..."
        for fix in fixes
        if fix.environment
    ]
    return Rewritten(text, (*edited.notes, *started))


def _refuse_invalid(text: str) -> None:
    """Raises _NoPlace for what Python would not run."""
    try:
        with warnings.catch_warnings():
            # They are the script's own.
            warnings.simplefilter("ignore")
            # Bytes, as in a file: a byte order mark is allowed there.
            compile(text.encode(), "script", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _NoPlace(
            f"line {error.lineno} of the changed script would not be valid Python ({error.msg})"
        ) from None


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """A unified diff."""
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), before_name,
            after_name,
        )
    )  # fmt: skip


def model_name(tree: cst.Module) -> str | None:
    """The variable that the script trains or evaluates; ``None`` if it is not clear which."""
    owners = m.findall(
        tree,
        m.Call(
            func=m.Attribute(
                value=m.Name(), attr=m.OneOf(*map(m.Name, ("parameters", "train", "eval")))
            )
        ),
    )
    owned = {cst.ensure_type(_attribute(call).value, cst.Name).value for call in owners}
    called = m.findall(tree, m.Call(func=m.Name()))
    both = owned & {cst.ensure_type(_call(node).func, cst.Name).value for node in called}
    return both.pop() if len(both) == 1 else None


def _call(node: cst.CSTNode) -> cst.Call:
    return cst.ensure_type(node, cst.Call)


def _attribute(node: cst.CSTNode) -> cst.Attribute:
    return cst.ensure_type(_call(node).func, cst.Attribute)


def _write(edited: _Edited, fix: Fix) -> None:
    if not fix.in_source and not fix.environment:
        raise _NoPlace(f"gobrrr cannot tell where {fix.name} belongs in the script")
    for edit in fix.in_source:
        edited.add(edit, fix.name)


@dataclass
class _Edited:
    tree: cst.Module
    comment: str
    modules: int
    compiles_by_method: bool
    objects: Mapping[str, int]
    before_loop: list[tuple[str, BeforeLoop]] = field(default_factory=list)
    after_imports: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, edit: Edit, name: str) -> None:
        """Make or note an edit. Raises _NoPlace."""
        if isinstance(edit, (FirstArgument, Keyword)):
            own = sorted(defined_in(self.tree) & set(edit.calls))
            if own:
                raise _NoPlace(
                    f"{name} changes calls of {' and '.join(own)}, which the script defines itself"
                )
        if isinstance(edit, AfterImports):
            for line in edit.lines:
                (self.imports if line.startswith("import ") else self.after_imports).append(line)
            self._uses(*edit.lines)
        elif isinstance(edit, FirstArgument):
            names = ImportedNames(self.tree)
            self._refuse_unseen(edit, name, names)
            self.tree = names.tree.visit(SetFirst(edit, names))
        elif isinstance(edit, AroundCalls):
            model = self._model(name)
            context = edit.context.replace("{model}", model)
            self._uses(context)
            around = AroundCallsOf(model, context, self.comment)
            self.tree = self.tree.visit(around)
            if around.unclear or not around.written:
                why = around.unclear or f"nothing calls {model}"
                raise _NoPlace(f"{name} goes around the step's forward pass, and {why}")
        elif isinstance(edit, BeforeLoop):
            self._model(name)
            self.before_loop.append((name, edit))
            self._uses(*self._lines_of(edit))
        else:
            if edit.not_beside and _names(self.tree, edit.not_beside):
                raise _NoPlace(
                    f"{name} leaves what has an {edit.not_beside} as it is, and gobrrr cannot tell "
                    "which calls of the script those are"
                )
            names = ImportedNames(self.tree)
            if edit.home:
                self._refuse_unseen(edit, name, names)
            change = SetKeyword(edit, names)
            self.tree = names.tree.visit(change)
            if change.left_out:
                self.notes.append(edit.note)
            what = " and ".join(name for name, _ in (*edit.arguments, *edit.lasting))
            if change.unclear:
                raise _NoPlace(f"{name} sets {what} in a call whose arguments cannot be edited")
            if not change.seen:
                calls = " or ".join(edit.calls)
                raise _NoPlace(f"{name} sets {what} in a call of {calls}, and there is none")
            if not change.made:
                raise _NoPlace(f"{name} sets {what}, and no call of the script leaves that open")
            if change.once and self.objects.get(name, 0) > change.made:
                raise _NoPlace(
                    f"{name} changed {self.objects[name]} of what the program makes, and the "
                    f"script makes {change.made} of them: set {what} where the others are made, too"
                )

    def _refuse_unseen(
        self, edit: Keyword | FirstArgument, name: str, names: ImportedNames
    ) -> None:
        """Raises _NoPlace where the trial may have changed calls that the text does not show."""
        inherited = isinstance(edit, Keyword) and edit.inherited
        uses = UsesOf(names, edit.home, edit.calls, bases=inherited)
        names.tree.visit(uses)
        if isinstance(edit, FirstArgument):
            # What else has such a name is no function of torch, which alone the trial changes.
            uses.strangers = []
        for found, why in (
            (uses.elsewhere, "which may be called where gobrrr does not see it"),
            (uses.strangers, f"which gobrrr cannot tell to be {edit.home}'s"),
        ):
            if found:
                code = names.tree.code_for_node(found[0])
                raise _NoPlace(
                    f"{name} changes calls of {edit.home}, and line {names.line(found[0])} has "
                    f"{code}, {why}"
                )

    def _uses(self, *code: str) -> None:
        """Have ``torch`` imported for this code, where the script does not do it by that name."""
        used = any("torch" in one for one in code)
        if used and "import torch" not in self.imports and not _binds_torch(self.tree):
            self.imports.append("import torch")

    def _model(self, name: str) -> str:
        if self.modules > 1:
            raise _NoPlace(
                f"{name} was tried on {self.modules} modules that the script calls, and gobrrr can "
                "write it for one: change each of them where it is made"
            )
        model = model_name(self.tree)
        if model is None:
            raise _NoPlace(f"{name} changes the model, and gobrrr cannot tell its variable")
        return model

    def _lines_of(self, edit: BeforeLoop) -> tuple[str, ...]:
        return edit.in_torch if edit.in_torch and not self.compiles_by_method else edit.lines

    def code(self) -> str:
        """All of it. Raises _NoPlace."""
        tree = self._with_before_loop() if self.before_loop else self.tree
        if self.after_imports:
            body = list(tree.body)
            at = _after_imports(body)
            body[at:at] = self._statements(self.after_imports, blank=True)
            tree = tree.with_changes(body=body)
        if self.imports:
            # Before everything that may use them: a script can import more further down. torch not
            # before what a script does ahead of its own import, such as set its environment.
            body = list(tree.body)
            first = 1 + max(
                (i for i, one in enumerate(body) if m.matches(one, _FUTURE)),
                default=_docstring(body),
            )
            torch = next((i for i, one in enumerate(body) if _names(one, "torch")), first)
            lines: dict[int, list[str]] = {}
            for line in self.imports:
                lines.setdefault(torch if "torch" in line else first, []).append(line)
            for at in sorted(lines, reverse=True):
                body[at:at] = self._statements(lines[at], blank=at > 0)
            tree = tree.with_changes(body=body)
        return tree.code

    def _with_before_loop(self) -> cst.Module:
        names = " and ".join(dict.fromkeys(name for name, _ in self.before_loop))
        model = self._model(names)
        lines = [line for _, edit in self.before_loop for line in self._lines_of(edit)]
        put = self._statements([line.replace("{model}", model) for line in lines])
        placed = BeforeFirstCall(model, self.tree, put)
        tree = self.tree.visit(placed)
        if not placed.places:
            raise _NoPlace(f"gobrrr cannot tell where {model} is made and first called")
        if placed.places > 1:
            raise _NoPlace(
                f"{names} changes {model}, which the script makes in more than one place"
            )
        if placed.handed_on:
            raise _NoPlace(
                f"{names} changes {model} before its first call, and what the script has passed it "
                "to by then may call it too"
            )
        for name, edit in self.before_loop:
            trains = m.findall(self.tree, COMPUTES_GRADIENTS) or placed.handed_on_later
            if trains and (edit.untrained or edit.frozen):
                raise _NoPlace(
                    f"{name} changes {model} for good, for steps without gradients, and the script "
                    "may train it later: put it around those steps alone"
                )
            if edit.frozen and placed.weights_set_later:
                raise _NoPlace(
                    f"{name} goes on with the weights that {model} has at its first call, and the "
                    "script may set others later"
                )
        return tree

    def _statements(self, lines: Sequence[str], *, blank: bool = False) -> list[Statement]:
        made = [cst.parse_statement(line) for line in lines]
        above = [cst.EmptyLine()] if blank else []
        above.append(cst.EmptyLine(comment=cst.Comment(self.comment)))
        made[0] = made[0].with_changes(leading_lines=above)
        return made


_FUTURE = m.SimpleStatementLine(body=[m.ImportFrom(module=m.Name("__future__")), m.ZeroOrMore()])


def _names(tree: cst.CSTNode, name: str) -> bool:
    return bool(m.findall(tree, m.Name(name)))


def _binds_torch(tree: cst.Module) -> bool:
    """Whether a statement of the module itself imports ``torch`` by its own name."""
    return any(
        alias.asname is None and alias.evaluated_name.partition(".")[0] == "torch"
        for line in tree.body if isinstance(line, cst.SimpleStatementLine)
        for one in line.body if isinstance(one, cst.Import)
        for alias in one.names
    )  # fmt: skip


def _imports(statement: cst.CSTNode) -> bool:
    return m.matches(
        statement, m.SimpleStatementLine(body=[m.AtLeastN(m.Import() | m.ImportFrom(), n=1)])
    )


def _after_imports(body: Sequence[cst.CSTNode]) -> int:
    """Behind the imports that torch's is among: a script can import more once it has run."""
    lines = [i for i, one in enumerate(body) if _imports(one)]
    last = max(lines, default=1 + _docstring(body))
    at = next((i for i in lines if _names(body[i], "torch")), last)
    while at < len(body) and _imports(body[at]):
        at += 1
    return at


def _docstring(body: Sequence[cst.CSTNode]) -> int:
    """Position of the module's docstring, -1 without one."""
    is_one = m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())])
    return 0 if body and m.matches(body[0], is_one) else -1
