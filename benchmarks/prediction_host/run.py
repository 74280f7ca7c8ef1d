"""Score predicted steps that the host decides, and whole networks that nothing was fitted on.

    PYTHONPATH=. python benchmarks/prediction_host/run.py --out RESULT.json

Two sources: the programs of ``benchmarks/gpu``, as an H200 ran them, and published times of six
networks on three cards (``networks.py``). ``--fit`` prints the host's constants from the fitted
families instead.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.command import RESULTS, Record, parser, skip
from benchmarks.gpu.programs import DTYPES, PROGRAMS, Program
from benchmarks.prediction_host.networks import CARDS, inference, networks

import gobrrr
from gobrrr.prediction import graph_step
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.host_calls import host_calls_of
from gobrrr.prediction.step.host_lane import ADDITION_S
from gobrrr.timeline.data import Phase

MEASURED = RESULTS / "gpu_nvidia-h200_2026-11-26"
# Constants of the host are fitted on these families of programs, the first word of their names; the
# split was made when their times were known and before anything was fitted.
FITTED = ("mlp", "chain", "norms", "embedding")


@dataclass(frozen=True)
class Row:
    """A measured step beside its prediction, in seconds.

    ``source``: ``h200`` or ``published``; ``fitted``: whether the host's constants have seen it;
    ``known_s``: predicted with this host's own time of an addition, ``None`` where it is not known.
    """

    source: str
    name: str
    mode: str
    fitted: bool
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float | None
    host_bound: bool
    known_s: float | None

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s


def addition_s() -> float:
    """Of the host of the H200: one over the additions that its ceilings show."""
    rows = json.loads((MEASURED / "ceilings.json").read_text())["result"]["rows"]
    return 1.0 / float(rows["host.dispatches"]["measured"])


def work_of(program: Program, dtype: str) -> gobrrr.Workload:
    """The program as ``benchmarks/gpu`` runs it, on the meta device."""
    import torch

    model, inputs = program.build(torch, "meta", getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if program.trains else None
    loss = (lambda y: y.float().square().mean()) if program.trains else None
    return gobrrr.Workload(model.train(program.trains), inputs, loss=loss, optimizer=optimizer)


def measured_programs() -> Iterator[tuple[Program, str, str, float]]:
    """Each program with its dtype, mode and measured time."""
    by_name = {program.name: program for program in PROGRAMS}
    for dtype in DTYPES:
        for mode in ("eager", "compiled"):
            path = MEASURED / f"programs_{dtype}_{mode}.json"
            if not path.exists():
                continue
            for name, told in json.loads(path.read_text())["result"]["programs"].items():
                if "measured_s" in told:
                    yield by_name[name], dtype, mode, float(told["measured_s"])


def h200_rows(quick: bool) -> Iterator[Row]:
    """The programs of ``benchmarks/gpu``."""
    factor = addition_s() / ADDITION_S
    for program, dtype, mode, measured_s in list(measured_programs())[: 3 if quick else None]:
        work, compile = work_of(program, dtype), mode == "compiled"
        found = gobrrr.predict(work, "H200", compile=compile, progress=False)
        known = gobrrr.predict(work, "H200", compile=compile, host_overhead=factor, progress=False)
        yield _row(
            "h200", f"{program.name}, {dtype}", mode, program.name.split()[0] in FITTED,
            measured_s, found, known.step_s,
        )  # fmt: skip


def published_rows(quick: bool) -> Iterator[Row]:
    """The six networks."""
    built = networks()
    with (Path(__file__).parent / "published.csv").open() as lines:
        records = list(csv.DictReader(lines))
    for record in records[: 2 if quick else None]:
        model, side = built[record["model"]]
        step = inference(model, side, int(record["batch"]))
        compile = record["mode"] == "compiled"
        found = gobrrr.predict(step, CARDS[record["card"]], compile=compile, progress=False)
        name = f"{record['model']} on {record['card']}, batch {record['batch']}"
        yield _row(
            "published", name, record["mode"], False, float(record["ms"]) * 1e-3, found, None
        )


def _row(
    source: str, name: str, mode: str, fitted: bool, measured_s: float,
    found: gobrrr.Diagnosis, known_s: float | None,
) -> Row:  # fmt: skip
    time_s = found.step.time_s
    return Row(
        source, name, mode, fitted, measured_s, found.step_s, time_s.low, time_s.high,
        bool(found.source["host_bound"]), known_s,
    )  # fmt: skip


def figures(rows: Sequence[Row], *, known: bool = False) -> dict[str, Any]:
    """Errors of |predicted / measured - 1| and the share of rows in their intervals."""
    if not rows:
        return {"n": 0}
    predicted = [row.known_s if known and row.known_s is not None else row.predicted_s
                 for row in rows]  # fmt: skip
    error = np.array(predicted) / np.array([row.measured_s for row in rows]) - 1
    ratio = 1 / (1 + error)
    low, high = np.percentile(ratio, [10, 90])
    within = [row.low_s <= row.measured_s <= (row.high_s or 0.0) for row in rows]
    return {
        "n": len(rows),
        "median_error": round(float(np.median(abs(error))), 4),
        "p90_error": round(float(np.percentile(abs(error), 90)), 4),
        "bias": round(float(np.median(error)), 4),
        "worst": round(float(abs(error).max()), 4),
        "measured_over_predicted": [round(float(low), 3), round(float(high), 3)],
        **({} if known else {"within": round(sum(within) / len(rows), 4)}),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """By what decides the step, source, mode, and what was fitted."""
    h200 = [row for row in rows if row.source == "h200"]
    published = [row for row in rows if row.source == "published"]
    of_host = [row for row in h200 if row.host_bound and row.mode == "eager"]
    fitted = [row for row in of_host if row.fitted]
    unseen = [row for row in of_host if not row.fitted]
    found: dict[str, Any] = {
        "addition_us": round(addition_s() * 1e6, 3),
        "host_bound": {
            "h200_eager_fitted_host_known": figures(fitted, known=True),
            "h200_eager_unseen_host_known": figures(unseen, known=True),
            "h200_eager_fitted": figures(fitted),
            "h200_eager_unseen": figures(unseen),
            "h200_compiled": figures([r for r in h200 if r.host_bound and r.mode == "compiled"]),
        },
        "device_bound": {
            "h200_eager": figures([r for r in h200 if not r.host_bound and r.mode == "eager"]),
            "h200_compiled": figures(
                [r for r in h200 if not r.host_bound and r.mode == "compiled"]
            ),
        },
    }
    for mode in ("eager", "compiled"):
        here = [row for row in published if row.mode == mode]
        bound = [row for row in here if row.host_bound]
        found["host_bound"][f"published_{mode}"] = figures(bound)
        rest = [row for row in here if not row.host_bound]
        found["device_bound"][f"published_{mode}"] = figures(rest)
        for card in CARDS:
            on_card = [row for row in rest if f" on {card}," in row.name]
            found["device_bound"][f"published_{mode}_{card}"] = figures(on_card)
    found["host_bound"]["eager_unseen"] = figures(
        [*unseen, *(row for row in published if row.host_bound and row.mode == "eager")]
    )
    return found


def fit() -> None:
    """Prints the host's constants in additions, least squares of relative errors."""
    addition = addition_s()
    columns: list[list[float]] = []
    rest: list[float] = []
    captured: list[Sequence[CostedOp]] = []
    original = graph_step.predicted_step

    def kept(ops: Sequence[CostedOp], *rest: Any, **options: Any) -> Any:
        captured.append(ops)
        return original(ops, *rest, **options)

    graph_step.predicted_step = kept
    for program, dtype, mode, measured_s in measured_programs():
        if mode != "eager" or program.name.split()[0] not in FITTED:
            continue
        gobrrr.predict(work_of(program, dtype), "H200", progress=False)
        ops = captured.pop()
        if sum(op.device_s for op in ops) > 0.5 * measured_s:
            continue
        launches = views = nodes = own_s = 0.0
        for op, call in zip(ops, host_calls_of(ops)):
            count, backward = op.cost.host_calls, call.phase is Phase.BACKWARD
            nodes += count * backward
            if call.kernels:
                launches += count * (not backward)
                own_s += count * (addition * call.weight + (call.kernels - 1) * 2e-6)
            else:
                views += count
        columns.append([x / measured_s for x in (launches, views, nodes, float(program.trains))])
        rest.append(1 - own_s / measured_s)
    found = np.linalg.lstsq(np.array(columns), np.array(rest), rcond=None)[0] / addition
    for name, value in zip(("PROGRAM", "VIEW", "NODE", "training step (two passes)"), found):
        print(f"{name}: {value:.2f} additions")


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--fit", action="store_true", help="print the host's constants and end")
    options = made.parse_args()
    if find_spec("transformers") is None:
        skip("transformers is not installed")
    if options.fit:
        fit()
        return
    record = Record(
        "prediction_host", options, "transformers",
        device="steps measured on an H200, and published ones of an A100, a V100 and a T4",
    )  # fmt: skip
    rows = [*h200_rows(options.quick), *published_rows(options.quick)]
    found = summary(rows)
    for group in ("host_bound", "device_bound"):
        for name, entry in found[group].items():
            print(group, name, entry)
    rows.sort(key=lambda row: -abs(log(row.ratio)))
    record.write({"summary": found, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
