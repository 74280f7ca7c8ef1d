"""Signs that a program which only calls modules so far is going to train.

Rollouts, features that are computed first, data sets that a module prepares: thousands of calls
may come before an optimizer's first step. They are measured, and told only when that step has not
come for long.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from gobrrr.live.import_hook import when_imported
from gobrrr.live.watch.call_shapes import attributes
from gobrrr.observe.replacement import put_in_place
from gobrrr.observe.source_lines import is_user_file

# What programs call that train, and hardly any other.
_NAMES = frozenset({"backward", "manual_backward", "optim", "torch.optim", "zero_grad", "Trainer"})
# For how long measured calls wait for an optimizer's step: of a program that ends at its diagnosis,
# and of one that runs on.
STOPPING_WAITS_S, RUNNING_WAITS_S = 60.0, 300.0
_MOST_FUNCTIONS = 20_000


class OptimizersMade:
    """Notices optimizers as the program makes them."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self) -> Callable[[], None]:
        """Begin, as soon as the program has imported torch; returns what ends it."""
        undo: list[Callable[[], None]] = []
        undo.append(when_imported("torch", lambda: undo.append(self._watch())))

        def end() -> None:
            while undo:
                undo.pop()()

        return end

    def _watch(self) -> Callable[[], None]:
        import torch

        home = torch.optim.Optimizer
        original = home.__init__

        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            # A class of the user's may do anything when it is asked for its hash.
            with contextlib.suppress(Exception):
                self._made.add(optimizer)

        functools.update_wrapper(made, original)
        return put_in_place(home, "__init__", made)

    def __len__(self) -> int:
        """How many of them are there."""
        return len(self._made)


class AwaitedTraining:
    """Whether an optimizer's step is still waited for, once calls of a module have been measured.

    Args:
        made: optimizers of the program.
        code: the program's main module.
        stops: the program ends once it is diagnosed.
    """

    def __init__(
        self,
        made: OptimizersMade,
        code: CodeType,
        *,
        stops: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._made, self._code, self._clock = made, code, clock
        self._wait_s = STOPPING_WAITS_S if stops else RUNNING_WAITS_S
        self._until_s: float | None = None
        self._trains: bool | None = None

    @property
    def expected(self) -> bool:
        """Whether an optimizer's step may come, as far as it was asked."""
        return bool(self._trains or len(self._made) > 0)

    def goes_on(self) -> bool:
        """Whether to wait, asked at a call's end."""
        if self._until_s is None:
            self._until_s = self._clock() + self._wait_s
            self._trains = names_training(self._code)
        return self.expected and self._clock() < self._until_s


def names_training(main: CodeType) -> bool:
    """Whether the program's own code calls anything that trains."""
    found: list[CodeType] = [main]
    for function in _functions_of_user():
        found.append(function.__code__)
        if len(found) > _MOST_FUNCTIONS:
            break
    while found:
        code = found.pop()
        if not _NAMES.isdisjoint(code.co_names):
            return True
        found += [const for const in code.co_consts if type(const) is CodeType]
    return False


def _functions_of_user() -> Iterator[FunctionType]:
    for name, module in list(sys.modules.items()):
        # A module may do anything when asked for a name that it has not.
        holds = attributes(module)
        file = holds.get("__file__") if name != "__main__" else None
        if type(file) is not str or not is_user_file(file):
            continue
        for value in list(holds.values()):
            held = list(vars(value).values()) if type(value) is type else [value]
            yield from (each for each in held if type(each) is FunctionType)
