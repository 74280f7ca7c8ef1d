"""Measured runs as files: everything that attribution needs, so that verdicts can be tested on
recorded timelines, on any machine and without timing anything."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gobrrr.attribution.cpu.attributed import attributed_cpu
from gobrrr.attribution.cpu.run import attribute_measurements
from gobrrr.attribution.recorded_work import works_of
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.live.calibration.fixed_cost import FixedCosts
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.profile import ProfilerCost, RawEvents
from gobrrr.observe.sampler import LineSample
from gobrrr.timeline.data import Device, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec


def _raw_to_plain(raw: RawEvents) -> dict[str, Any]:
    used, name = np.unique(raw.name, return_inverse=True)
    return {
        "names": [raw.names[i] for i in used],
        "name": name.tolist(),
        "start": raw.start_ns.tolist(),
        "duration": (raw.end_ns - raw.start_ns).tolist(),
        "thread": raw.thread.tolist(),
        "annotation": np.flatnonzero(raw.annotation).tolist(),
        "length": raw.length_ns,
        "gc": [list(pair) for pair in raw.gc_ns],
    }


def _raw_from_plain(plain: dict[str, Any]) -> RawEvents:
    start = np.array(plain["start"], np.int64)
    annotation = np.zeros(len(start), bool)
    annotation[plain["annotation"]] = True
    return RawEvents(
        names=tuple(plain["names"]),
        start_ns=start,
        end_ns=start + np.array(plain["duration"], np.int64),
        name=np.array(plain["name"], np.int32),
        thread=np.array(plain["thread"], np.int32),
        annotation=annotation,
        length_ns=plain["length"],
        gc_ns=tuple((a, b) for a, b in plain["gc"]),
    )


def _arg_to_plain(arg: Any) -> Any:
    if isinstance(arg, TensorSpec):
        strides = None if arg.strides is None else list(arg.strides)
        return {"t": [list(arg.shape), arg.dtype, strides, arg.storage, arg.device]}
    return [_arg_to_plain(item) for item in arg] if isinstance(arg, tuple) else arg


def _arg_from_plain(plain: Any) -> Any:
    if isinstance(plain, dict):
        shape, dtype, strides, storage, device = plain["t"]
        strides = None if strides is None else tuple(strides)
        return TensorSpec(tuple(shape), dtype, strides, storage, device)
    return tuple(map(_arg_from_plain, plain)) if isinstance(plain, list) else plain


def _op_from_plain(row: list[Any]) -> StepOp:
    name, overload, args, outputs, module, source, phase, faults = row
    call = OpCall(name, _arg_from_plain(args), _arg_from_plain(outputs), overload)
    return StepOp(call, module, source, Phase(phase), 1, faults)


def save_run(
    path: Path,
    measured: Measurements,
    cost: ProfilerCost,
    fixed: FixedCosts,
    ceilings: Ceilings,
    device: Device,
) -> None:
    """Write a run; only what attribution reads."""
    ops = [
        [op.call.name, op.call.overload, [_arg_to_plain(a) for a in op.call.args],
         [_arg_to_plain(o) for o in op.call.outputs or ()], op.module, op.source, int(op.phase),
         op.page_faults]
        for op in measured.recorded or []
    ]  # fmt: skip
    plain = {
        "plain_ns": measured.plain_ns,
        "profiled": [_raw_to_plain(raw) for raw in measured.profiled[:5]],
        "sampled": [
            [_raw_to_plain(raw), [[s.time_ns, s.line] for s in samples]]
            for raw, samples in measured.sampled[:1]
        ],
        "ops": ops,
        "cost": [float(cost.inside_ns), float(cost.outside_ns)],
        "fixed_ns": [None if np.isnan(t) else round(float(t), 1) for t in fixed.time_ns],
        "ceilings": [
            [c.name, float(c.value), c.unit, c.how, c.source] for c in ceilings.rows.values()
        ],
        "levels": [
            [v.name, v.capacity_bytes, [[float(x) for x in r] for r in v.rates]]
            for v in ceilings.levels
        ],
        "device": [device.name, device.kind],
    }
    path.write_bytes(gzip.compress(msgspec.json.encode(plain), mtime=0))


def diagnose_run(path: Path) -> Diagnosis:
    """The diagnosis of a run that ``save_run`` wrote, attributed anew."""
    plain = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    measured = Measurements(source="function")
    measured.plain_ns = plain["plain_ns"]
    measured.profiled = [_raw_from_plain(raw) for raw in plain["profiled"]]
    measured.sampled = [
        (_raw_from_plain(raw), [LineSample(t, line) for t, line in samples])
        for raw, samples in plain["sampled"]
    ]
    measured.recorded = [_op_from_plain(row) for row in plain["ops"]]
    rows = {row[0]: Ceiling(*row) for row in plain["ceilings"]}
    levels = tuple(
        MemoryLevel(name, capacity, tuple((f, r) for f, r in rates))
        for name, capacity, rates in plain["levels"]
    )
    device = Device(*plain["device"])
    ceilings = Ceilings(device.name, rows, levels)
    fixed_ns = np.array([np.nan if t is None else t for t in plain["fixed_ns"]], float)
    analysis = attribute_measurements(
        measured, works_of(measured.recorded), ProfilerCost(*plain["cost"]),
        FixedCosts(fixed_ns, {}, 0), ceilings, device,
    )  # fmt: skip
    return assemble(
        attributed_cpu(measured, analysis, ceilings, device),
        source={"kind": "function", "name": path.stem},
        environment={},
    )
