"""Hold the kernel model and carried traces against recorded H100 and MI300X steps.

    PYTHONPATH=. python benchmarks/prediction/run.py --shared FOLDER --out RESULT.json

``FOLDER`` is one with the traces of AMD-AGI/TraceLens named in ``PAIRS``: three models, each
recorded on both GPUs. Op shapes are dealt into two halves by a hash of op, shapes and dtypes;
coefficients of the kernel model were fitted on the first (``--fit`` repeats that), and the figures
that count are those of the second.

- ``model``: an op's measured kernel time against what the model expects from its shapes alone;
- ``step``: the same, summed over a step (device-busy time);
- ``unseen``: ``model`` and ``step`` for training steps of other networks, not fitted on;
- ``carried``: an op's time carried from the other GPU against what was measured.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser

from gobrrr.attribution.device.work import work_of_kernels
from gobrrr.prediction.carried.carry import carry_timeline, source_device
from gobrrr.prediction.carried.table import carried_table
from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.flags import DEFAULT_FLAGS, Flags, flags_of_kernels
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import KernelKind, Timeline
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

Pairs = Mapping[str, tuple[str, str]]
PAIRS: Pairs = {
    "bert": ("h100_bert_small_inference", "mi300x_bert_small_inference"),
    "qwen": ("h100_qwen1.5_0.5b_inference", "mi300x_qwen1.5_0.5b_inference"),
    "vit": ("h100_vit_nsfw_inference", "mi300x_vit_nsfw_inference"),
}
QUICK = ("bert",)
# Other kinds of step (training, convolutions, batch norm), not fitted on; only the share of the
# bandwidth that cuDNN's batch norm reaches is from the V100. That trace holds no strides of its
# convolutions, which are left out.
UNSEEN = (
    "mi300x_resnet_activation_checkpoint_training",
    "v100_resnet50_dataloader_workers0",
)


@dataclass(frozen=True)
class MeasuredOp:
    """One op of a trace: its calls' kernel time, mean over the calls, in seconds.

    ``flags``: what the names of its kernels say.
    """

    trace: str
    call: OpCall
    work: Work
    measured_s: float
    count: int
    flags: Flags = DEFAULT_FLAGS

    @property
    def half(self) -> int:
        """0: coefficients may be fitted on it; 1: reported."""
        return half_of(self.call)


def half_of(call: OpCall) -> int:
    text = f"{call.name} {[(t.shape, t.dtype) for t in call.tensors]}"
    return sha256(text.encode()).digest()[0] & 1


def load(folder: Path, pairs: Pairs) -> dict[str, Timeline]:
    return {
        name: read_trace(folder / f"{name}.json.gz") for pair in pairs.values() for name in pair
    }


def measured_ops(name: str, timeline: Timeline, device: TargetDevice) -> list[MeasuredOp]:
    """Ops with work; kernels of one op add up."""
    parent = parents(timeline.host.start_ns, timeline.host.end_ns, timeline.host.thread)
    work = work_of_kernels(timeline, device.ceilings, work_of, parent)
    kernels = timeline.kernels
    seconds: dict[Any, float] = defaultdict(float)
    calls: dict[Any, float] = defaultdict(float)
    facts: dict[Any, tuple[OpCall, Work]] = {}
    names: dict[Any, set[str]] = defaultdict(set)
    for row in range(len(kernels)):
        whole, index = work.whole[row], int(work.call[row])
        if whole is None or index < 0:
            continue
        call = timeline.calls[index]
        key = (call.name, call.args)
        seconds[key] += float(kernels.end_ns[row] - kernels.start_ns[row]) * 1e-9
        # A kernel stands for its share of an op's work; the shares of a call add up to one.
        calls[key] += float(work.share[row])
        facts[key] = (call, whole)
        names[key].add(timeline.names[kernels.name[row]])
    return [
        MeasuredOp(
            name,
            *facts[key],
            time_s / calls[key],
            max(1, round(calls[key])),
            flags_of_kernels(names[key]),
        )
        for key, time_s in seconds.items()
    ]


def busy_s(timeline: Timeline) -> float:
    kernels = timeline.kernels
    own = (kernels.kind == KernelKind.KERNEL) | (kernels.kind == KernelKind.MEMSET)
    return float((kernels.end_ns - kernels.start_ns)[own].sum()) * 1e-9


def relative(predicted: float, measured: float) -> float:
    """Signed error as a share of what was measured."""
    return predicted / measured - 1


def spread(errors: list[float], weights: list[float] | None = None) -> dict[str, Any]:
    if not errors:
        return {"n": 0}
    size = sorted(abs(e) for e in errors)
    found: dict[str, Any] = {
        "n": len(errors),
        "median_error": round(median(size), 4),
        "p90_error": round(size[min(len(size) - 1, int(0.9 * len(size)))], 4),
        "within_25_percent": round(sum(e <= 0.25 for e in size) / len(size), 4),
        "within_30_percent": round(sum(e <= 0.30 for e in size) / len(size), 4),
        "median_signed": round(median(errors), 4),
    }
    if weights is not None:
        order = sorted(zip((abs(e) for e in errors), weights))
        half, total = sum(weights) / 2, 0.0
        for size_, weight in order:
            total += weight
            if total >= half:
                found["time_weighted_median_error"] = round(size_, 4)
                break
    return found


def errors_of(
    ops: list[MeasuredOp], device: TargetDevice, c: Coefficients | None = None
) -> list[float]:
    found = []
    for op in ops:
        estimate = estimate_op(op.call, op.work, device, flags=op.flags, coefficients=c)
        found.append(float("nan") if estimate is None else relative(estimate.time_s, op.measured_s))
    return found


def model_part(folder: Path, pairs: Pairs) -> dict[str, Any]:
    result: dict[str, Any] = {"ops": [], "steps": {}}
    halves: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    for name, timeline in load(folder, pairs).items():
        device = source_device(timeline, name, None)
        ops = measured_ops(name, timeline, device)
        predicted = modelled = 0.0
        by_half = halves.setdefault(name.partition("_")[0], {0: ([], []), 1: ([], [])})
        for op in ops:
            estimate = estimate_op(op.call, op.work, device, flags=op.flags)
            if estimate is None:
                continue
            predicted += estimate.time_s * op.count
            modelled += op.measured_s * op.count
            error = relative(estimate.time_s, op.measured_s)
            by_half[op.half][0].append(error)
            by_half[op.half][1].append(op.measured_s * op.count)
            result["ops"].append(
                {
                    "trace": name,
                    "op": op.call.name,
                    "shapes": [list(t.shape) for t in op.call.tensors][:4],
                    "dtype": op.work.compute_dtype,
                    "count": op.count,
                    "half": "fitted" if op.half == 0 else "reported",
                    "measured_us": round(op.measured_s * 1e6, 3),
                    "predicted_us": round(estimate.time_s * 1e6, 3),
                    "roof_us": round(estimate.roof.time_s * 1e6, 3),
                    "because": estimate.because,
                }
            )
        result["steps"][name] = {
            "measured_ms": round(modelled * 1e3, 4),
            "predicted_ms": round(predicted * 1e3, 4),
            "error": round(relative(predicted, modelled), 4),
            "share_modelled": round(modelled / busy_s(timeline), 4),
        }
    result["per_op"] = {
        gpu: {
            "fitted": spread(*found[0]),
            "reported": spread(*found[1]),
        }
        for gpu, found in halves.items()
    }
    return result


def unseen_part(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    result = {}
    for name in names:
        timeline = read_trace(folder / f"{name}.json.gz")
        device = source_device(timeline, name, None)
        errors, weights, predicted, measured = [], [], 0.0, 0.0
        by_op: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for op in measured_ops(name, timeline, device):
            estimate = estimate_op(op.call, op.work, device, flags=op.flags)
            if estimate is None or op.measured_s <= 0:
                continue
            errors.append(relative(estimate.time_s, op.measured_s))
            weights.append(op.measured_s * op.count)
            predicted += estimate.time_s * op.count
            measured += op.measured_s * op.count
            by_op[op.call.name][0] += op.measured_s * op.count
            by_op[op.call.name][1] += estimate.time_s * op.count
        result[name] = {
            "error": round(relative(predicted, measured), 4),
            "share_modelled": round(measured / busy_s(timeline), 4),
            "per_op": spread(errors, weights),
            "by_op_ms": {
                key: {"measured": round(m * 1e3, 4), "predicted": round(p * 1e3, 4)}
                for key, (m, p) in sorted(by_op.items(), key=lambda item: -item[1][0])
            },
        }
    return result


def carried_part(folder: Path, pairs: Pairs) -> dict[str, Any]:
    timelines = load(folder, pairs)
    result: dict[str, Any] = {}
    every: dict[int, list[float]] = {0: [], 1: []}
    for model, names in pairs.items():
        for from_, to in (names, names[::-1]):
            source = source_device(timelines[from_], from_, None)
            target = source_device(timelines[to], to, None)
            carried = carry_timeline(timelines[from_], from_, source, target)
            own = timelines[from_].kernels.kind == KernelKind.KERNEL
            predicted = float(carried.after_ns[own].sum()) * 1e-9
            there = timelines[to]
            measured = busy_s(there)
            before = busy_s(timelines[from_])
            # Ops of the same name and shapes on both sides, whatever their strides.
            target_ops: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
            for op in measured_ops(to, there, target):
                total = target_ops[op.call.name, shapes(op.call)]
                total[0] += op.measured_s * op.count
                total[1] += op.count
            times: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
            calls: dict[Any, OpCall] = {}
            for row in np.flatnonzero(own).tolist():
                index = int(carried.work.call[row])
                if index < 0 or carried.work.whole[row] is None:
                    continue
                call = timelines[from_].calls[index]
                key = (call.name, shapes(call))
                calls[key] = call
                times[key][0] += carried.after_ns[row] * 1e-9
                times[key][1] += float(carried.work.share[row])
            errors: dict[int, list[float]] = {0: [], 1: []}
            weights: dict[int, list[float]] = {0: [], 1: []}
            for key, (carried_s, count) in times.items():
                if key not in target_ops:
                    continue
                measured_s, there_count = target_ops[key]
                error = relative(carried_s / count, measured_s / there_count)
                half = half_of(calls[key])
                errors[half].append(error)
                weights[half].append(measured_s)
                every[half].append(error)
            result[f"{model}: {from_.partition('_')[0]} to {to.partition('_')[0]}"] = {
                "busy_measured_ms": round(measured * 1e3, 4),
                "busy_carried_ms": round(predicted * 1e3, 4),
                "busy_on_source_ms": round(before * 1e3, 4),
                "busy_error": round(relative(predicted, measured), 4),
                "per_op": {
                    "fitted": spread(errors[0], weights[0]),
                    "reported": spread(errors[1], weights[1]),
                },
            }
    result["all"] = {"fitted": spread(every[0]), "reported": spread(every[1])}
    return result


def shapes(call: OpCall) -> tuple[Any, ...]:
    return tuple((t.shape, t.dtype) for t in call.tensors)


def regimes_part(folder: Path, pairs: Pairs) -> dict[str, Any]:
    """The table of devices for each H100 trace."""
    return {
        names[0]: [
            {
                "device": row.device,
                "busy_ms": round(row.busy_s * 1e3, 4),
                "step_ms": round(row.step_s * 1e3, 4),
                "ridge_flops_per_byte": row.ridge_flops_per_byte
                and round(row.ridge_flops_per_byte, 1),
                "op_time_by_regime_ms": {
                    k: round(v * 1e3, 4) for k, v in sorted(row.regimes.items())
                },
            }
            for row in carried_table(folder / f"{names[0]}.json.gz")
        ]
        for names in pairs.values()
    }


def main() -> None:
    options = parser(__doc__, "traces")
    options.add_argument("--fit", action="store_true", help="fit the coefficients and print them")
    given = options.parse_args()
    pairs = {name: PAIRS[name] for name in QUICK} if given.quick else PAIRS
    unseen = () if given.quick else UNSEEN
    names = [*(name for pair in pairs.values() for name in pair), *unseen]
    folder = given.shared
    for name in names:
        needed(folder / f"{name}.json.gz", "the traces of AMD-AGI/TraceLens")
    if given.fit:
        from benchmarks.prediction.fit import fit

        fit(load(folder, pairs))
        return
    record = Record("prediction", given, "numpy", device="recorded H100, MI300X and V100 steps")
    result = {
        "coefficients": "fitted on the half of op shapes marked fitted; steps hold both halves. "
        "The terms of the model were chosen with both halves in view, their coefficients were not.",
        "model": model_part(folder, pairs),
        "unseen": unseen_part(folder, unseen),
        "carried": carried_part(folder, pairs),
        "regimes": regimes_part(folder, pairs),
    }
    summary = {
        "per_op": result["model"]["per_op"],
        "steps": result["model"]["steps"],
        "carried": result["carried"],
    }
    print(json.dumps(summary, indent=1))
    record.write(result)


if __name__ == "__main__":
    main()
