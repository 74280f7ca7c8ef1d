"""Measured rows predicted as ``gobrrr predict --mesh`` predicts them: a program, captured.

Rows of one program share its capture, as the meshes of ``gobrrr plan`` do. A step of n microbatches
on one stage takes n - 1 times the passes alone, and once the whole step: nothing of a pass
overlaps with the next one or with the optimizer, which waits for all gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from benchmarks.prediction_captured import gpt, mpt
from benchmarks.prediction_captured.mpt import Network
from benchmarks.prediction_distributed.megatron import DEVICE, vocabulary
from benchmarks.prediction_distributed.rows import GPUS_A_HOST, FsdpRow, MegatronRow

from gobrrr.prediction.capture_target import capture_target
from gobrrr.prediction.mesh.bands import turns
from gobrrr.prediction.mesh.costs import Platform, alone, cost_ops, model_of
from gobrrr.prediction.mesh.memory import rank_levels
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions, parse_link, parse_mesh
from gobrrr.prediction.mesh.ops import end_of_backward
from gobrrr.prediction.mesh.pipeline import first_stage, run_stages
from gobrrr.prediction.mesh.stage_memory import stage_memory
from gobrrr.prediction.mesh.step import mesh_step, step_band, step_seconds
from gobrrr.prediction.options import PredictOptions
from gobrrr.prediction.step.host import host_share
from gobrrr.prediction.step.targets import predicted_target
from gobrrr.prediction.step.torch_flags import flags_in_force
from gobrrr.symbolic.op_graph import capture_op_graph
from gobrrr.timeline.graph import OpGraph

# Hosts' links are not stated by the source: eight interfaces of 200 Gb/s, as ``mpt`` beside it.
LINK = parse_link("8x200Gb")
# Measured time of Megatron's host-bound steps over their ops' host time: the median of the fitted
# models (``intervals.host_over_ops`` of the result, whose ``host_s`` is of ops alone; that of a new
# run is all that gobrrr takes for the host, about three times that).
MEGATRON_OVERHEAD = 2.07
FUSED_ATTENTION = "_scaled_dot_product_flash_attention"


@dataclass(frozen=True, slots=True)
class Predicted:
    """A row's step as gobrrr predicts it.

    Attributes:
        seconds: expected; ``low_s`` to ``high_s``: the interval it states.
        host_bound: whether it says that the host decides the step.
        peak_bytes: of the rank that needs most.
        device_bytes: that a device has.
        host_s: its host time, all microbatches together, times the turns of a pipeline.
        attention_s: of it, in kernels of fused attention, all microbatches together.
    """

    seconds: float
    low_s: float
    high_s: float
    host_bound: bool
    peak_bytes: float
    device_bytes: float | None
    host_s: float
    attention_s: float = 0.0

    def holds(self, measured_s: float) -> bool:
        """Whether the measured step is in the interval."""
        return self.low_s <= measured_s <= self.high_s

    def with_attention_slower(self, times: float) -> Predicted:
        """With fused attention that takes so many times as long, beside nothing that hides it."""
        seconds = self.seconds + (times - 1) * self.attention_s
        more = seconds / self.seconds
        return replace(
            self, seconds=seconds, low_s=self.low_s * more, high_s=self.high_s * more,
            attention_s=times * self.attention_s,
        )  # fmt: skip

    @property
    def too_large(self) -> bool | None:
        """Whether it would have been said not to fit; ``None``: the device's memory is unknown."""
        return None if self.device_bytes is None else self.peak_bytes > self.device_bytes


def program_of(row: FsdpRow | MegatronRow) -> Hashable:
    """Rows with the same one share captures."""
    if isinstance(row, FsdpRow):
        return (
            row.width, row.heads, row.layers, row.vocabulary, row.seq_len, row.microbatch,
            row.precision, row.sharding, row.checkpointing, row.device, row.gpus,
        )  # fmt: skip
    return row.width, row.heads, row.layers, row.seq_len, row.micro_batch, row.tensor


def predicted(
    rows: Sequence[FsdpRow | MegatronRow],
) -> list[tuple[Predicted, Predicted | None]]:
    """Rows of one program, in their order; of Megatron also with ``MEGATRON_OVERHEAD``."""
    found: list[tuple[Predicted, Predicted | None]] = []
    of_megatron = [row for row in rows if isinstance(row, MegatronRow)]
    captured = MegatronProgram(of_megatron[0]) if of_megatron else None
    for row in rows:
        if isinstance(row, FsdpRow):
            found.append((fsdp_step(row), None))
        elif captured is not None:
            of_ops = captured.predicted(row)
            found.append((of_ops, captured.predicted(row, MEGATRON_OVERHEAD)))
    return found


def mpt_program(row: FsdpRow) -> Callable[[], Callable[[], None]]:
    """What makes the step of one microbatch."""
    if row.sharding != "FULL_SHARD":
        raise ValueError(f"the program shards fully, and the row says {row.sharding}")
    network = Network(row.width, row.heads, row.layers, row.vocabulary, row.seq_len)

    def make() -> Callable[[], None]:
        return mpt.make_step(
            network,
            row.microbatch,
            recompute=row.checkpointing,
            reduce_float32=row.precision == "amp_bf16",
        )

    return make


