"""From the records of a case to what is counted, what is missed, and the summary of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.breadth.case import Expected

Record = dict[str, Any]
Row = dict[str, Any]

_RIGHT = {
    Expected.PREDICTED.value: {"predicted"},
    Expected.REFUSED.value: {"refused"},
    Expected.EITHER.value: {"predicted", "refused"},
}
PREDICTIONS = ("forward, eager", "forward, compiled", "training, eager", "training, compiled")


def judge_program(row: Row) -> Row:
    """Adds ``misses`` and ``not_counted`` (why), each by stage, to a program's row."""
    stages: Mapping[str, Record] = row["stages"]
    misses: dict[str, str] = {}
    not_counted: dict[str, str] = {}
    if stages.get("build", {}).get("outcome") != "runs":
        why = _why(stages.get("build", {"outcome": "never began"}))
        return {**row, "misses": {}, "not_counted": {"all": why}}
    for stage in PREDICTIONS:
        record = stages.get(stage)
        what = stage.split(",")[0]
        truth = stages.get(f"{what} here", {"outcome": "not run"})
        if record is None or record["outcome"] == "not asked":
            continue
        if truth["outcome"] != "runs":
            not_counted[what] = _why(truth)
        elif record["outcome"] not in _RIGHT[row["expected"]]:
            misses[stage] = _why(record)
        elif record.get("broken"):
            misses[stage] = "; ".join(record["broken"])
    for how in ("eager", "compiled"):
        forward, training = (
            stages.get(f"{what}, {how}", {}).get("step_s") for what in ("forward", "training")
        )
        if forward is not None and training is not None and training < forward:
            misses[f"training, {how}"] = (
                f"a step of training takes {training} s, of inference {forward} s"
            )
    return {**row, "misses": misses, "not_counted": not_counted}


def judge_odd_input(row: Row) -> Row:
    """Adds ``misses`` to an odd input's row."""
    record = row["stages"].get("asked", {"outcome": "never asked"})
    misses: dict[str, str] = {}
    if record["outcome"] not in row["expected"]:
        misses["asked"] = _why(record)
    elif record.get("broken"):
        misses["asked"] = "; ".join(record["broken"])
    elif row.get("limit_bytes") and record.get("memory_bytes", 0) > row["limit_bytes"]:
        misses["asked"] = f"took {record['memory_bytes'] / 1e9:.2f} GB"
    return {**row, "misses": misses, "not_counted": {}}


def _why(record: Mapping[str, Any]) -> str:
    parts = [record["outcome"], record.get("sentence"), record.get("cause")]
    return ": ".join(part for part in parts if part)[:300]


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """Counts by kind; what is wrong by name."""
    rows = list(rows)
    kinds = {"architecture": "architectures", "program": "programs", "odd input": "odd_inputs"}
    summary: dict[str, Any] = {
        name: _summary_of([row for row in rows if row["kind"] == kind])
        for kind, name in kinds.items()
    }
    asked = [record for row in rows for record in _asked(row).values()]
    summary["asked"] = len(asked)
    summary["died"] = sum(record["outcome"] == "died" for record in asked)
    summary["timed_out"] = sum(record["outcome"] == "timed out" for record in asked)
    summary["longest_s"] = max((record.get("cpu_seconds", 0.0) for record in asked), default=None)
    return summary


def _asked(row: Row) -> dict[str, Record]:
    """The stages in which gobrrr was asked, of what runs in plain PyTorch."""
    return {
        stage: record
        for stage, record in row["stages"].items()
        if stage in (*PREDICTIONS, "asked")
        and record["outcome"] != "not asked"
        and not {"all", stage.split(",")[0]} & row["not_counted"].keys()
    }


def _summary_of(rows: list[Row]) -> dict[str, Any]:
    counted = [row for row in rows if "all" not in row["not_counted"]]
    outcomes: dict[str, Counter[str]] = {}
    hinted = 0
    unmodelled: Counter[str] = Counter()
    for row in counted:
        for stage, record in _asked(row).items():
            outcomes.setdefault(stage, Counter())[record["outcome"]] += 1
            hinted += "without_hint" in record
            unmodelled.update(record.get("unmodelled", ()))
    wrong = {row["name"]: row["misses"] for row in rows if row["misses"]}
    right = sum(not row["misses"] for row in counted)
    return {
        "cases": len(rows),
        "counted": len(counted),
        "right": right,
        "right_fraction": round(right / len(counted), 4) if counted else None,
        "outcomes": {stage: dict(counts.most_common()) for stage, counts in outcomes.items()},
        "with_the_size_hint_that_was_advised": hinted,
        "unmodelled_ops": dict(unmodelled.most_common()),
        "not_counted": {row["name"]: row["not_counted"] for row in rows if row["not_counted"]},
        "misses": wrong,
    }
