"""Which modules a program calls from outside any other, with what: what tells its steps apart.

Modules that are called so are found while the program warms up (``discover``), and from ``settle``
on watched by hooks of their own: a few microseconds for a call, nothing for the modules
inside it. A thread notes every 10 ms which line of the user's
runs, for what stands between steps and calls no module.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from gobrrr.live.watch.call_shapes import attributes, shapes_of
from gobrrr.live.watch.program_profilers import ProgramProfilers
from gobrrr.live.watch.program_watch import MOST_NOTES, ProgramWatch
from gobrrr.observe.compiler_counters import compiler_counters
from gobrrr.observe.data_calls import in_data_loader
from gobrrr.observe.module_hooks import watch_module
from gobrrr.observe.sampler import MainThreadAsker
from gobrrr.observe.source_lines import is_user_file, user_line
from gobrrr.timeline.step_kinds import Call, CallKey, Mark

_LINE_INTERVAL_S = 0.01
# Times as long as the shortest call of the same module.
_LONG_CALL = 10


def in_backward() -> bool:
    """Whether this thread is inside a backward pass: a checkpoint's second forward, a hook."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


class CallWatch:
    """Gathers calls and marks; ``take`` hands them over at each step's end.

    Args:
        clock: that of the session.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._thread = 0
        self._calls: list[Call] = []
        self._marks: list[Mark] = []
        self._open: tuple[int, CallKey, int] | None = None
        self._keys: dict[tuple[Any, ...], CallKey] = {}
        self._short: dict[tuple[Any, ...], CallKey] = {}
        self._roots: dict[int, weakref.ref[Any]] = {}
        self._hooked: dict[int, weakref.ref[Any]] = {}
        self._late: dict[int, int] = {}
        self._undo: list[Callable[[], None]] = []
        self._unhook: list[Callable[[], None]] = []
        self._settled = self._asks = False
        # By the ``id`` of a module that is called from outside any other: calls, nanoseconds in
        # all and of the shortest.
        self.spent: dict[int, tuple[int, int, int]] = {}
        self._lines: _LineNotes | None = None
        self.profilers = ProgramProfilers()
        # Called after each call of the program's modules.
        self.after_call: Callable[[], None] = lambda: None
        self.program = ProgramWatch(clock, self._marked, self.alive)

    def install(self, thread: int | None = None) -> None:
        """Begin to watch, in this thread or in the one given (``threading.get_ident``)."""
        self._thread = self.program.threads.loop = thread or threading.get_ident()
        self.program.install()
        self._lines = _LineNotes(self._clock, self.program)
        if self._thread == threading.main_thread().ident:
            # Only the main thread can be asked.
            self._lines.start()

    def remove(self) -> None:
        """Leave no hook behind."""
        self._settled = True
        self.program.remove()
        while self._undo or self._unhook:
            (self._unhook or self._undo).pop()()
        if self._lines is not None:
            self._lines.stop()

    def discover(self, after: Callable[[Any], None] = lambda module: None) -> Callable[[], None]:
        """Find the modules that are called from outside any other; ``after`` each call is told.

        Returns what ends it. A wrapper around Module.__call__ rather than global hooks: those make
        every module of a forward take the slow path (29 % on 161 modules) and unbalance on
        exceptions. It steps aside while an outermost call runs, so that inner modules and
        torch.compile never see it. Replacing the method forgets what Python knows of the classes'
        methods (80 us with transformers loaded), so it does not stay.
        """
        import torch

        module_class = torch.nn.Module
        original = module_class.__call__
        present, watch = True, self

        # ``self`` is the module: torch's profiler of Python frames (with_stack, with_modules) looks
        # for the function that is ``Module.__call__``, and takes its ``self`` for one.
        def outermost_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # torch.compile(module) takes the bound __call__ of that moment, and then traces this.
            idle = torch.compiler.is_compiling() or not present
            if idle or in_backward() or in_data_loader():
                return original(self, *args, **kwargs)
            module_class.__call__ = original
            unhooked = watch._unhooked(self)
            if unhooked:
                watch.program.padding.look(args, kwargs, sys._getframe(1))
                watch.began(self, args, kwargs)
            result = None
            try:
                result = original(self, *args, **kwargs)
                return result
            finally:
                if unhooked:
                    watch.ended(self, result)
                if present:
                    module_class.__call__ = outermost_call
                    after(self)

        module_class.__call__ = outermost_call

        def undo() -> None:
            nonlocal present
            # What somebody wrapped around it in between stays, and finds it inactive.
            if present and module_class.__call__ is outermost_call:
                module_class.__call__ = original
            present = False

        return undo

    def _unhooked(self, module: Any) -> bool:
        """Whether a module has no hooks of its own; it gets them now if it is time."""
        if id(module) in self._hooked:
            return False
        if id(module) not in self._roots:
            self._roots[id(module)] = weakref.ref(module)
        if self._settled:
            self._hook(module)
        return True

    def settle(self) -> None:
        """From here on the modules that were found have hooks of their own."""
        if self._settled:
            return
        self._settled = True
        for module in (*self.alive(), *self._held()):
            self._hook(module)

    def begin_bare(self) -> bool:
        """Take all hooks away, and ask for no line, until ``end_bare``; whether that can be.

        Not where something is compiled, which may be compiled anew without the hooks.
        """
        if not self._settled or compiler_counters().get("compiled_graphs") != 0:
            return False
        self._take_hooks_away()
        self._asks = self._lines is not None and self._lines.stop()
        return True

    def end_bare(self) -> None:
        """Watch again."""
        for module in [reference() for reference in self._hooked.values()]:
            if module is not None:
                self._hook(module)
        self._open = None
        if self._lines is not None and self._asks:
            self._lines.start()

    def _take_hooks_away(self) -> None:
        while self._unhook:
            self._unhook.pop()()

    def unsettle(self) -> None:
        """The program has come to another part: modules are to be found anew."""
        self._take_hooks_away()
        self._settled = False
        for known in (self._hooked, self._late, self._keys, self._short, self.spent):
            known.clear()

    def module(self, number: int) -> Any:
        """The module with that ``id``; ``None`` if it is not one of those that were found."""
        reference = self._hooked.get(number) or self._roots.get(number)
        return None if reference is None else reference()

    def name_of(self, value: object) -> str:
        """What the program calls an object where its steps run; empty if nothing is known."""
        return _names_of_variables(sys._getframe(1)).get(id(value), "")

    def alive(self) -> list[Any]:
        """The modules that were found, those that are still there."""
        return [found for found in (ref() for ref in self._roots.values()) if found is not None]

    def _held(self) -> list[Any]:
        """Modules that the program has where its steps run and did not call yet: for evaluation.

        None where something is compiled already: a compiled function may be compiled anew for the
        hooks of a module that it calls.
        """
        import torch

        if compiler_counters().get("compiled_graphs") != 0:
            return []
        held = [
            value
            for _, value in _variables(sys._getframe(1))
            if issubclass(type(value), torch.nn.Module) and id(value) not in self._roots
        ]
        parts = [part for module in (*held, *self.alive()) for part in _parts_of(module)]
        within = {id(part) for part in parts}
        return list({id(module): module for module in held if id(module) not in within}.values())

    @property
    def inside_call(self) -> bool:
        """Whether a module's call from outside any other is in progress, in the loop's thread."""
        return self._open is not None

    @property
    def settled(self) -> bool:
        """Whether modules have hooks of their own."""
        return self._settled

    def take(self, thread: int) -> tuple[tuple[Call, ...], tuple[Mark, ...]]:
        """What has been gathered since the last time; ``thread``: the loop's."""
        self._thread = thread
        if self._open is not None:
            # The step ends inside the call, at its very end: in a hook that came before ours.
            self._ended(self._open[0])
        found = tuple(self._calls), tuple(self._marks)
        self._calls, self._marks = [], []
        return found

    def roots(self) -> dict[str, Any]:
        """The modules with parameters that are called from outside any other, by name.

        The only one is ``""``; several have the names that the program has for them where its steps
        run, or that its main module has, else those of their classes.
        """
        alive = self.alive()
        within = {id(part) for root in alive for part in _parts_of(root)}
        roots = [
            root
            for root in alive
            if id(root) not in within and next(root.parameters(), None) is not None
        ]
        if len(roots) == 1:
            return {"": roots[0]}
        names = _names_of_variables(sys._getframe(1))
        named: dict[str, Any] = {}
        for root in roots:
            name = names.get(id(root), type(root).__name__)
            same = sum(known.split("#")[0] == name for known in named)
            named[f"{name}#{same + 1}" if same else name] = root
        return named

    def lines_between(self, begin_ns: int, end_ns: int) -> Counter[str]:
        """The user's lines that ran between two moments, by what was noted, and how often each."""
        return Counter() if self._lines is None else self._lines.between(begin_ns, end_ns)

    # Calls

    def began(self, module: Any, args: Any, kwargs: Any) -> None:
        """An outermost call begins."""
        if self._open is None and threading.get_ident() == self._thread and not in_data_loader():
            # A class of the user's may do anything when asked: such a call goes unseen.
            with contextlib.suppress(Exception):
                self._open = (id(module), self._key(module, args, kwargs), self._clock())

    def ended(self, module: Any, result: Any = None) -> None:
        """The call of a module ends; without a result where it has raised."""
        key = self._ended(id(module))
        if key is not None and result is not None:
            self.program.gone_back.watch(key, result)
        self.after_call()

    def _ended(self, module: int) -> CallKey | None:
        if self._open is None or self._open[0] != module:
            return None
        _, key, begin_ns = self._open
        self._open = None
        end_ns = self._clock()
        self._calls.append(Call(key, begin_ns, end_ns))
        self._spend(module, end_ns - begin_ns)
        return key

    def _spend(self, module: int, time_ns: int) -> None:
        calls, whole_ns, least_ns = self.spent.get(module, (0, 0, time_ns))
        least_ns = min(least_ns, time_ns)
        # Of a call in which the processor was taken away no more than a long one takes.
        whole_ns += min(time_ns, _LONG_CALL * least_ns)
        self.spent[module] = calls + 1, whole_ns, least_ns

    def _key(self, module: Any, args: Any, kwargs: Any) -> CallKey:
        import torch

        gradients = torch.is_grad_enabled()
        # A module of torch's answers for what it has not with an error, which takes its time.
        held = attributes(module)
        training = held.get("training")
        if training is None:
            # A module of TorchScript keeps it elsewhere; a frozen one has no mode: it evaluates.
            training = getattr(module, "training", False)
        training = bool(training)
        synced = bool(held.get("require_backward_grad_sync", True))
        short = None
        alone = len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor
        if alone and not args[0].is_nested:
            # The usual call, looked up without looking into what it is given.
            short = id(module), training, gradients, synced, args[0].dtype, args[0].shape
            known = self._short.get(short)
            if known is not None:
                return known
        shapes, tokens = shapes_of((*args, *kwargs.values()))
        if tokens and not gradients and shapes[:1] and shapes[0][1:] == (1,):
            # One token of each sequence. Masks and caches are as long as all that came before, and
            # would make each token a step of its own.
            del shapes[1:]
        raw = (id(module), training, gradients, tokens, synced, *shapes)
        key = self._keys.get(raw)
        if key is None:
            instance = self._instance(module)
            key = self._keys[raw] = CallKey(
                module=type(module).__name__,
                instance=instance,
                training=training,
                gradients=gradients,
                shapes=tuple(shapes),
                tokens=tokens,
                synced=synced,
                source=user_line(sys._getframe(2)) or "",
            )
        if short is not None:
            self._short[short] = key
        return key

    def _instance(self, module: Any) -> int:
        if id(module) in self._roots:
            return list(self._roots).index(id(module))
        # Called for the first time after the names of modules were settled.
        return self._late.setdefault(id(module), -1 - len(self._late))

    def _hook(self, module: Any) -> None:
        import torch

        is_compiling = torch.compiler.is_compiling

        # A compiler that traces the module finds nothing to trace here.
        def before(called: Any, args: Any, kwargs: Any) -> None:
            if not is_compiling():
                self.began(called, args, kwargs)

        def after(called: Any, args: Any, result: Any) -> None:
            if not is_compiling():
                self.ended(called, result)

        # A module of TorchScript takes no hooks, and a class of the user's may do anything: such a
        # one goes unseen.
        self._hooked[id(module)] = weakref.ref(module)
        with contextlib.suppress(Exception):
            self._unhook.append(watch_module(module, before, after))

    # Marks

    def _marked(self, mark: Mark) -> None:
        if threading.get_ident() == self._thread:
            self._marks.append(mark)


