"""Where a step of the user's loop ends, found without touching the program.

In order of precedence: ``with gobrrr.step():`` blocks, ``step()`` calls of the user's own
``torch.profiler.profile``, optimizer steps, replays of a graph of kernels, outermost
``nn.Module`` calls. A signal of higher precedence that shows up later takes over; so do replays
where optimizer steps have become silent, being in the graph. A step that the program captures into
a graph is left alone: nothing of it runs, and an event or a wait would end the capture.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from gobrrr.live.accelerators import capturing
from gobrrr.live.bare_steps import BareSteps
from gobrrr.live.cycle import CycleFinder
from gobrrr.live.import_hook import when_imported
from gobrrr.live.loop_turns import Place, Turns, place_of, turns_of
from gobrrr.live.watch.call_watch import CallWatch, in_backward
from gobrrr.observe.data_calls import in_data_loader
from gobrrr.observe.module_hooks import watch_module
from gobrrr.observe.optimizer_hooks import around_optimizer_steps

# Sources of boundaries, weakest first.
MODULE, REPLAY, OPTIMIZER, PROFILER, EXPLICIT = (
    "module", "replay", "optimizer", "profiler", "explicit",
)  # fmt: skip
PRECEDENCE = (MODULE, REPLAY, OPTIMIZER, PROFILER, EXPLICIT)
# What falls silent once it is in a graph.
_MAY_BE_CAPTURED = ("", MODULE, OPTIMIZER)
# Calls of other modules (replays) in a row, at the least, before they take a silent one's place.
_FEWEST_ELSEWHERE = 4

# Outermost module calls without an optimizer anywhere after which none is looked for any more.
_SEARCHES = 3
# Calls without gradients that may come before an optimizer's first step, in an evaluation that one
# rank alone makes. After so many the program only has an optimizer, and infers.
_MOST_EVALUATED = 256

# What a step may be said to be, by the user: these, or the name of a module.
OPTIMIZER_STEP, MODULE_CALL = "optimizer", "call"
# A module that is called so much less often, and takes so much more time in all, is the step's.
_SELDOM, _HEAVIER, _FEWEST_HEAVY, _LOOK_EVERY = 4, 1.2, 3, 16

# So long the program may call other modules before it is said that none is the one named.
_LONG_UNMATCHED_S = 5.0
_CALLS_UNMATCHED = 8

_active: list[StepWatcher] = []


def taken_over_by(source: str) -> tuple[str, ...]:
    """The sources that are none any more once this one ends steps (``""``: unknown)."""
    if source == REPLAY:
        return tuple(each for each in _MAY_BE_CAPTURED if each)
    return PRECEDENCE[: PRECEDENCE.index(source)] if source else ()


def _forget() -> None:
    """In a process that the program forks: its parent alone is watched."""
    for watcher in tuple(_active):
        watcher.remove()
        watcher.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark one step of your loop for ``gobrrr run``; does nothing outside it.

    Example:
        >>> for batch in loader:
        ...     with gobrrr.step():
        ...         train(batch)
    """
    yield
    for watcher in tuple(_active):
        watcher._ended(EXPLICIT, "explicit")


class TrainingCalls:
    """Tells module calls that an optimizer's step is still to come after from steps of their own.

    Ranks that meet at the end of such a call may wait for each other for ever: the stages of a
    pipeline call their modules once for each microbatch, and need what the others have sent.
    """

    def __init__(self) -> None:
        # With gradients and without: a program may evaluate before it makes its optimizer.
        self._found, self._left = False, {True: _SEARCHES, False: _SEARCHES}
        self._evaluated = 0

    def unfinished(self) -> bool:
        """Whether the program has an optimizer, and is not at inference all the time."""
        import torch

        gradients = torch.is_grad_enabled()
        self._evaluated = 0 if gradients else self._evaluated + 1
        if self._evaluated > _MOST_EVALUATED:
            return False
        if not self._found and self._left[gradients]:
            self._left[gradients] -= 1
            # ``type``: an object of the user's may do anything when asked for its class.
            kinds = {type(each) for each in gc.get_objects()}
            self._found = any(issubclass(kind, torch.optim.Optimizer) for kind in kinds)
        return self._found


