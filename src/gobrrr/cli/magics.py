"""``%load_ext gobrrr``: ``%%gobrrr`` diagnoses a notebook's cell, ``%gobrrr`` a callable.

Imported by IPython alone, when it loads the extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from gobrrr.cli.parsing import Parser, positive, require_torch
from gobrrr.observe.source_lines import beginning_in_program
from gobrrr.timeline.errors import InputError, UserCodeError

if TYPE_CHECKING:
    import argparse

    from gobrrr.diagnosis.schema import Diagnosis
    from gobrrr.live.script import Script, ScriptExit

_DESCRIPTION = """%%gobrrr runs the cell and reports where the time of its steps goes. %gobrrr
EXPRESSION does so for a callable, (module, inputs) or a gobrrr.Workload. What is found is the value
of the cell: d = _."""
_EXAMPLES = """examples:
  %%gobrrr --steps 50
  %gobrrr lambda: model(x)
  d = %gobrrr step
"""


def register(shell: Any) -> None:
    """Makes ``%gobrrr`` and ``%%gobrrr`` known to an IPython shell."""
    shell.register_magics(GobrrrMagics)


@magics_class
class GobrrrMagics(Magics):  # type: ignore[misc]
    """The two magics, of one name."""

    @no_var_expand  # type: ignore[untyped-decorator]
    @line_cell_magic  # type: ignore[untyped-decorator]
    def gobrrr(self, line: str, cell: str | None = None) -> Diagnosis | None:
        """Diagnose the cell's steps, or those of the line's callable (--help: the options)."""
        __tracebackhide__ = True
        try:
            options, rest = _taken_apart(line, of_cell=cell is not None)
        except SystemExit:  # after --help
            return None
        except InputError as error:
            raise UsageError(str(error)) from None
        try:
            require_torch("%gobrrr")
            if cell is None:
                return self._of_expression(rest, options)
            return self._of_cell(cell, options)
        except InputError as error:
            raise UsageError(str(error)) from None
        except UserCodeError as error:
            raise beginning_in_program(error.__cause__ or error) from None

    def _of_expression(self, expression: str, options: argparse.Namespace) -> Diagnosis:
        from gobrrr.pipeline.live import diagnose

        target = self.shell.ev(expression)
        return diagnose(target, steps=options.steps, name=expression)

    def _of_cell(self, cell: str, options: argparse.Namespace) -> Diagnosis:
        import torch  # noqa: F401  # before the ceilings: a kernel's process is not one to fork

        from gobrrr.measure.progress import shown
        from gobrrr.pipeline.script import diagnose_script

        __tracebackhide__ = True
        with shown(None) as progress:
            outcome = diagnose_script(
                self._compiled(cell), [], steps=options.steps, step=options.step,
                if_raised=False, progress=progress,
            )  # fmt: skip
        _raise_again(outcome.exit)
        if outcome.diagnosis is None:
            raise InputError(outcome.problem or "the cell ended before it could be diagnosed")
        return outcome.diagnosis

    def _compiled(self, cell: str) -> Script:
        """The cell as a program: its lines are counted from the magic's, as a notebook does."""
        from gobrrr.live.script import Script

        shell = self.shell
        source = f"\n{shell.transform_cell(cell)}"
        # ``execution_count`` is the next cell's already from IPython 9 on.
        number = len(shell.history_manager.input_hist_parsed) - 1
        file = shell.compile.cache(source, number, raw_code=cell)
        code = shell.compile(shell.compile.ast_parse(source, file), file, "exec")
        return Script(code, file, f"In[{number}]", namespace=shell.user_ns)


def _taken_apart(line: str, *, of_cell: bool) -> tuple[argparse.Namespace, str]:
    """The options that the line begins with, and what follows them."""
    parser = Parser(prog="%gobrrr", description=_DESCRIPTION, examples=_EXAMPLES)
    parser.add_argument("--steps", type=positive, metavar="N", help="number of steps to time")
    parser.add_argument(
        "--step", default="", metavar="WHAT",
        help='of a cell: what ends a step: "optimizer", "call", or a module',
    )  # fmt: skip
    own: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        option, _, rest = rest.partition(" ")
        own.append(option)
        if option in ("--steps", "--step"):
            value, _, rest = rest.lstrip().partition(" ")
            own += [value] if value else []
        rest = rest.lstrip()
    options = parser.parse_args(own)
    if of_cell and rest:
        raise InputError(f"{rest} is no option of %%gobrrr: the code goes below it")
    if not of_cell and not rest:
        raise InputError("nothing to diagnose: %gobrrr EXPRESSION, or a cell under %%gobrrr")
    if not of_cell and options.step:
        raise InputError("--step is of a cell: a step of a callable is one call of it")
    return options, rest


def _raise_again(ended: ScriptExit) -> None:
    """What the cell raised, for the shell to show."""
    __tracebackhide__ = True
    if ended.interrupted:
        raise KeyboardInterrupt
    if ended.error is not None:
        raise beginning_in_program(ended.error)
    if ended.code:
        raise SystemExit(ended.code)
