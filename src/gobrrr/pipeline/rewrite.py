"""A script with fixes written into it, as its author would: calls changed, a few lines added.

Works on the source's own text by the positions of its syntax tree, so that comments and layout
stay. What has no place that can be told for sure is a note, not a guess.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gobrrr.fixes.compilation import MODES
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.optimizers import FUSED
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import multiple


@dataclass(frozen=True)
class Rewritten:
    """The new text, and what the user has to do besides."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass
class _Script:
    source: str
    tree: ast.Module
    # (offset, text) to insert; offsets are of the source as it was.
    edits: list[tuple[int, str]] = field(default_factory=list)
    # Lines that come before the first loop or call that uses the model.
    before_loop: list[str] = field(default_factory=list)
    after_imports: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def calls(self, *names: str) -> list[ast.Call]:
        return [
            node for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and _last_name(node.func) in names
        ]  # fmt: skip

    def offset(self, line: int, column: int) -> int:
        """Offset of a position; the tree counts columns in UTF-8 bytes."""
        lines = self.source.splitlines(keepends=True)
        before = sum(len(text) for text in lines[: line - 1])
        return before + len(lines[line - 1].encode()[:column].decode())

    def add_keyword(self, call: ast.Call, name: str, value: str) -> None:
        """``name=value`` at the end of a call, unless it has that argument."""
        if any(keyword.arg == name for keyword in call.keywords):
            return
        assert call.end_lineno is not None and call.end_col_offset is not None
        end = self.offset(call.end_lineno, call.end_col_offset) - 1
        inside = self.source[:end].rstrip()
        separator = "" if inside.endswith(("(", ",")) else ", "
        if inside.endswith(","):
            separator = " "
        self.edits.append((len(inside), f"{separator}{name}={value}"))


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def rewrite(source: str, fixes: Sequence[Fix], speedup: float) -> Rewritten:
    """The script with these fixes. Raises InputError if it is not valid Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise InputError(f"line {error.lineno} is not valid Python: {error.msg}") from None
    script = _Script(source, tree)
    for fix in fixes:
        change = _CHANGES.get(fix.name)
        if change is None:
            script.notes.append(f"{fix.name} is yours to write: {fix.snippet}")
        else:
            change(script, fix)
    names = ", ".join(fix.name for fix in fixes)
    _place_lines(script, f"gobrrr fix: {multiple(speedup)} here with {names}")
    text = source
    for offset, added in sorted(script.edits, key=lambda edit: -edit[0]):
        text = text[:offset] + added + text[offset:]
    ast.parse(text)
    return Rewritten(text, tuple(script.notes))


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """A unified diff."""
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), before_name,
            after_name,
        )
    )  # fmt: skip


def model_name(tree: ast.Module) -> str | None:
    """The variable that the script trains or evaluates; ``None`` if it is not clear which."""
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, method = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and method in ("parameters", "train", "eval"):
            names.add(owner.id)
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    both = names & called
    return both.pop() if len(both) == 1 else None


def _place_lines(script: _Script, comment: str) -> None:
    if script.after_imports:
        body = script.tree.body
        last = max(
            (i for i, node in enumerate(body) if isinstance(node, (ast.Import, ast.ImportFrom))),
            default=-1,
        )
        line = (body[last].end_lineno or 0) + 1 if last >= 0 else 1
        text = "".join(f"{added}\n" for added in [f"\n# {comment}", *script.after_imports])
        script.edits.append((_line_offset(script, line), text))
    if script.before_loop:
        place = _before_use(script)
        if place is None:
            script.notes += [f"before the loop: {line}" for line in script.before_loop]
            return
        line, indent = place
        lines = [f"# {comment}", *script.before_loop]
        text = "".join(f"{' ' * indent}{added}\n" for added in lines)
        script.edits.append((_line_offset(script, line), text))


def _line_offset(script: _Script, line: int) -> int:
    lines = script.source.splitlines(keepends=True)
    if line > len(lines):
        return len(script.source)
    return script.offset(line, 0)


def _before_use(script: _Script) -> tuple[int, int] | None:
    """(line, indent) of the statement that first loops over, or calls, the model."""
    name = model_name(script.tree)
    for owner in ast.walk(script.tree):
        body = getattr(owner, "body", None)
        if not isinstance(body, list) or not _assigns(body, name):
            continue
        for statement in body:
            defines = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
            if not defines and _calls(statement, name):
                return statement.lineno, statement.col_offset
    return None


def _assigns(body: list[ast.stmt], name: str | None) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
        for node in body
    )


def _calls(statement: ast.stmt, name: str | None) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(statement)
    )


def _model_line(line: str) -> Callable[[_Script, Fix], None]:
    def change(script: _Script, fix: Fix) -> None:
        name = model_name(script.tree)
        if name is None:
            script.notes.append(f"{fix.name} is yours to write: {fix.snippet}")
        else:
            script.before_loop.append(line.replace("model", name))

    return change


def _fused(script: _Script, fix: Fix) -> None:
    calls = script.calls(*FUSED)
    for call in calls:
        script.add_keyword(call, "fused", "True")
    if not calls:
        script.notes.append(f"{fix.name} is yours to write: {fix.snippet}")


def _foreach(script: _Script, fix: Fix) -> None:
    for call in script.calls(*FUSED, "RMSprop", "Adadelta", "NAdam", "RAdam", "Rprop", "ASGD"):
        script.add_keyword(call, "foreach", "True")


def _workers(script: _Script, fix: Fix) -> None:
    for call in script.calls("DataLoader"):
        script.add_keyword(call, "persistent_workers", "True")
        script.add_keyword(call, "num_workers", "4")


def _pinned(script: _Script, fix: Fix) -> None:
    for call in script.calls("DataLoader"):
        script.add_keyword(call, "pin_memory", "True")
    for call in script.calls("to", "cuda"):
        script.add_keyword(call, "non_blocking", "True")


def _set_to_none(script: _Script, fix: Fix) -> None:
    script.after_imports += [
        "_zero_grad = torch.optim.Optimizer.zero_grad",
        "torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: _zero_grad(self)",
    ]


def _setting(*lines: str) -> Callable[[_Script, Fix], None]:
    def change(script: _Script, fix: Fix) -> None:
        if not any(line.startswith("import torch") for line in script.source.splitlines()):
            script.after_imports.append("import torch")
        script.after_imports += lines

    return change


def _environment(script: _Script, fix: Fix) -> None:
    settings = " ".join(f"{name}={value}" for name, value in fix.environment.items())
    script.notes.append(f"{fix.name} is set where the script is started: {settings} python ...")


def _call_text(mode_arguments: str) -> Callable[[_Script, Fix], None]:
    return _model_line(f"model.compile({mode_arguments})")


_CHANGES: dict[str, Callable[[_Script, Fix], None]] = {
    **{
        mode.name: _call_text(", ".join(f"{k}={v!r}" for k, v in mode.arguments.items()))
        for mode in MODES
    },
    "fused_optimizer": _fused,
    "foreach_optimizer": _foreach,
    "loader_workers": _workers,
    "pinned_memory": _pinned,
    "set_to_none": _set_to_none,
    "channels_last": _model_line("model.to(memory_format=torch.channels_last)"),
    "inference_mode": _model_line("model.forward = torch.inference_mode()(model.forward)"),
    "bf16_autocast": _model_line(
        "model.forward = torch.autocast("
        "next(model.parameters()).device.type, dtype=torch.bfloat16)(model.forward)"
    ),
    "all_threads": _setting("torch.set_num_threads(torch.multiprocessing.cpu_count())"),
    "one_thread": _setting("torch.set_num_threads(1)"),
    "tf32": _setting('torch.set_float32_matmul_precision("high")'),
    "bf16_matmul": _setting('torch.set_float32_matmul_precision("medium")'),
    "glibc_tunables": _environment,
    "jemalloc": _environment,
    "tcmalloc": _environment,
}
