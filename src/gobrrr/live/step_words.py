"""What a step of a program was taken to be, in words."""

from __future__ import annotations

from collections import Counter

from gobrrr.live.steps import EXPLICIT, MODULE, OPTIMIZER, REPLAY, StepWatcher
from gobrrr.timeline.quantities import count

_NAMED = 3


def phrase(watcher: StepWatcher) -> str:
    """``one call of `policy` (Sequential)``; as far as it is known now."""
    if watcher.source == EXPLICIT:
        return "one `with gobrrr.step()` block"
    if watcher.source == MODULE:
        return f"one call of {watcher.module_name() or 'a module'}"
    if watcher.source == REPLAY:
        graphs = watcher.replays_of_step()
        return "one replay of a CUDA graph" if graphs == 1 else f"{graphs} replays of CUDA graphs"
    if watcher.source == OPTIMIZER:
        return _of_optimizers(watcher)
    return "what ends with the `step()` of the program's own profiler"


def sentence(said: str, steps: int, later: str = "") -> str:
    """``A step is one call of `policy` (Sequential); 430 ran; 20 optimizer steps came later.``

    Args:
        said: as ``phrase`` says it.
        steps: how many were seen.
        later: what else is to be said.
    """
    number = "only one" if steps == 1 else count(steps)
    return f"A step is {said}; {number} ran{f'; {later}' if later else ''}."


def optimizer_steps(number: int) -> str:
    """``20 optimizer steps``."""
    return "1 optimizer step" if number == 1 else f"{count(number)} optimizer steps"


def _of_optimizers(watcher: StepWatcher) -> str:
    cycle = watcher.optimizers_of_step()
    if len(cycle) == 1:
        return f"one step of the optimizer ({cycle[0]})"
    each = Counter(cycle).most_common()
    named = ", ".join(f"{times} of {name}" for name, times in each[:_NAMED])
    more = ", ..." if len(each) > _NAMED else ""
    said = f"a cycle of {count(len(cycle))} optimizer steps ({named}{more})"
    turns = watcher.turns
    if turns is not None and turns.number > 1:
        said += f", which is {turns.number} turns of the loop at {turns.line}"
    return said
