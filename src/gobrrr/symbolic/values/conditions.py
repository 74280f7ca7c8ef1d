"""What a program is told where its way depends on data that nobody knows.

A condition is false, unless that makes the program raise: what is checked is taken to hold. A loop
whose condition never changes is not followed for ever.
"""

from __future__ import annotations

import dis
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from gobrrr.observe.source_lines import format_line, is_gobrrr_file
from gobrrr.symbolic.capture_errors import is_machinery_file
from gobrrr.timeline.errors import CaptureError

# Turns of a ``while`` loop, and of any other, in which one line may get the same answer.
MOST_TURNS = 2000
MOST_ASKED = 100_000
# A loop of long turns is stopped sooner, after as long and at least so many of them.
LONGEST_S = 120.0
FEWEST_TURNS = 20
# What a program compares data with only to tell that they are no ordinary numbers.
EXTREME = 1e6
ORDINARY = "data are assumed to be finite numbers of ordinary size"
_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_LOGICAL = frozenset({"bitwise_and", "logical_and", "bitwise_or", "logical_or"})
_CONDITIONS = _COMPARED | _LOGICAL | {"where", "isnan", "isinf"}
_PATH_LENGTH = 400
_CHECKS = str(Path("torch", "__init__.py"))
_BETWEEN = frozenset({"CACHE", "NOP", "EXTENDED_ARG", "TO_BOOL", "PRECALL"})
_ENDS = ("RETURN", "YIELD", "FOR_ITER", "RERAISE", "SEND")


class Conditions:
    """Counts what is asked, and where.

    Args:
        turns: how often a loop's condition is answered alike before it ends; ``None``: not known.
        clock: seconds.
    """

    def __init__(self, turns: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns = turns
        self._clock = clock
        self._asked: Counter[tuple[types.CodeType, int]] = Counter()
        self._since: dict[tuple[types.CodeType, int], float] = {}

    def answer(self, frame: types.FrameType | None, source: str) -> bool:
        """The truth of an unknown condition.

        Raises CaptureError for a loop that does not end.
        """
        asker = _asking_frame(frame)
        if asker is None:
            return False
        if _is_check(asker):
            return True
        usual = answer_that_goes_on(asker.f_code, asker.f_lasti) or False
        return usual != self.count(frame, source)

    def count(self, frame: types.FrameType | None, source: str) -> bool:
        """Note a question; whether it ends a loop that has had its turns.

        Raises CaptureError for a loop that does not end.
        """
        asker = _asking_frame(frame)
        if asker is None:
            return False
        place = (asker.f_code, asker.f_lasti)
        self._asked[place] += 1
        asked, now = self._asked[place], self._clock()
        since = self._since.setdefault(place, now)
        endless = _is_in_while(asker)
        slow = endless and asked >= FEWEST_TURNS and now - since > LONGEST_S
        most = max(MOST_TURNS, 100 * (self._turns or 0)) if endless else MOST_ASKED
        if slow or asked >= most:
            line = format_line(asker.f_code.co_filename, asker.f_lineno, asker.f_code.co_name)
            where = source if not source or line == source else f"{source}, which asks in {line}"
            raise CaptureError(
                f"cannot predict this step: a loop does not end ({where or line}), because "
                f"its condition depends on data; it was evaluated {asked:,} times. Give the number "
                "of iterations with --size-hint N (size_hint=N in Python), or bound the loop "
                "(for i in range(N))"
            )
        return endless and self._turns is not None and asked % self._turns == 0


def _asking_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """The innermost frame that is neither gobrrr's nor of PyTorch's way to an operator."""
    tensor = str(Path("torch", "_tensor.py"))
    while frame is not None:
        path = frame.f_code.co_filename
        if not (is_gobrrr_file(path) or is_machinery_file(path) or path.endswith(tensor)):
            return frame
        frame = frame.f_back
    return None


def _is_check(frame: types.FrameType) -> bool:
    """Whether one of PyTorch's own checks asks (``torch._check_tensor_all`` and its relatives)."""
    code = frame.f_code
    return code.co_name.startswith("_check") and code.co_filename.endswith(_CHECKS)


@lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> dict[int, tuple[dis.Instruction, int | None]]:
    """Each instruction by its offset, with the offset of the one after it."""
    found = list(dis.get_instructions(code))
    after = [instruction.offset for instruction in found[1:]]
    return {here.offset: (here, then) for here, then in zip(found, [*after, None])}


def answer_that_goes_on(code: types.CodeType, offset: int) -> bool | None:
    """What to answer at an instruction so that the program does not raise there.

    ``None`` where both answers raise, or neither does, before the way divides again.
    """
    instructions = _instructions(code)
    inverted, at, first = False, offset, True
    while at in instructions:
        here, then = instructions[at]
        name = here.opname
        if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name):
            jumps, stays = _raises(instructions, here.argval), _raises(instructions, then)
            if jumps == stays:
                return None
            # The answer for which it jumps, if the way without a jump raises; else the other one.
            return bool(("IF_TRUE" in name) ^ inverted ^ jumps)
        if name == "UNARY_NOT":
            inverted = not inverted
        elif not (name in _BETWEEN or (first and name.startswith("CALL"))):
            # A call asks; its result is what the next instructions are about.
            return None
        if name not in _BETWEEN:
            first = False
        if then is None:
            return None
        at = then
    return None


