"""Score predicted training on many GPUs against measured runs, fitted and unseen models apart.

    PYTHONPATH=. python benchmarks/prediction_distributed/run.py --shared FOLDER --out RESULT.json

FSDP runs of MPT models on 8 to 128 A100s (``mpt``) and Megatron iterations of GPTs on 2 to 8
(``megatron``). Intervals come from the residuals of the fitted half, by kind of mesh
(``intervals``), and are held against the other. Beside each stands what one share of the peak says,
the median share of the fitted half: FLOPs of the model over peak and share. Meshes of one model on
as many GPUs with one batch are ranked: Kendall's tau, and what the mesh that is predicted fastest
measured over the fastest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser
from benchmarks.prediction_distributed import megatron, mpt
from benchmarks.prediction_distributed.intervals import (
    ANOTHER_DEGREE,
    ANY,
    Interval,
    Residual,
    fitted_degrees,
    has_degrees,
    interval_of,
    intervals,
)
from benchmarks.prediction_distributed.rows import (
    GPUS_A_HOST,
    FsdpRow,
    MegatronRow,
    read_fsdp,
    read_megatron,
)
from benchmarks.split import halves

PEAK_FLOPS_PER_S = 312e12
EVERY_QUICK = 40


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with its prediction, in seconds; ``flops`` of the model on each GPU."""

    row: FsdpRow | MegatronRow
    predicted_s: float
    flops: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.row.measured_s

    @property
    def residual(self) -> Residual:
        """For the interval of its kind of mesh."""
        row = self.row
        if isinstance(row, FsdpRow):
            hosts = "one host" if row.gpus <= GPUS_A_HOST else "several hosts"
            return Residual(1 / self.ratio, row.model, f"shards on {hosts}")
        return megatron_residual(row, self.predicted_s)


def megatron_residual(row: MegatronRow, predicted_s: float) -> Residual:
    """Of a step as it is predicted."""
    kind = "pipeline" if row.pipeline > 1 else "tensor" if row.tensor > 1 else "copies"
    degrees = row.tensor, row.pipeline
    return Residual(row.measured_s / predicted_s, (row.width, row.layers), kind, degrees)


def of_left_out(rows: Iterable[FsdpRow | MegatronRow]) -> list[Residual]:
    """Fitted steps, each as constants predict it that were fitted without its degree."""
    return [
        megatron_residual(row, megatron.iteration_seconds(row, megatron.WITHOUT[row.tensor]))
        for row in rows
        if isinstance(row, MegatronRow) and row.fitted and row.tensor in megatron.WITHOUT
    ]


def fsdp_flops(row: FsdpRow) -> float:
    """Of products and attention, three passes or four, on each GPU."""
    tokens = row.microbatch * row.seq_len * row.microbatches
    per_token = 24 * row.width**2 * row.layers + 2 * row.width * row.vocabulary
    per_token += 2 * row.seq_len * row.width * row.layers
    return float(tokens * per_token * (4 if row.checkpointing else 3))


def megatron_flops(row: MegatronRow) -> float:
    """The same, with the pipeline's bubble as if it were work."""
    tokens = row.micro_batch * row.seq_len
    per_token = 24 * row.width**2 * row.layers + 4 * row.seq_len * row.width * row.layers
    per_token += 2 * row.width * megatron.VOCABULARY
    turns = row.microbatches + row.pipeline - 1
    return tokens * per_token * 4 * turns / (row.tensor * row.pipeline)


def figures(items: Sequence[Scored], predicted: Sequence[float] | None = None) -> dict[str, Any]:
    """Errors of |predicted / measured - 1|, and their sign."""
    if not items:
        return {"n": 0}
    seconds = predicted or [item.predicted_s for item in items]
    ratio = np.array([s / item.row.measured_s for s, item in zip(seconds, items)])
    return {
        "n": len(items),
        "median_error": round(float(np.median(abs(ratio - 1))), 4),
        "p90_error": round(float(np.percentile(abs(ratio - 1), 90)), 4),
        "bias": round(float(np.median(ratio) - 1), 4),
    }


def scores(
    items: Sequence[Scored], found_before: Mapping[str, Interval], degrees: Sequence[set[int]]
) -> dict[str, Any]:
    """Fitted and unseen apart; how often intervals hold the unseen; one share of the peak."""
    sides = halves(items)
    found: dict[str, Any] = {name: figures(side) for name, side in sides.items()}
    fitted, unseen = sides["fitted"], sides["unseen"]
    if fitted and unseen and ANY in found_before:
        residuals = [item.residual for item in unseen]
        held = [interval_of(r, found_before, degrees).holds(r.ratio) for r in residuals]
        found["interval_holds_unseen"] = round(float(np.mean(held)), 3)
        rates = [item.flops / item.row.measured_s / PEAK_FLOPS_PER_S for item in fitted]
        share = float(np.median(rates))
        found["one_share_of_peak"] = {
            "share": round(share, 3),
            "unseen": figures(unseen, [i.flops / PEAK_FLOPS_PER_S / share for i in unseen]),
        }
    return found


