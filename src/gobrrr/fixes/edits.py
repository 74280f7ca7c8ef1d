"""How a fix is written into a script: a few kinds of change, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Keyword:
    """Keyword arguments in every call of a function or class with one of these names.

    Attributes:
        calls: last names of what is called: ``"DataLoader"``, ``"Embedding.from_pretrained"``.
        arguments: (name, value as code); a value that the call gives by name is replaced.
        without: arguments that are taken out, because they contradict these.
        unless: a call that has this argument, and not as 0, False or None, stays as it is.
        place: positional arguments that leave these to be given by name.
        not_beside: where the script names this, which of its calls were changed cannot be told.
        lasting: more arguments, of a call whose ``data`` the script leaves as it is in its loops.
        data: name of the first parameter.
        note: what the user has to know of a script where ``lasting`` was left out.
        home: the package that it comes from; empty for methods, which are told by name alone.
        inherited: whether classes made of it are changed with it.
        one_owner: whether methods of the name of several objects are left as they are.
    """

    calls: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    without: tuple[str, ...] = ()
    unless: str = ""
    place: int = 99
    not_beside: str = ""
    lasting: tuple[tuple[str, str], ...] = ()
    data: str = ""
    note: str = ""
    home: str = ""
    inherited: bool = False
    one_owner: bool = False


@dataclass(frozen=True, slots=True)
class BeforeLoop:
    """Statements where the model is made and has not been called yet; ``{model}`` is its name.

    Attributes:
        lines: the statements.
        in_torch: those for a model whose ``forward`` may be torch's own, where they are others.
        untrained: whether no gradients can be computed through the model from then on.
        frozen: whether it may go on with the weights that it has then.
    """

    lines: tuple[str, ...]
    in_torch: tuple[str, ...] = ()
    untrained: bool = False
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class AroundCalls:
    """A ``with`` around the statements from a call of the model to the backward pass.

    Where none follows: around the statement that calls it, or the whole loop if nothing is trained
    in it. ``context`` is code that makes the context; ``{model}`` is the model's name.
    """

    context: str


@dataclass(frozen=True, slots=True)
class AfterImports:
    """Statements after the script's imports."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FirstArgument:
    """The first argument of every call of these functions of ``home``, where there are any."""

    calls: tuple[str, ...]
    value: str
    home: str


Edit: TypeAlias = Keyword | BeforeLoop | AroundCalls | AfterImports | FirstArgument


def in_16_bits(dtype: str) -> tuple[str, ...]:
    """Lines that give a model's results back in float32: a script's loss belongs there."""
    change = f"t.float() if t.dtype == torch.{dtype} else t"
    return (f"{{model}}.register_forward_hook(lambda module, args, out: {_mapped(change, 'out')})",)


def on_inputs(change: str) -> str:
    """A line that changes each tensor ``t`` that goes into the model."""
    return (
        "{model}.register_forward_pre_hook(lambda module, args, kwargs: "
        f"{_mapped(change, '(args, kwargs)')}, with_kwargs=True)"
    )


def _mapped(change: str, tree: str) -> str:
    return f"torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: {change}, {tree})"
