"""Values that are followed through operators: of what is small, uniform, or true of all numbers."""

from __future__ import annotations

from typing import Any

from gobrrr.symbolic.stand_ins import (
    MOST_FLOATS,
    MOST_VALUES,
    forget,
    note_blank,
    real_call,
    remember,
    value_of,
    worth_keeping,
)
from gobrrr.symbolic.values.assumed_values import assumption_of, compute, spread_evenly
from gobrrr.symbolic.values.conditions import ORDINARY, condition_of_extremes, worth_asking
from gobrrr.symbolic.values.uniform_values import expanded, may_be_uniform, uniform_result


def collect(value: Any, found: list[Any]) -> None:
    """Append the tensors in ``value``, lists flattened."""
    import torch

    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            collect(item, found)


def values_in_place(value: Any, blank: bool = False) -> Any:
    """``value`` with the known values of stand-ins in their places; ``blank``: as ``value_of``."""
    import torch

    if isinstance(value, torch.Tensor):
        return value_of(value, blank=blank)
    if isinstance(value, (list, tuple)):
        return type(value)(values_in_place(item, blank) for item in value)
    if isinstance(value, dict):
        return {key: values_in_place(item, blank) for key, item in value.items()}
    return value


def _shares_elements(value: Any) -> bool:
    """Whether more elements than its memory has are shown by a real tensor (an expanded one)."""
    strided = str(value.layout) == "torch.strided" and value.numel()
    spanned = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())) if strided else 0
    return bool(strided and value.numel() > spanned)


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The values that an operator writes into."""
    found: list[Any] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            collect(args[index] if index < len(args) else kwargs.get(argument.name), found)
    return found


def _of_their_own(value: Any) -> Any:
    """``value`` with memory for each element of its small tensors.

    A program's tensor may have an element expanded for its known value (``uniform_values``). Some
    kernels count on the strides of the program's: those of fused optimizers go from the first
    element to as many as there are, past the end of the memory.
    """
    import torch

    if isinstance(value, torch.Tensor):
        own = worth_keeping(value, assumption_of(value)) and _shares_elements(value)
        return real_call(torch.Tensor.contiguous, (value,), {}) if own else value
    if isinstance(value, (list, tuple)):
        return type(value)(_of_their_own(item) for item in value)
    if isinstance(value, dict):
        return {key: _of_their_own(item) for key, item in value.items()}
    return value


def takes_blank(func: Any) -> bool:
    """Whether an operator may be given what nobody has written yet: it writes, or shows a part."""
    return bool(func._schema.is_mutable or func.is_view)


def assume_choice(
    size_hint: int | None, func: Any, args: Any, kwargs: Any, result: Any, source: str
) -> None:
    """Give what an operator chooses by unknown values the values of an even choice."""
    choice = spread_evenly(func, args, kwargs, result, size_hint, source)
    if choice is not None and value_of(choice[0]) is None:
        index, make, assumption = choice
        remember(index, real_call(make, (), {}), assumption)


def assumption_under(*arguments: Any) -> str | None:
    """The sentence that the values of arguments rest on; ``None`` if all are known."""
    values: list[Any] = []
    for argument in arguments:
        collect(list(argument.values()) if isinstance(argument, dict) else argument, values)
    return next((found for found in map(assumption_of, values) if found is not None), None)


class _RandomOperators(dict[Any, bool]):
    """Whether an operator draws random numbers; found once for each."""

    def __missing__(self, func: Any) -> bool:
        import torch

        self[func] = torch.Tag.nondeterministic_seeded in func.tags
        return self[func]


_RANDOM = _RandomOperators()
# What they return holds whatever the memory held before.
_UNDEFINED = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
})  # fmt: skip


def follow_small(
    func: Any, args: Any, kwargs: Any, result: Any, size_hint: int | None, source: str
) -> bool:
    """Work out the values of a result whose arguments' values are known, if it is small.

    Integers that the program draws are those of one draw, as where a program has drawn them before
    the capture: what it puts among them (the marks of an image in a prompt) would be lost
    otherwise. With a size hint the hint decides instead.

    Returns whether they are known now, those that the operator wrote into included.
    """
    found: list[Any] = []
    collect(result, found)
    blank = takes_blank(func)
    real_args, real_kwargs = values_in_place(args, blank), values_in_place(kwargs, blank)
    rests_on = assumption_under(real_args, real_kwargs)
    if func.namespace != "aten" or not all(worth_keeping(tensor, rests_on) for tensor in found):
        return False
    if _RANDOM[func] and any(tensor.numel() > MOST_FLOATS for tensor in found):
        numbers = any(tensor.is_floating_point() or tensor.is_complex() for tensor in found)
        if size_hint is not None or numbers or any(t.numel() > MOST_VALUES for t in found):
            return False
        rests_on = rests_on or f"the integers drawn at random are those of one draw ({source})"
    # Without a result an operator writes into its arguments, and so into their values.
    if not found and not func._schema.is_mutable:
        return True
    if any(_shares_elements(value) for value in _written(func, real_args, real_kwargs)):
        return False
    if not func.is_view:
        real_args, real_kwargs = _of_their_own(real_args), _of_their_own(real_kwargs)
    try:
        real = real_call(compute, (func, real_args, real_kwargs), {})
    except Exception:  # values are a help, not a need: without them the program is asked
        return False
    values: list[Any] = []
    collect(real, values)
    if len(values) != len(found):
        return False
    undefined = func._schema.name.removeprefix("aten::") in _UNDEFINED
    for tensor, value in zip(found, values):
        remember(tensor, value, rests_on)
        if undefined or func._schema.is_mutable:
            note_blank(tensor, undefined)
    return True


def follow_uniform(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Note a result all of whose elements are the same; returns whether it is one."""
    import torch

    if not may_be_uniform(func, args, value_of):
        return False
    found: list[Any] = []
    collect(result, found)
    try:
        element = real_call(uniform_result, (func, args, kwargs, found, value_of), {})
    except Exception:  # as above
        return False
    if element is None:
        return False
    rests_on = assumption_under(values_in_place(args), values_in_place(kwargs))
    for tensor in found:
        if func._schema.is_mutable:
            forget(tensor)
        value = real_call(expanded, (element, tensor.shape), {})
        # What is small has memory of its own, which writes into a part of it are followed in.
        small = worth_keeping(tensor) and not func.is_view
        value = real_call(torch.Tensor.clone, (value,), {}) if small else value
        remember(tensor, value, rests_on)
    return True


def follow_condition(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Note a condition that holds, or does not, for all ordinary numbers."""
    if kwargs or func._schema.is_mutable or not worth_asking(func):
        return False
    try:
        value = real_call(condition_of_extremes, (func, args, result, value_of), {})
    except Exception:  # as above
        return False
    if value is None:
        return False
    remember(result, value, assumption_under(values_in_place(args)) or ORDINARY)
    return True
