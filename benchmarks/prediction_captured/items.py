"""Rows with what was predicted of them, as an object and as a row of the result file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.prediction_captured.steps import Predicted
from benchmarks.prediction_distributed.intervals import Residual
from benchmarks.prediction_distributed.megatron import DEVICE
from benchmarks.prediction_distributed.rows import MPT_WIDTHS, FsdpRow, MegatronRow
from benchmarks.prediction_distributed.run import Scored

from gobrrr.prediction.step.targets import predicted_target

Row = FsdpRow | MegatronRow
Named = tuple[str, str, bool]
# Names of steps, as ``named`` writes them.
_FSDP = re.compile(r"(\S+) fsdp=(\d+) (\S+) s=(\d+)")
_GPT = re.compile(r"GPT (\d+) x (\d+) pp=(\d+),dp=(\d+),tp=(\d+) \S+")


@dataclass(frozen=True, slots=True)
class Item:
    """A row with its prediction; ``overhead_known``: with the one of its host, of Megatron."""

    row: Row
    found: Predicted
    overhead_known: Predicted | None = None

    @property
    def measured_s(self) -> float:
        return self.row.measured_s

    @property
    def predicted_s(self) -> float:
        return self.found.seconds

    @property
    def host_s(self) -> float:
        return self.found.host_s

    @property
    def residual(self) -> Residual:
        """By the kinds of mesh that gobrrr tells apart."""
        return self.scored.residual

    @property
    def scored(self) -> Scored:
        """For the figures that are shared with ``prediction_distributed``."""
        return Scored(self.row, self.found.seconds, 0.0)


def named(row: Row) -> Named:
    """What tells a row from the others: its step, its batch and whether layers are computed again.

    Rows that differ in precision alone have the same name.
    """
    if isinstance(row, FsdpRow):
        what = f"{row.model} fsdp={row.gpus} {row.device} s={row.seq_len}"
        return what, f"{row.microbatch} x {row.microbatches}", row.checkpointing
    mesh = f"pp={row.pipeline},dp={row.data},tp={row.tensor}"
    what = f"GPT {row.width} x {row.layers} {mesh} {DEVICE}"
    return what, f"{row.micro_batch} x {row.microbatches}", True


def told(item: Item) -> dict[str, Any]:
    """A row of the result."""
    row, found = item.row, item.found
    what, batch, recomputed = named(row)
    return {
        "step": what, "batch": batch, "recomputed": recomputed, "fitted": row.fitted,
        "measured_s": round(row.measured_s, 5), "predicted_s": round(found.seconds, 5),
        "low_s": round(found.low_s, 5), "high_s": round(found.high_s, 5),
        "host_s": round(found.host_s, 5),
        "overhead_known_s": round(item.overhead_known.seconds, 5) if item.overhead_known else None,
        "held": found.holds(row.measured_s), "host_bound": found.host_bound,
        "peak_gb": round(found.peak_bytes / 1e9, 2), "attention_s": round(found.attention_s, 5),
    }  # fmt: skip


def rows_of(listed: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows that ``told`` wrote, without what it does not write: that is 0 or ""."""
    found: list[Row] = []
    for each in listed:
        micro_batch, microbatches = map(int, each["batch"].split(" x "))
        measured_s, fitted = each["measured_s"], each["fitted"]
        if fsdp := _FSDP.fullmatch(each["step"]):
            model, gpus, device, seq_len = fsdp.groups()
            found.append(
                FsdpRow(
                    model, MPT_WIDTHS[model.removeprefix("MPT-")], 0, 0, 0, int(seq_len), device,
                    int(gpus), micro_batch, microbatches,
                    "", "", each["recomputed"], measured_s, fitted,
                )
            )  # fmt: skip
            continue
        gpt = _GPT.fullmatch(each["step"])
        assert gpt is not None, each["step"]
        width, layers, pipeline, data, tensor = map(int, gpt.groups())
        found.append(
            MegatronRow(
                width, 0, layers, 0, pipeline * data * tensor, micro_batch, microbatches, tensor,
                data, pipeline, measured_s, fitted,
            )
        )  # fmt: skip
    return found


def stored(listed: Iterable[Mapping[str, Any]], rows: Iterable[Row]) -> list[Item]:
    """What ``told`` wrote of these rows.

    The interval around a step whose overhead is known is not written: it has none.
    """
    left: dict[tuple[Named, float], list[Row]] = {}
    for row in rows:
        left.setdefault((named(row), round(row.measured_s, 5)), []).append(row)
    found = []
    for each in listed:
        row = left[(each["step"], each["batch"], each["recomputed"]), each["measured_s"]].pop(0)
        device = row.device if isinstance(row, FsdpRow) else DEVICE
        of_ops = Predicted(
            each["predicted_s"], each["low_s"], each["high_s"], each["host_bound"],
            1e9 * each["peak_gb"], predicted_target(device)[0].memory_bytes, each["host_s"],
            each["attention_s"],
        )  # fmt: skip
        known_s = each["overhead_known_s"]
        known = None if known_s is None else replace(of_ops, seconds=known_s)
        found.append(Item(row, of_ops, known))
    return found
