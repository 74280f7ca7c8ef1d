"""Which formula counts which operator, and the rule for operators without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Optional, TypeVar

from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import account, is_sparse
from gobrrr.work.traits import Passes, Role, SpaceOf, Traits, forget_traits, state_traits

# ``None``: the arguments recorded do not determine the work.
Formula = Callable[[OpCall], Optional[Work]]  # noqa: UP045

_F = TypeVar("_F", bound=Formula)

_FORMULAS: dict[str, Formula] = {}
_USER_FORMULAS: dict[str, Formula] = {}
_COMPOSITE: set[str] = set()
# By call, so that one program's failure is not told of the next one.
_FAILED: dict[OpCall, str] = {}
# By identity, not by value: calls with 1, 1.0 and True are equal, but their work may not be.
_OF_TRACES: dict[int, tuple[OpCall, Optional[Work]]] = {}  # noqa: UP045
_MOST_OF_TRACES = 1 << 14

# Traces leave arguments out, or give what does not fit together; a formula then cannot tell.
UNTELLING = (
    ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError,
    ValueError,
)  # fmt: skip

# Names that traces carry beside operators: marks of the profiler, of autograd, of frameworks.
_NOT_OPERATORS = frozenset({"autograd", "profiler", "record_function", "torch", "cuda", "nccl"})


def qualified(names: str) -> tuple[str, ...]:
    """Names separated by white space, each in the namespace ``aten``."""
    return tuple(f"aten::{name}" for name in names.split())


def formula(
    *names: str,
    composite: bool = False,
    fusion: Role | SpaceOf | None = None,
    passes: Passes | None = None,
    rate: str | None = None,
) -> Callable[[_F], _F]:
    """Register a function as the formula of these operators (qualified names, no overload).

    ``composite`` marks operators that only call others below autograd: a dispatch recorder sees
    the inner ones instead. ``fusion``, ``passes`` and ``rate`` are those of ``Traits``; where they
    differ between the names, ``traits.describe`` states them below the function.

    Raises:
        ValueError: a name has a formula already, or a trait.
    """

    def register(function: _F) -> _F:
        add_formula(names, function, composite=composite)
        for name in names:
            state_traits(name, Traits(fusion, passes, rate))
        return function

    return register


def add_formula(names: tuple[str, ...], function: Formula, *, composite: bool = False) -> None:
    """The same as ``formula``, for tables.

    Raises:
        ValueError: a name has a formula already.
    """
    for name in names:
        if name in _FORMULAS:
            raise ValueError(f"{name} has a work formula already")
        _FORMULAS[name] = function
    if composite:
        _COMPOSITE.update(names)


def mark_composite(names: tuple[str, ...]) -> None:
    """Say that these operators, whose formulas stand elsewhere, only call others."""
    _COMPOSITE.update(names)


def register_work(
    name: str,
    fn: Formula,
    *,
    fusion: Role | SpaceOf | None = None,
    passes: Passes | None = None,
    rate: str | None = None,
) -> None:
    """Give a custom operator (``"my_ops::attention"``) a formula, or replace a built-in one.

    Args:
        name: qualified name without overload.
        fn: takes the ``OpCall`` (arguments in schema order), returns its ``Work``, or ``None``
            where it cannot tell. What it raises reaches the caller of ``work_of``.
        fusion: its role in fusion, or a function of the call: see ``Traits``. Of this and the next
            two a built-in operator keeps its own.
        passes: how its kernels pass over memory.
        rate: the operator measured on processors that does as much for each element.

    Raises:
        ValueError: the name is not qualified, or the user has registered it already.
    """
    namespace, _, rest = name.partition("::")
    if not namespace or not rest:
        raise ValueError(f"{name!r} is not a qualified operator name like 'my_ops::attention'")
    if name in _USER_FORMULAS:
        raise ValueError(f"{name} is registered already")
    if name not in _FORMULAS:
        state_traits(name, Traits(fusion, passes, rate))
    _USER_FORMULAS[name] = fn


def unregister_work(name: str) -> None:
    """Forget a formula given by ``register_work``; built-in formulas stay."""
    if _USER_FORMULAS.pop(name, None) is not None and name not in _FORMULAS:
        forget_traits(name)


def work_of(call: OpCall) -> Work | None:
    """The least work of one call; ``None`` where there is no formula or too little was recorded.

    An operator of an unknown namespace (a custom op) gets its bytes counted and FLOPs unknown. A
    built-in formula that fails on a call recorded whole, with its results, is a defect of gobrrr:
    the work is then unknown too, and ``failed_formulas`` has it.
    """
    name = call.name
    own = _USER_FORMULAS.get(name)
    if own is not None:
        return own(call)
    if call.outputs is not None:
        return _known_work(call)
    # Of a trace, whose reader gives one object for equal calls of all ranks of a job.
    known = _OF_TRACES.get(id(call))
    if known is None:
        if len(_OF_TRACES) >= _MOST_OF_TRACES:
            _OF_TRACES.clear()
        known = _OF_TRACES[id(call)] = call, _known_work(call)
    return known[1]


def _known_work(call: OpCall) -> Work | None:
    name = call.name
    function = _FORMULAS.get(name)
    if function is None:
        return _custom_op(call)
    try:
        return function(call)
    except UNTELLING as error:
        # Formulas are of dense tensors, but for those of ``sparse.py``.
        if not any(map(is_sparse, call.args)):
            note_failure(call, error, "formula", "its work counts as unknown")
        return None


def note_failure(call: OpCall, error: Exception, what: str, so: str) -> None:
    """Keep that gobrrr's own ``what`` for an op failed, and ``so`` what follows, for a notice.

    Only of calls recorded whole: a trace never has the results; whoever has them has every
    argument too.
    """
    if call.outputs is not None:
        how = f"{type(error).__name__}: {error}"
        _FAILED[call] = (
            f"gobrrr's own {what} for {call.name} fails here ({how}): {so}. This is a bug in "
            "gobrrr."
        )


def failed_formulas() -> dict[str, str]:
    """Operators for which something of gobrrr failed on a call recorded whole, and how."""
    return {call.name: told for call, told in _FAILED.items()}


def forget_failures() -> None:
    """Begin anew: for tests."""
    _FAILED.clear()


def failure_notices(calls: Iterable[OpCall]) -> list[str]:
    """What is to be said of what failed on these calls, once an operator."""
    if not _FAILED:
        return []
    return list({call.name: _FAILED[call] for call in calls if call in _FAILED}.values())


def has_formula(name: str) -> bool:
    """Whether FLOPs of this operator can be known."""
    return name in _USER_FORMULAS or name in _FORMULAS


def is_composite(name: str) -> bool:
    """Whether the operator only calls others, so that its work is that of the ops inside it.

    Counting it beside them would count twice.
    """
    return name in _COMPOSITE


def formula_names() -> frozenset[str]:
    """Operators with a built-in formula."""
    return frozenset(_FORMULAS)


def _custom_op(call: OpCall) -> Work | None:
    namespace, _, rest = call.name.partition("::")
    if not rest or namespace == "aten" or namespace in _NOT_OPERATORS or " " in namespace:
        return None
    tensors = call.tensors
    if not tensors:
        return None
    # Without outputs (a trace), what the op wrote is unknown.
    work = account(tensors, call.outputs or (), dtype="", op_class="other", matrix=None)
    if call.outputs is None:
        return Work(None, None, work.bytes_read, None, None, work.compute_dtype, "other")
    return work
