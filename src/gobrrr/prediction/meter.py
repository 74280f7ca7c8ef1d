"""A step's work, counted once; afterwards each step's time alone says how well it went."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.attribution.recomputed import recomputed, seen
from gobrrr.devices.backends import gpu_in_use
from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheet import find_datasheet
from gobrrr.devices.machine import cached_ceilings
from gobrrr.diagnosis.utilisation import matrix_work
from gobrrr.prediction.capture_target import capture_target
from gobrrr.prediction.kernels.target import TargetDevice, target_of_ceilings, target_of_sheet
from gobrrr.prediction.step.energy import tokens_of
from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph
from gobrrr.symbolic.target.kernels import Abilities
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload, as_workload
from gobrrr.work import Work, work_of


@dataclass(frozen=True, slots=True)
class MeterReading:
    """One step, or the mean of several, by its time; ``None`` is unknown.

    Attributes:
        step_s: the time that was given, in seconds.
        mfu: the model's matrix FLOPs over the time and the dense peak of ``Meter.dtype``.
        hfu: with those that activation checkpointing computes again; ``None`` if nothing is.
        flops_per_s, bytes_per_s: all FLOPs, and the bytes that the ops read and write.
        samples_per_s, tokens_per_s: of the batch.
    """

    step_s: float
    mfu: float | None
    hfu: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None


class Meter:
    """MFU and throughput of a training loop's steps, from their times.

    The step is captured once, when the meter is made, with tensors that have no data: nothing is
    computed, and the state of weights and optimizer stays as it is. ``read`` is arithmetic on what
    was counted: nothing of gobrrr runs in the loop.

    Args:
        workload: what ``gobrrr.diagnose`` takes: a ``Workload``, ``(module, inputs)`` or a callable
            without arguments.
        ceilings: of the device that the steps run on. By default the data sheet's of the GPU that
            the process uses, or the processor's as they were last measured here
            (``gobrrr.ceilings_for_this_machine()`` measures them).
        samples: of one step; by default the length of the first dimension of a workload's inputs.
        tokens: of one step; by default as many as the model looks up in its widest table.

    Attributes:
        flops, bytes: of one step: multiply-adds count two; read and written. ``None`` if
            ``uncounted`` is not empty.
        matrix_flops: of ``flops`` those of matrix products, without what is computed again.
        recomputed_flops: matrix FLOPs that activation checkpointing computes again.
        dtype: that most matrix products are computed in; ``None`` without any.
        peak_flops_per_s: of that dtype; ``None`` if unknown.
        no_mfu: why ``mfu`` is ``None``, which a warning says too; empty if it is known.
        samples, tokens: of one step; ``None`` if unknown.
        uncounted: names of ops without a formula (``gobrrr.register_work`` adds one).

    Raises:
        InputError: the step cannot be captured.
        UserCodeError: the step raised.

    Example:
        >>> meter = gobrrr.Meter(gobrrr.Workload(model, inputs, loss, optimizer, targets))
        >>> meter.read(step_s).mfu
    """

    def __init__(
        self,
        workload: Any,
        *,
        ceilings: Ceilings | None = None,
        samples: int | None = None,
        tokens: int | None = None,
    ) -> None:
        work: Workload | Callable[[], Any] = as_workload(workload)
        if ceilings is None and gpu_in_use() is None:
            ceilings = cached_ceilings()
        device = _device(ceilings)
        seen_by_program = (
            CaptureTarget(None, Abilities(frozenset(), frozenset()))
            if device is None
            else capture_target(device)
        )
        ops = capture_op_graph(lambda: work, seen_by_program).ops
        works = [work_of(op.call) for op in ops]
        known = [found for found in works if found is not None]
        self.uncounted = tuple(
            sorted({op.call.name for op, found in zip(ops, works) if not _is_whole(found)})
        )
        again = recomputed([seen(op) for op in ops])
        own = [found for at, found in enumerate(works) if found is not None and at not in again]
        whole = matrix_work((each, 1.0) for each in known)
        self.flops: float | None = None
        self.bytes: float | None = None
        self.matrix_flops: float | None = None
        self.recomputed_flops: float | None = None
        if not self.uncounted:
            self.flops = sum(each.flops or 0.0 for each in known)
            self.bytes = float(sum(each.bytes_moved or 0 for each in known))
            self.matrix_flops = matrix_work((each, 1.0) for each in own).flops
            self.recomputed_flops = whole.flops - self.matrix_flops
        self.dtype = whole.dtype
        peaks = ceilings if device is None else device.ceilings
        self.peak_flops_per_s = (
            None if peaks is None or self.dtype is None else peaks.matrix_flops_per_s(self.dtype)
        )
        self.no_mfu = self._why_no_mfu(peaks)
        if self.no_mfu:
            warnings.warn(f"gobrrr.Meter: no MFU, because {self.no_mfu}", stacklevel=2)
        batch = work.batch_size() if isinstance(work, Workload) else None
        self.samples = batch if samples is None else samples
        self.tokens = tokens_of(ops) if tokens is None else tokens

    def _why_no_mfu(self, peaks: Ceilings | None) -> str:
        if self.uncounted:
            return f"these ops have no formula: {', '.join(self.uncounted)} (gobrrr.register_work)"
        if self.dtype is None:
            return "the step computes no matrix product"
        if self.peak_flops_per_s is not None:
            return ""
        if peaks is None:
            return (
                "no ceilings of this processor are cached for as many threads: pass "
                "ceilings=gobrrr.ceilings_for_this_machine()"
            )
        return f"the ceilings of {peaks.device} have no rate of {self.dtype} matrix products"

    def read(self, step_s: float) -> MeterReading:
        """What a step of so many seconds achieves.

        Raises InputError for a time that is not positive.
        """
        if not step_s > 0:
            raise InputError(f"a step takes longer than {step_s} s")

        def rate(count: float | None) -> float | None:
            return None if count is None else count / step_s

        def utilisation(flops: float | None) -> float | None:
            if flops is None or self.peak_flops_per_s is None:
                return None
            return flops / self.peak_flops_per_s / step_s

        again = self.recomputed_flops
        return MeterReading(
            step_s=step_s,
            mfu=utilisation(self.matrix_flops),
            hfu=utilisation(self.matrix_flops + again) if self.matrix_flops and again else None,
            flops_per_s=rate(self.flops),
            bytes_per_s=rate(self.bytes),
            samples_per_s=rate(self.samples),
            tokens_per_s=rate(self.tokens),
        )


def _is_whole(work: Work | None) -> bool:
    """Whether all of an op's work is known."""
    return work is not None and work.flops is not None and work.bytes_moved is not None


def _device(ceilings: Ceilings | None) -> TargetDevice | None:
    """What the steps run on; ``None`` for a processor without ceilings."""
    gpu = gpu_in_use()
    identity = None if gpu is None else gpu.identify()
    if ceilings is None:
        if identity is None:
            return None
        sheet = find_datasheet(identity.name)
        if sheet is not None:
            return target_of_sheet(sheet)
        ceilings = Ceilings(identity.name, {}, ())
    sheet = find_datasheet(ceilings.device)
    kind = sheet.kind if sheet is not None else "cpu" if identity is None else identity.kind
    return target_of_ceilings(ceilings, kind)