def _raises(instructions: dict[int, tuple[dis.Instruction, int | None]], start: int | None) -> bool:
    """Whether the way from an instruction ends in a ``raise`` before it divides."""
    at = start
    for _ in range(_PATH_LENGTH):
        if at is None or at not in instructions:
            return False
        here, then = instructions[at]
        name = here.opname
        if name == "RAISE_VARARGS":
            return True
        if name.startswith(_ENDS) or "IF_" in name:
            return False
        if "JUMP" in name:
            if here.argval <= here.offset:
                return False
            at = here.argval
        else:
            at = then
    return False


def _is_in_while(frame: types.FrameType | None) -> bool:
    """Whether the innermost loop that is running is a ``while``."""
    while frame is not None:
        loop = max(
            (begin for begin, end in _loops(frame.f_code) if begin <= frame.f_lasti <= end),
            default=None,
        )
        if loop is not None:
            return _instructions(frame.f_code)[loop][0].opname != "FOR_ITER"
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def _loops(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """First and last offset of each loop."""
    return tuple(_found_loops(code))


def _found_loops(code: types.CodeType) -> Iterator[tuple[int, int]]:
    for here, _ in _instructions(code).values():
        back = "JUMP" in here.opname and here.argval in _instructions(code)
        if back and here.argval <= here.offset:
            yield here.argval, here.offset


@lru_cache(maxsize=4096)
def worth_asking(func: Any) -> bool:
    """Whether ``condition_of_extremes`` may say anything of an operator's result."""
    name = func._schema.name.partition("::")[2]
    return func.namespace == "aten" and name in _CONDITIONS


def condition_of_extremes(func: Any, args: Any, result: Any, value_of: Callable[[Any], Any]) -> Any:
    """The value of a condition that holds for all ordinary numbers, and of what it selects.

    A number is equal to itself, greater than -1e9, and finite; ``where`` of a known condition is
    one of its sides; ``and`` with what is false is false. ``None`` if the operator's result does
    depend on the data. It runs real operators: call it where that is allowed.
    """
    import torch

    name = func._schema.name.partition("::")[2]
    if not isinstance(result, torch.Tensor):
        return None
    if name == "where" and len(args) == 3:
        return _selected(args, result, value_of)
    if name == "bitwise_and" and any(_all_equal(side, 0, value_of) for side in args[:2]):
        # Of whole numbers too: `unfinished & ~done` of a generation is 0 at its last token.
        return _everywhere(0, result)
    if result.dtype is not torch.bool:
        return None
    if name in ("isnan", "isinf"):
        return _everywhere(False, result)
    if name in _LOGICAL:
        decides = name.endswith("or")
        both_bool = all(getattr(side, "dtype", None) in (torch.bool, None) for side in args[:2])
        if both_bool and any(_all_equal(side, decides, value_of) for side in args[:2]):
            return _everywhere(decides, result)
        return None
    left, right = args[:2]
    if left is right:
        return _everywhere(name in ("eq", "le", "ge"), result)
    known = [value_of(side) if isinstance(side, torch.Tensor) else side for side in (left, right)]
    if known.count(None) != 1:
        return None
    limit = torch.as_tensor(next(side for side in known if side is not None))
    if limit.dtype is torch.bool or not limit.numel() or not bool((limit.abs() >= EXTREME).all()):
        return None
    zero = torch.zeros((), dtype=limit.dtype)
    sides = [zero if side is None else limit for side in known]
    return getattr(torch, name)(*sides).expand(result.shape).clone()


def _selected(args: Any, result: Any, value_of: Callable[[Any], Any]) -> Any:
    import torch

    condition = value_of(args[0])
    if condition is None or not condition.numel():
        return None
    for answer, side in ((True, args[1]), (False, args[2])):
        if bool((condition == answer).all()):
            value = value_of(side) if isinstance(side, torch.Tensor) else torch.as_tensor(side)
            return None if value is None else value.to(result.dtype).expand(result.shape).clone()
    return None


def _all_equal(side: Any, number: int, value_of: Callable[[Any], Any]) -> bool:
    """Whether a tensor's values are known, and all this one."""
    value = value_of(side) if hasattr(side, "dtype") else None
    return value is not None and bool((value == number).all())


def _everywhere(answer: int, result: Any) -> Any:
    import torch

    return torch.full((), answer, dtype=result.dtype).expand(tuple(result.shape))
