"""What every live run knows of a program beside its steps: what known causes are found by.

Gathered while the program runs, within a few microseconds a step. Shares are of the wall time of
the windows to which nothing of gobrrr's was attached (plain windows here), the first left out. A
fact that a cause needs and that is not here is a field more, noted in ``program_watch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CollectionsFact:
    """Garbage collections of one generation that took longer than ``program_watch.LONG_NS``.

    What a compilation leaves behind is collected once, in the window that follows: not among them.

    Attributes:
        generation: as ``gc`` counts them; 2: of all objects.
        count: of those in plain windows and bare steps.
        total_s: that these took.
        longest_s: of them.
        share: of the wall time of plain windows and bare steps.
        lines: the user's that long ones began at, the most time first.
        by_hand: they were asked for (``gc.collect()``), by the user's code or a library's.
        steps: plain windows and bare steps.
    """

    generation: int
    count: int
    total_s: float
    longest_s: float
    share: float
    lines: tuple[str, ...] = ()
    by_hand: bool = False
    steps: int = 0


@dataclass(frozen=True, slots=True)
class NoteFact:
    """A line of the user's that was running when the main thread was asked (every 20 ms).

    Attributes:
        line: ``train.py:31 in main``, the innermost of the user's.
        callee: the function of a library that it was calling (``PIL.Image.open``); empty: none that
            is Python.
        inner: the module of the innermost function that is not of Python's own library, below the
            line (``PIL.ImageFile``, also where a loop calls it through others); empty: none is.
        within: the packages further out that had called the line, ``torch.utils.data`` for a data
            set's; empty: none.
        count: how often, in plain windows.
        share: of their wall time: a question that was answered late counts for as long.
    """

    line: str
    callee: str
    inner: str
    within: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class MadeFact:
    """A tensor that was made of Python's objects, in a step that was recorded.

    Attributes:
        function: ``tensor`` or ``as_tensor``.
        line: the user's.
        given: ``list of arrays``, ``tensor``, ...
        elements: of the tensor.
        seconds: that it took.
        converts: it has another type, or is on another device, than the tensor it was made of.
    """

    function: str
    line: str
    given: str
    elements: int
    seconds: float
    converts: bool = False


@dataclass(frozen=True, slots=True)
class LoaderFact:
    """A ``DataLoader`` that the step's loop draws from.

    Attributes:
        workers: processes.
        pins: its memory.
        batch_size: ``None`` where a batch sampler or the data set makes batches.
        persistent: its workers outlive an epoch; ``None``: unknown.
        collates: its own way (a ``collate_fn`` that is not torch's).
        dataset: class of the data set.
        length: of the data set, in samples; ``None``: unknown.
        in_memory: the data set holds all of its samples as tensors or arrays.
        only_indexes: fetching a sample calls nothing: it indexes what the data set holds.
        fetches_batches: the data set fetches a batch at once (``__getitems__``).
        drops_last: the ragged last batch.
        tokenizes: its code uses a tokenizer that has threads of its own (``tokenizers``).
        iterable: the data set yields samples by itself: each worker has all of it.
        sample_bytes: of what is in memory, for a sample; ``None``: unknown.
    """

    workers: int
    pins: bool
    batch_size: int | None = None
    persistent: bool | None = None
    collates: bool = False
    dataset: str = ""
    length: int | None = None
    in_memory: bool = False
    only_indexes: bool = False
    fetches_batches: bool = False
    drops_last: bool = False
    tokenizes: bool = False
    iterable: bool = False
    sample_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class SubnormalFact:
    """Ops of the recorded steps, of one name at one line, that read or made subnormal numbers.

    Attributes:
        op: its name.
        line: the user's.
        share: of the values that were looked at of the tensor with the most of them.
        dtype: of that tensor.
    """

    op: str
    line: str
    share: float
    dtype: str


@dataclass(frozen=True, slots=True)
class MarkFact:
    """A named stretch of the program (``starting loader workers``): how often, how long, where."""

    name: str
    source: str
    count: int
    total_s: float
    share: float


@dataclass(frozen=True, slots=True)
class CallFact:
    """Outermost calls of modules that are alike: how often, how long, with which modes.

    ``index``: which module, by order of first appearance. ``synced``: its gradients are averaged
    over ranks in the backward pass (not inside ``no_sync``; true of a module without ranks).
    ``went_back``: of calls in eval mode that record gradients, whether a backward pass goes through
    their results; ``None``: unknown.
    """

    module: str
    index: int
    training: bool
    gradients: bool
    source: str
    count: int
    total_s: float
    share: float
    synced: bool = True
    went_back: bool | None = None


@dataclass(frozen=True, slots=True)
class PaddingFact:
    """Padding among the arguments of an outermost call of a module.

    Attributes:
        given: what says so, ``mask`` or ``tokens`` that end in one value repeated.
        source: the user's line of the call.
        padded: positions that are padding, of ``total``.
    """

    given: str
    source: str
    padded: int
    total: int


@dataclass(frozen=True, slots=True)
class OptimizerFact:
    """An optimizer: its class, how it loops over tensors, and how many and how large they are.

    ``of_torch``: it comes with torch; ``takes_sparse``: sparse gradients move the same elements by
    the same amount as dense ones do; ``refused_on_cuda``: its PyTorch has it fused for processors
    only.
    """

    name: str
    tensors: int
    elements: int
    fused: bool | None = None
    foreach: bool | None = None
    of_torch: bool = True
    takes_sparse: bool = False
    refused_on_cuda: bool = False


@dataclass(frozen=True, slots=True)
class DataParallelFact:
    """A ``DistributedDataParallel``.

    Attributes:
        module: class of the module that it wraps.
        find_unused: it looks for parameters without a gradient in each step.
        unused_bytes: of such parameters; ``None``: unknown.
        parameter_bytes: of all.
        buckets: in which their gradients are averaged.
        world_size: ranks.
        index: which module, as calls number them; ``None``: unknown.
        syncs_buffers: rank 0's buffers are sent to the others before each forward pass.
    """

    module: str
    find_unused: bool
    unused_bytes: int | None
    parameter_bytes: int
    buckets: int
    world_size: int
    index: int | None = None
    syncs_buffers: bool = False


@dataclass(frozen=True, slots=True)
class ThreadFact:
    """A Python thread of the program's beside the one of its steps.

    Attributes:
        name: that it was given.
        line: the user's line in which it was seen most; where it began if it was never seen.
        busy: its processor time as a share of the time that it was watched.
    """

    name: str
    line: str
    busy: float


@dataclass(frozen=True, slots=True)
class CompilationFact:
    """A compilation of torch.compile's.

    Attributes:
        function: its name.
        line: ``train.py:31 in forward``, where the function begins.
        reason: the guard that failed, where it was compiled before.
        seconds: that it took; ``None`` if unknown.
        failed: why it gave up; empty: it did not.
        frame: which piece of code, as torch numbers them; empty: unknown.
        began_s: when, in seconds since the epoch; ``None``: unknown.
    """

    function: str
    line: str
    reason: str = ""
    seconds: float | None = None
    failed: str = ""
    frame: str = ""
    began_s: float | None = None


@dataclass(frozen=True)
class ProgramFacts:
    """What is known of a program beside its steps.

    Attributes:
        plain_s: wall time of the windows that shares are of, seconds.
        windows: how many these are.
        seen_s: wall time of all windows, or since the first compilation began if that is longer.
        compiling: the user's lines that called what was being compiled, forward passes first.
        slept: share of the timed steps in which their thread neither ran nor waited for a
            processor; ``None``: unknown.
        collections: those that happened, by generation and by whether they were asked for.
        notes: the user's lines by what they were calling, the most first; ``notes_taken``: of all.
        modes: of ``anomaly``, ``autograd_profiler``, ``deterministic``, ``no_grad``: the share of
            notes at which it was on.
        flags: settings as they are after the measured steps (``cudnn_benchmark``);
            ``flushes_subnormals``: arithmetic of the steps' thread takes them for zero; ``pinned``:
            the process may use a part alone of the processors of the one that began it.
        made: tensors made of Python's objects in the recorded steps; ``recorded`` is how many.
        loaders: that the program has gone through.
        subnormal: ops of the recorded steps that read or made subnormal numbers.
        loaded: the libraries of ``program_watch.LIBRARIES`` that the program has imported.
        marks: named stretches. Their share of the wall time includes what a step would have taken.
        calls: outermost calls of modules by how they were called.
        padding: of the first calls of modules, where their arguments say.
        optimizers: those that had stepped when steps were first profiled.
        data_parallel: the modules whose gradients are averaged over ranks.
        threads: other Python threads.
        compilations: of torch.compile, oldest first.
        recompile_limit: how many versions of a function torch.compile makes; ``None``: unknown.
            environment: variables that decide about threads, tokenizers and launchers.
        max_rss_bytes: the most memory that the process held; ``None``: unknown.
        max_device_bytes: the most that its tensors held of a GPU; ``None``: unknown.
    """

    plain_s: float = 0.0
    windows: int = 0
    seen_s: float = 0.0
    compiling: tuple[str, ...] = ()
    slept: float | None = None
    collections: tuple[CollectionsFact, ...] = ()
    notes: tuple[NoteFact, ...] = ()
    notes_taken: int = 0
    modes: Mapping[str, float] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    made: tuple[MadeFact, ...] = ()
    recorded: int = 0
    loaders: tuple[LoaderFact, ...] = ()
    subnormal: tuple[SubnormalFact, ...] = ()
    loaded: tuple[str, ...] = ()
    marks: tuple[MarkFact, ...] = ()
    calls: tuple[CallFact, ...] = ()
    padding: tuple[PaddingFact, ...] = ()
    optimizers: tuple[OptimizerFact, ...] = ()
    data_parallel: tuple[DataParallelFact, ...] = ()
    threads: tuple[ThreadFact, ...] = ()
    compilations: tuple[CompilationFact, ...] = ()
    recompile_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    max_rss_bytes: int | None = None
    max_device_bytes: int | None = None

    def marked(self, name: str) -> tuple[MarkFact, ...]:
        """The stretches of that name, the most time first."""
        return tuple(mark for mark in self.marks if mark.name == name)