def mesh_of(row: FsdpRow | MegatronRow) -> MeshOptions:
    """Its mesh, with the link between hosts where there are several."""
    if isinstance(row, MegatronRow):
        mesh = Mesh(dp=row.data, tp=row.tensor, pp=row.pipeline)
        return MeshOptions(mesh, None, row.microbatches if row.pipeline > 1 else 1)
    hosts = max(1, row.gpus // GPUS_A_HOST)
    return MeshOptions(parse_mesh(f"fsdp={row.gpus}", hosts), LINK if hosts > 1 else None)


def captured(make: Callable[[], Callable[[], None]], device: str, options: MeshOptions) -> OpGraph:
    """The program's ops on one rank, as ``gobrrr predict --mesh`` captures them."""
    target, _ = predicted_target(device)
    return capture_op_graph(
        make, capture_target(target), PredictOptions(mesh=options).for_capture()
    )


def fsdp_step(row: FsdpRow) -> Predicted:
    """A step under FSDP2."""
    options = mesh_of(row)
    graph = captured(mpt_program(row), row.device, options)
    passes = None
    if row.microbatches > 1:
        # The same step up to where its optimizer begins.
        passes = replace(graph, ops=graph.ops[: end_of_backward(graph.ops)])
    return _added_up(graph, passes, row.microbatches, row.device, options)


class MegatronProgram:
    """The captures of one network, microbatch and degree of tensor parallelism."""

    def __init__(self, row: MegatronRow) -> None:
        self._network = Network(
            row.width, row.heads, row.layers, vocabulary(row.tensor), row.seq_len
        )
        self._batch = row.micro_batch
        self._divided = MeshOptions(Mesh(tp=row.tensor))
        self._whole = self._captured(whole_step=True)
        self._passes: OpGraph | None = None
        self._device, _ = predicted_target(DEVICE)
        self._platform = Platform(self._device, None, flags_in_force())
        self._plain = cost_ops(self._whole, self._divided.mesh, self._platform)
        # By the program's host overhead: whether the host binds a whole step, and times of stages.
        self._host_bound: dict[float | None, bool] = {}
        self._known: dict[float | None, dict[object, float]] = {}

    def predicted(self, row: MegatronRow, overhead: float | None = None) -> Predicted:
        """An iteration on the row's mesh; ``overhead``: of its program's host, where known."""
        options = mesh_of(row)
        if row.pipeline > 1:
            return self._pipeline(options, overhead)
        if row.microbatches > 1 and self._passes is None:
            self._passes = self._captured(whole_step=False)
        return _added_up(self._whole, self._passes, row.microbatches, DEVICE, options, overhead)

    def _pipeline(self, options: MeshOptions, overhead: float | None) -> Predicted:
        """As ``mesh.step``, without the account of each op of the first stage."""
        graph, platform, device = self._whole, self._platform, self._device
        host = predicted_target(DEVICE, overhead)[1]
        if overhead not in self._host_bound:
            said = mesh_step(graph, device, host, self._divided, name="alone")[2]
            self._host_bound[overhead] = bool(said["host_bound"])
        facts, known = model_of(graph), self._known.setdefault(overhead, {})
        stages = run_stages(graph, facts, self._plain, platform, host, options, known)
        costed = first_stage(graph, facts, self._plain, platform, stages, host)
        seconds = step_seconds(costed.ops, host)
        of_host = host_share(alone(costed.ops), host, step_s=seconds, exposed_s=0.0)
        band = step_band(costed, options, device, host, seconds, of_host)
        whole = rank_levels(graph, facts, options.mesh)
        return _stated(
            seconds, band.low, band.high, self._host_bound[overhead],
            stage_memory(whole, graph, facts, stages).peak, device.memory_bytes,
            turns(options) * of_host.total_s,
        )  # fmt: skip

    def _captured(self, *, whole_step: bool) -> OpGraph:
        def make() -> Callable[[], None]:
            return gpt.make_step(self._network, self._batch, whole_step=whole_step)

        return captured(make, DEVICE, self._divided)


def _added_up(
    whole: OpGraph,
    passes: OpGraph | None,
    microbatches: int,
    key: str,
    options: MeshOptions,
    overhead: float | None = None,
) -> Predicted:
    """The whole step, and the passes of the microbatches before its own."""
    device, host = predicted_target(key, overhead)
    step, ops, said = mesh_step(whole, device, host, options, name="step")
    one_s = step.step.time.median
    seconds, host_s = one_s, float(said["host_s"])
    if microbatches > 1:
        if passes is None:
            raise ValueError("several microbatches and no passes of one")
        # Before the last one, copies reduce nothing; shards do, in every pass.
        silent = replace(options, mesh=replace(options.mesh, dp=1))
        of_pass, _, of_passes = mesh_step(passes, device, host, silent, name="passes")
        seconds += (microbatches - 1) * of_pass.step.time.median
        host_s += (microbatches - 1) * float(of_passes["host_s"])
    low, high = step.step.time.low / one_s, step.step.time.high / one_s
    peak = float(said["mesh"]["memory"]["peak"])
    found = _stated(seconds, low, high, bool(said["host_bound"]), peak, device.memory_bytes, host_s)
    attention_s = sum(op.device_s for op in ops if FUSED_ATTENTION in op.op.call.name)
    return replace(found, attention_s=microbatches * attention_s)


def _stated(
    seconds: float,
    low: float,
    high: float,
    host_bound: bool,
    peak_bytes: float,
    device_bytes: float | None,
    host_s: float,
) -> Predicted:
    """With the interval of a whole step."""
    return Predicted(
        seconds, seconds * low, seconds * high, host_bound, peak_bytes, device_bytes, host_s
    )


def by_program(
    rows: Iterable[FsdpRow | MegatronRow],
) -> list[list[FsdpRow | MegatronRow]]:
    """Rows that share captures; programs in an order that does not depend on their size."""
    found: dict[Hashable, list[FsdpRow | MegatronRow]] = {}
    for row in rows:
        found.setdefault(program_of(row), []).append(row)
    return sorted(
        found.values(), key=lambda own: sha256(repr(program_of(own[0])).encode()).digest()
    )