class StepWatcher:
    """Calls ``on_boundary(source, restarted)`` in the thread of the user's loop at each step's end.

    ``restarted`` is true when the meaning of a step has just changed (a stronger source, another
    cycle, threads that take turns): what was measured before does not count. ``thread_changes``:
    how often a step has ended in another thread than the one before it. ``moved``: whether that
    one had ended by then, so that the loop goes on in the other; who asks sets it back.
    """

    def __init__(
        self,
        on_boundary: Callable[[str, bool], None],
        calls: CallWatch | None = None,
        step: str = "",
    ) -> None:
        self._on_boundary = on_boundary
        self._only = {"": "", OPTIMIZER_STEP: OPTIMIZER}.get(step, MODULE)
        self._name = "" if step in ("", OPTIMIZER_STEP, MODULE_CALL) else step
        self._looked_into: weakref.WeakSet[Any] = weakref.WeakSet()
        # What was looked into, and what its parts are called: at the end of a program its modules
        # may be gone.
        self._named_modules: set[str] = set()
        self._names = {OPTIMIZER_STEP, MODULE_CALL}
        self._calls = calls or CallWatch()
        self._source = ""
        modules = CycleFinder(repeats=1) if self._name else CycleFinder()
        self._cycles = {
            MODULE: modules, REPLAY: CycleFinder(), OPTIMIZER: CycleFinder(repeats=2)
        }  # fmt: skip
        self._known_cycle: tuple[Any, ...] = ()
        self._thread = self._installed_in = 0
        self._undo: dict[str, Callable[[], None]] = {}
        self._restart_pending = False
        # Called where steps turn out to be others, which may be known long before the first ends.
        self.on_other_steps: Callable[[], None] = lambda: None
        # Whether calls of a heavier module may become the steps: not those of one rank of a job.
        self.may_turn = True
        # Called once where modules were called for seconds, and nothing is what the user has named.
        self.on_unmatched: Callable[[], None] = lambda: None
        self._unmatched_since_s: float | None = None
        self._unmatched_calls = 0
        # Called in a process that the program forks: what is attached to a step stays behind.
        self.on_fork: Callable[[], None] = lambda: None
        self._hooked: weakref.ref[Any] | None = None
        self._takes_no_hook: weakref.ref[Any] | None = None
        self._of_hooked = self._elsewhere = 0
        self._fewest_elsewhere = _FEWEST_ELSEWHERE
        # Replays since the last step of another source, and the most between two of these.
        self._replays = self._most_replays = 0
        self.thread_changes = 0
        self.moved = False
        self._owner: Callable[[], threading.Thread | None] = lambda: None
        # Events since a step's end that end none, such as steps of an optimizer that came later.
        self.unfinished = 0
        self.outermost: weakref.ref[Any] | None = None
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._calls.program.optimizers = lambda: self.optimizers
        self._keys: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
        # Steps that have ended, and steps of optimizers, whatever came of them.
        self.ended: Counter[str] = Counter()
        self.optimizer_steps = 0
        # Of a whole cycle, once there is one.
        self._places: list[Place] = []
        self.turns: Turns | None = None
        self._bare: BareSteps | None = None
        self._seen_name: tuple[weakref.ref[Any] | None, str] = None, ""
        self._names_of_keys: dict[tuple[Any, ...], str] = {}

    def install(self) -> None:
        """Start watching, what is torch's once it is there. ``remove`` undoes everything."""
        _active.append(self)
        # Another thread may be the one that imports torch.
        self._installed_in = threading.get_ident()
        self._undo["import"] = when_imported("torch", self._watch_torch)

    def _watch_torch(self) -> None:
        if self not in _active:
            return
        self._calls.install(self._installed_in)
        self._watch_optimizers()
        self._watch_replays()
        self._watch_profilers()
        self._watch_modules()

    def remove(self) -> None:
        """Stop watching and leave no hook behind."""
        if self._bare is not None:
            self._count_bare(self._bare)
        if self in _active:
            _active.remove(self)
        for undo in self._undo.values():
            undo()
        self._undo.clear()
        self._calls.remove()

    def forget_calls(self) -> None:
        """Nobody asks for the calls that were gathered since the last step."""
        self._calls.take(threading.get_ident())

    @property
    def source(self) -> str:
        """What ends its steps, as ``PRECEDENCE`` names it; empty before the first has ended."""
        return self._source

    def module_name(self) -> str:
        """The module whose calls are the steps, as ``_named`` gives it; empty if unknown."""
        reference = self._hooked or self.outermost
        module = None if reference is None else reference()
        if module is None:
            known, name = self._seen_name
            return name if known is reference else ""
        return self._named(module)

    def see_names(self) -> None:
        """Keep what the steps' objects are called, which may be gone when the program ends."""
        reference = self._hooked or self.outermost
        self._seen_name = reference, self.module_name()
        for optimizer, key in list(self._keys.items()):
            self._names_of_keys[key] = self._named(optimizer)

    def optimizers_of_step(self) -> list[str]:
        """The same of the optimizers that step in a step, in order."""
        by_key = {self._keys.get(optimizer): optimizer for optimizer in list(self._keys)}
        return [
            self._named(by_key[key])
            if key in by_key
            else self._names_of_keys.get(key, key[0].__name__)
            for key in self._known_cycle
        ]

    def fall_back_to_calls(self) -> None:
        """What was measured is calls of a module: too few steps of anything else came."""
        self._source = MODULE

    def replays_of_step(self) -> int:
        """How many graphs a step replays, where that is what ends it."""
        return len(self._known_cycle)

    def modules_called(self) -> set[str]:
        """The modules that the program calls from outside any other, as far as they are known."""
        return {self._named(module) for module in self._calls.alive()} | self._named_modules

    def _named(self, value: Any) -> str:
        """``Adam `opt```: its class, and what the program calls it."""
        name, kind = self._calls.name_of(value), type(value).__name__
        return f"{kind} `{name}`" if name else kind

    # Sources

    def _watch_optimizers(self) -> None:
        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._bare is not None and self._still_bare(optimizer):
                return
            key = self._key_of(optimizer)
            self.optimizer_steps += 1
            if self._known_cycle != (key,):
                self.optimizers.add(optimizer)
            if 1 < len(self._known_cycle) != len(self._places):
                self._places.append(place_of(sys._getframe(1)))
                if len(self._known_cycle) == len(self._places):
                    self.turns = turns_of(self._places)
            self._ended(OPTIMIZER, key)

        self._undo[OPTIMIZER] = around_optimizer_steps(after=after_step)

    def _watch_replays(self) -> None:
        # Light: it brings nothing of what knows the kinds of devices.
        from gobrrr.devices.cuda.graphs import around_replays

        self._undo[REPLAY] = around_replays(after=self._replayed)

    def _replayed(self, graph: Any) -> None:
        # A graph within a module's call, or a backward pass, is a part of these.
        if self._only or self._calls.inside_call or in_backward():
            return
        self._replays += 1
        if self._source != REPLAY:
            fewest = max(_FEWEST_ELSEWHERE, 2 * self._most_replays)
            if self._source not in _MAY_BE_CAPTURED or self._replays <= fewest:
                return
            # No longer stronger, now that it is silent.
            self._source = self._source and MODULE
        self._ended(REPLAY, id(graph))

    def _key_of(self, optimizer: Any) -> tuple[Any, ...]:
        """Its class, its number of parameters, and the first number that no other alive has.

        A program that makes an optimizer anew for each task or sample steps the same one again.
        """
        key = self._keys.get(optimizer)
        if key is None:
            parameters = sum(len(group["params"]) for group in optimizer.param_groups)
            taken = set(self._keys.values())
            candidates = ((type(optimizer), parameters, number) for number in count())
            key = next(each for each in candidates if each not in taken)
            self._keys[optimizer] = key
        return key

    def _watch_profilers(self) -> None:
        after_step = partial(self._ended, PROFILER, "profiler")
        self._undo[PROFILER] = self._calls.profilers.watch(after_step, self._installed_in)

    def _watch_modules(self) -> None:
        # Stays only until the step's outermost module is known; that instance gets a hook.
        self._undo["module call"] = self._calls.discover(self._outermost_ended)

    def _find_anew(self) -> None:
        self._calls.unsettle()
        if "module call" not in self._undo:
            self._watch_modules()

    def settle(self) -> None:
        """The modules that the program calls are known: each has hooks of its own from here on."""
        self._calls.settle()
        if self._source != MODULE or self._hooked is not None:
            self._drop("module call")

    # Bare steps

    def begin_bare(self, wanted: int, step_s: float) -> BareSteps | None:
        """Note of so many steps nothing but their ends; ``None`` where these are not so simple.

        The last of them ends as every step does. So does the next step after a surprise.
        """
        of: Any = None
        if self._source == OPTIMIZER and len(self._known_cycle) == 1:
            keys = self._keys.items()
            of = next((each for each, key in keys if key == self._known_cycle[0]), None)
        elif self._source == MODULE and not self._name and self._hooked is not None:
            of = self._hooked()
        if of is None or "module call" in self._undo or not self._calls.begin_bare():
            return None
        self._bare = BareSteps(wanted, step_s, of)
        return self._bare

    def _still_bare(self, of: Any) -> bool:
        bare = self._bare
        if bare is None or bare.goes_on(of):
            return bare is not None
        self._count_bare(bare)
        self._calls.end_bare()
        return False

    def _count_bare(self, bare: BareSteps) -> None:
        self._bare = None
        self.ended[self._source] += bare.unheard
        if self._source == OPTIMIZER:
            self.optimizer_steps += bare.unheard

    # Boundaries

    def _outermost_ended(self, module: Any) -> None:
        self.outermost = weakref.ref(module)
        if self._name:
            self._look_for_named(module)
        if self._name or self._only == OPTIMIZER:
            if not self._source and self._hooked is None:
                self._still_unmatched()
            return
        if self._source in ("", MODULE) and self._hooked is None:
            self._ended(MODULE, id(module))
            if self._known_cycle and self._source == MODULE:
                self._hook_instance(module)
        elif self._source == MODULE and self._hooked is not None and self._hooked() is not module:
            self._elsewhere += 1
            if self._elsewhere >= max(self._fewest_elsewhere, self._of_hooked):
                self._forget_hooked()

    def _forget_hooked(self) -> None:
        """What repeated at first was no loop (a model traced, tried out): look for it again."""
        self._drop("module hook")
        self._hooked = None
        self._of_hooked = self._elsewhere = 0
        self._cycles[MODULE] = CycleFinder()

    def _still_unmatched(self) -> None:
        now_s = time.monotonic()
        self._unmatched_calls += 1
        if self._unmatched_since_s is None:
            self._unmatched_since_s = now_s
        # Where something is called nearly so, it is a slip of the pen: no need to wait for more.
        slip = self._unmatched_calls == _CALLS_UNMATCHED and self.near_names()
        if slip or now_s - self._unmatched_since_s > _LONG_UNMATCHED_S:
            self._unmatched_since_s = math.inf
            self.on_unmatched()

    def near_names(self) -> list[str]:
        """Classes and variables of modules, and of their parts, that are like the one named."""
        # Not above: nothing more than it needs is in a process before its script.
        import difflib

        # A variable may have been found since.
        self._names |= {self._calls.name_of(module) for module in list(self._looked_into)}
        return difflib.get_close_matches(self._name, self._names, n=3)

    def _look_for_named(self, module: Any) -> None:
        """Watch the modules that the user has named, which are this one or parts of it."""
        if module in self._looked_into:
            return
        self._looked_into.add(module)
        self._named_modules.add(self._named(module))
        own = self._calls.name_of(module)
        for path, part in [(own, module), *list(module.named_modules())[1:]]:
            names = {path, path.rpartition(".")[2], type(part).__name__}
            self._names |= names
            if self._name in names:
                self._hooked = self._hooked or weakref.ref(part)
                after = partial(self._named_ended, part)
                undo = watch_module(part, after=lambda *_, after=after: after())
                self._undo[f"module hook {id(part)}"] = undo

    def _named_ended(self, module: Any) -> None:
        self._hooked = weakref.ref(module)
        self._ended(MODULE, self._name)

    def _heavier(self) -> Any:
        """A module that takes more time than the one whose calls are the steps, in few calls."""
        if not self.may_turn:
            return None
        spent, hooked = self._calls.spent, self._hooked and self._hooked()
        hopeless = self._takes_no_hook and id(self._takes_no_hook())
        calls, own_ns, _ = spent.get(id(hooked), (0, 0, 0))
        for number, (times, time_ns, _) in spent.items():
            seldom = _FEWEST_HEAVY <= times <= calls / _SELDOM
            if seldom and time_ns > _HEAVIER * own_ns and number != hopeless:
                return self._calls.module(number)
        return None

    def _turn_to(self, module: Any, calls: int) -> None:
        """The calls of this module are the steps from here on; between them come so many others."""
        self._forget_hooked()
        self._fewest_elsewhere = max(_FEWEST_ELSEWHERE, 2 * calls)
        self._hook_instance(module)
        self._find_anew()
        self._restart_pending = True

    def _hook_instance(self, module: Any) -> None:
        if self._takes_no_hook is not None and self._takes_no_hook() is module:
            return

        def after_forward(called: Any, args: Any, result: Any) -> None:
            if self._bare is not None and self._still_bare(called):
                return
            self._of_hooked += 1
            self._elsewhere = 0
            self._ended(MODULE, id(called))
            due = self._of_hooked % _LOOK_EVERY == 0 and self._source == MODULE
            if due and (heavier := self._heavier()) is not None:
                self._turn_to(heavier, self._calls.spent[id(called)][0])

        try:
            unhook = watch_module(module, after=after_forward)
        except Exception:  # TorchScript takes none, and a class of the user's may do anything
            # Its calls stay watched from outside.
            self._takes_no_hook = weakref.ref(module)
            return
        if self._calls.settled:
            self._drop("module call")
        self._hooked = weakref.ref(module)
        self._undo["module hook"] = unhook
        # A cycle of several modules is followed by its last one alone from here on.
        self._known_cycle = (id(module),)
        self._cycles[MODULE] = CycleFinder(repeats=1)
        self._cycles[MODULE].push(id(module))

    def _drop(self, name: str) -> None:
        undo = self._undo.pop(name, None)
        if undo is not None:
            undo()

    def _count_replays(self) -> None:
        self._most_replays, self._replays = max(self._most_replays, self._replays), 0

    def _thread_changed(self, thread: int) -> None:
        before = self._owner()
        if self._thread:
            self.thread_changes += 1
            if before is None or not before.is_alive():
                self.moved = True
            else:
                self._restart_pending = True
        self._thread, self._owner = thread, weakref.ref(threading.current_thread())

    def _ended(self, source: str, event: Any) -> None:
        if self._only not in ("", source) or in_backward() or capturing():
            # No loop of the user's turns here, and a profiler that is started inside autograd's
            # engine ends with the node that runs.
            return
        if source == MODULE and in_data_loader():
            return
        # The usual step of a script with one optimizer: a few microseconds that it would notice.
        alone = self._known_cycle == (event,) and source == self._source
        if alone and threading.get_native_id() == self._thread and not self._restart_pending:
            # The finder hears of it too: this may be the beginning of a longer cycle.
            self._cycles[source].push(event)
            if source != REPLAY and self._replays:
                self._count_replays()
            self.unfinished = 0
            self.ended[source] += 1
            self._on_boundary(source, False)
            return
        weaker = self._source and PRECEDENCE.index(source) < PRECEDENCE.index(self._source)
        if weaker:
            return
        if source != REPLAY:
            self._count_replays()
        if source != self._source:
            self._restart_pending = self._source != ""
            if self._restart_pending:
                self.on_other_steps()
            if self._source == MODULE:
                # What it trains may be another module than those that were called until now.
                self._find_anew()
            self._source = source
            self._known_cycle = ()
            if source != MODULE:
                if self._calls.settled:
                    self._drop("module call")
                self._drop("module hook")
                self._hooked = None
        # Python's own number of a thread is free for the next one as soon as it has ended.
        thread = threading.get_native_id()
        if thread != self._thread:
            self._thread_changed(thread)
        finder = self._cycles.get(source)
        if finder is not None:
            ends = finder.push(event)
            if finder.cycle != self._known_cycle:
                self._restart_pending = self._restart_pending or bool(self._known_cycle)
                self._known_cycle = finder.cycle
                self._places, self.turns = [], None
            if not ends:
                self.unfinished += 1
                return
        self.unfinished = 0
        restarted, self._restart_pending = self._restart_pending, False
        self.ended[source] = 1 if restarted else self.ended[source] + 1
        self._on_boundary(source, restarted)