def _parts_of(module: Any) -> list[Any]:
    """The modules inside a module."""
    return [part for part in module.modules() if part is not module]


def _names_of_variables(frame: FrameType | None) -> dict[int, str]:
    """Names of what the main module and the user's running functions hold, by ``id``.

    Outer names come first: an inner function calls each of several modules ``model``.
    """
    names: dict[int, str] = {}
    for name, value in _variables(frame):
        names.setdefault(id(value), name)
    return names


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """What the main module and the user's running functions hold, the outermost first.

    What a function's object holds (``self.generator``) has the attribute's name.
    """
    scopes: list[Any] = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            held = attributes(frame.f_locals.get("self"))
            modules = held.get("_modules")
            # A class that is no module may call anything so.
            own = (held, modules) if isinstance(modules, dict) else (held,)
            scopes = [frame.f_locals, *own, *scopes]
        frame = frame.f_back
    main = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    for scope in (main, *scopes):
        # A copy: another thread of the program may set a variable meanwhile.
        yield from list(scope.items())


class _LineNotes:
    """Asks the main thread now and then which line of the user's runs (see ``sampler``)."""

    def __init__(self, clock: Callable[[], int], program: ProgramWatch) -> None:
        self._clock = clock
        self._program = program
        self._times: list[int] = []
        self._noted: list[str] = []
        self._asker: MainThreadAsker | None = None

    def start(self) -> None:
        """Begin."""
        look = self._program.threads.look
        self._asker = MainThreadAsker(_LINE_INTERVAL_S, self._note, look)
        self._asker.start()

    def stop(self) -> bool:
        """End; what was noted stays. Whether it ran until now."""
        return self._asker is not None and self._asker.stop()

    def between(self, begin_ns: int, end_ns: int) -> Counter[str]:
        low, high = bisect_left(self._times, begin_ns), bisect_left(self._times, end_ns)
        return Counter(line for line in self._noted[low:high] if line)

    def _note(self, frame: FrameType, asked_ns: int) -> None:
        if len(self._times) >= MOST_NOTES:
            del self._times[: MOST_NOTES // 2], self._noted[: MOST_NOTES // 2]
        self._times.append(self._clock())
        self._noted.append(user_line(frame) or "")
        # A call of C that takes long answers once, at its end.
        late_ns = max(0, self._times[-1] - asked_ns)
        self._program.note(frame, self._times[-1], round(_LINE_INTERVAL_S * 1e9) + late_ns)