def interval_table(
    found: Mapping[str, Interval], unseen: Sequence[Residual], degrees: Sequence[set[int]]
) -> dict[str, dict[str, Any]]:
    """Each kind's interval, and how often steps of models that nothing was fitted on are held.

    Those of degrees that no fitted step has are held against their own, and told apart as well.
    """
    table: dict[str, dict[str, Any]] = {}
    if ANY not in found:
        return table
    for kind in dict.fromkeys([*found, *(each.kind for each in unseen)]):
        interval = found.get(kind, found[ANY])
        own = [
            each
            for each in unseen
            if kind in (ANY, each.kind)
            or (kind == ANOTHER_DEGREE and not has_degrees(each, degrees))
        ]
        held = [
            (interval if kind == ANY else interval_of(each, found, degrees)).holds(each.ratio)
            for each in own
        ]
        met = [ok for ok, each in zip(held, own) if has_degrees(each, degrees)]
        table[kind] = {
            "low": round(interval.low, 3),
            "high": round(interval.high, 3),
            "spread": interval.spread,
            "models": interval.models if kind in found else 0,
            "unseen": len(held),
            "holds_unseen": round(float(np.mean(held)), 3) if held else None,
            "of_fitted_degrees": len(met),
            "holds_of_fitted_degrees": round(float(np.mean(met)), 3) if met else None,
        }
    return table


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Pairs in the same order less those that are not, over all pairs (tau-a)."""
    signs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in combinations(range(len(a)), 2)]
    return float(np.mean(signs))


def rankings(items: Sequence[Scored], fitted: bool) -> dict[str, Any]:
    """Of each model, number of GPUs and global batch: its meshes and micro-batches in order."""
    groups: dict[tuple[int, ...], list[Scored]] = defaultdict(list)
    for item in items:
        row = item.row
        if isinstance(row, MegatronRow) and row.fitted == fitted:
            batch = row.micro_batch * row.microbatches * row.data
            groups[row.width, row.layers, row.gpus, batch].append(item)
    taus, losses = [], []
    for group in groups.values():
        meshes = {(i.row.tensor, i.row.data, i.row.pipeline) for i in group}  # type: ignore[union-attr]
        if len(meshes) < 2:
            continue
        measured = [item.row.measured_s for item in group]
        predicted = [item.predicted_s for item in group]
        taus.append(kendall_tau(measured, predicted))
        losses.append(measured[int(np.argmin(predicted))] / min(measured) - 1)
    if not taus:
        return {"groups": 0}
    return {
        "groups": len(taus),
        "median_tau": round(float(np.median(taus)), 3),
        "mean_tau": round(float(np.mean(taus)), 3),
        "chosen_within_5_percent": round(float(np.mean(np.array(losses) <= 0.05)), 3),
        "worst_chosen": round(float(max(losses)), 3),
    }


def worst(items: Sequence[Scored]) -> list[dict[str, Any]]:
    """The ten unseen rows that are furthest off."""
    unseen = sorted((i for i in items if not i.row.fitted), key=lambda i: -abs(np.log(i.ratio)))
    return [
        {
            "row": str(item.row), "measured_s": item.row.measured_s,
            "predicted_s": round(item.predicted_s, 4),
        }
        for item in unseen[:10]
    ]  # fmt: skip


def main() -> None:
    options = parser(__doc__, "measured/distributed").parse_args()
    record = Record(
        "prediction_distributed", options, "numpy", device="recorded training on 2 to 128 A100s"
    )
    folder = needed(options.shared, "measured training runs")
    step = EVERY_QUICK if options.quick else 1
    fsdp = [
        Scored(row, mpt.step_time(row).seconds, fsdp_flops(row))
        for row in list(read_fsdp(folder))[::step]
    ]
    gpt = [
        Scored(row, megatron.iteration_seconds(row), megatron_flops(row))
        for row in list(read_megatron(folder))[::step]
    ]
    one_host = [item for item in fsdp if item.row.gpus <= GPUS_A_HOST]
    hosts = [item for item in fsdp if item.row.gpus > GPUS_A_HOST]
    everything = [*fsdp, *gpt]
    fitted = [item.residual for item in everything if item.row.fitted]
    found = intervals(fitted, of_left_out(item.row for item in gpt))
    degrees = fitted_degrees(fitted)
    unseen = [item.residual for item in everything if not item.row.fitted]
    body = {
        "fsdp_one_host": scores(one_host, found, degrees),
        "fsdp_several_hosts": scores(hosts, found, degrees),
        "megatron_one_host": scores(gpt, found, degrees),
        "one_host": scores([*one_host, *gpt], found, degrees),
        "all": scores(everything, found, degrees),
        "intervals": interval_table(found, unseen, degrees),
        "meshes_fitted": rankings(gpt, fitted=True),
        "meshes_unseen": rankings(gpt, fitted=False),
    }
    for name, entry in body.items():
        print(name, entry)
    record.write({**body, "worst_fsdp": worst(fsdp), "worst_megatron": worst(gpt)})


if __name__ == "__main__":
    main()
