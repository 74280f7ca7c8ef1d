"""Score captured training programs, predicted on meshes, against measured runs of their models.

    PYTHONPATH=. python benchmarks/prediction_captured/run.py --shared FOLDER --out RESULT.json

The same rows and the same split as ``prediction_distributed``; what is predicted there from a list
of calls and fitted constants is captured here from a PyTorch program (``mpt``, ``gpt``) and
predicted as ``gobrrr predict --mesh`` does, with nothing fitted in between. ``fitted`` are the
models whose residuals there gave the intervals of whole steps that gobrrr states. ``--every N``
takes every Nth program alone; the result says so. ``--complete`` runs none, and adds to the file of
a run the figures that it lacks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from benchmarks.command import Record, needed, parser
from benchmarks.prediction_captured.intervals import stated
from benchmarks.prediction_captured.items import Item, Row, stored, told
from benchmarks.prediction_captured.steps import MEGATRON_OVERHEAD, by_program, predicted
from benchmarks.prediction_distributed.mpt import FLASH_1
from benchmarks.prediction_distributed.rows import (
    GPUS_A_HOST,
    FsdpRow,
    MegatronRow,
    read_fsdp,
    read_megatron,
)
from benchmarks.prediction_distributed.run import figures, rankings
from benchmarks.split import halves

from gobrrr.timeline.files import write_atomically

# Attention's products over those of linear layers, forward, causal: 2 s d of 24 d d a token. Above
# a tenth, which version of FlashAttention runs (the measured one: 1, the captured one: 2) is seen.
MUCH_ATTENTION = 0.1
QUICK_LAYERS = 2
OF_A_RUN = "megatron_overhead_known"


def kind_of(row: Row) -> str:
    """What its mesh divides."""
    if isinstance(row, FsdpRow):
        return "shards on one host" if row.gpus <= GPUS_A_HOST else "shards on several hosts"
    if row.tensor > 1 and row.pipeline > 1:
        return "tensor and pipeline"
    return "pipeline" if row.pipeline > 1 else "tensor" if row.tensor > 1 else "copies"


def errors(items: Sequence[Item]) -> dict[str, Any]:
    """Of step times."""
    return figures([item.scored for item in items])


def scores(items: Sequence[Item]) -> dict[str, Any]:
    """Errors and coverage."""
    held = [item.found.holds(item.row.measured_s) for item in items]
    return {**errors(items), "interval_holds": round(float(np.mean(held)), 3) if held else None}


def by_half(
    score: Callable[[Sequence[Item]], dict[str, Any]], items: Sequence[Item]
) -> dict[str, dict[str, Any]]:
    """The same of fitted and of unseen models, apart."""
    return {name: score(half) for name, half in halves(items).items()}


def of_known_overhead(items: Sequence[Item], *, hosts_wait: bool = False) -> list[Item]:
    """Megatron's, as predicted with its host's overhead.

    ``hosts_wait``: with hosts that wait wherever two stages exchange, as Megatron's do, and
    PyTorch's pipelines, which gobrrr predicts, do not. Hosts then take turns as devices do.
    """
    found = []
    for item in items:
        step = item.overhead_known
        if step is not None:
            if hosts_wait and isinstance(item.row, MegatronRow) and item.row.pipeline > 1:
                step = replace(step, seconds=max(step.seconds, MEGATRON_OVERHEAD * item.host_s))
            found.append(replace(item, found=step))
    return found


def groups(items: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """Scores of all rows, by what is measured, by kind of mesh and by what could matter."""
    fsdp = [item for item in items if isinstance(item.row, FsdpRow)]
    slower = [replace(i, found=i.found.with_attention_slower(1 / FLASH_1)) for i in fsdp]
    gpt = [item for item in items if isinstance(item.row, MegatronRow)]
    known = of_known_overhead(items)

    def much(item: Item) -> bool:
        return item.row.seq_len / (12 * item.row.width) > MUCH_ATTENTION

    wanted: dict[str, tuple[Sequence[Item], Callable[[Item], bool]]] = {
        "fsdp": (fsdp, lambda _: True),
        "fsdp_little_attention": (fsdp, lambda item: not much(item)),
        "fsdp_much_attention": (fsdp, much),
        "fsdp_attention_1": (slower, lambda _: True),
        "fsdp_attention_1_one_host": (slower, lambda item: item.row.gpus <= GPUS_A_HOST),
        "fsdp_attention_1_several_hosts": (slower, lambda item: item.row.gpus > GPUS_A_HOST),
        "megatron": (gpt, lambda _: True),
        "megatron_said_to_be_host_bound": (gpt, lambda item: item.found.host_bound),
        OF_A_RUN: (known, lambda _: True),
        "megatron_not_host_bound": (gpt, lambda item: not item.found.host_bound),
    }
    for kind in dict.fromkeys(kind_of(item.row) for item in items):
        wanted[kind] = (items, lambda item, kind=kind: kind_of(item.row) == kind)  # type: ignore[misc]
    wanted["all"] = (items, lambda _: True)
    return {name: by_half(scores, [i for i in own if of(i)]) for name, (own, of) in wanted.items()}


def intervals_of_fitted(items: Sequence[Item]) -> dict[str, Any]:
    """What gobrrr should state of whole steps, from this run's rows."""
    fitted = halves(items)["fitted"]
    shards = [
        replace(i, found=i.found.with_attention_slower(1 / FLASH_1))
        for i in fitted
        if isinstance(i.row, FsdpRow)
    ]
    return stated(shards, [item for item in fitted if isinstance(item.row, MegatronRow)])


def all_predicted(programs: Sequence[Sequence[Row]]) -> Iterator[list[Item]]:
    """Every row, program by program, in as many processes as there are processors."""
    workers = min(len(programs), len(os.sched_getaffinity(0)))
    if workers <= 1:
        for own in programs:
            yield [Item(row, *each) for row, each in zip(own, predicted(own))]
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _one_thread) as pool:
        for own, of in zip(programs, pool.map(predicted, programs)):
            yield [Item(row, *each) for row, each in zip(own, of)]


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def of_quick(rows: Sequence[Row]) -> list[Row]:
    """The smallest row of each kind of program, with few layers."""
    found: dict[type, Row] = {}
    for row in sorted(rows, key=lambda row: (row.width, row.seq_len)):
        found.setdefault(type(row), row)
    return [
        replace(row, layers=QUICK_LAYERS * (row.pipeline if isinstance(row, MegatronRow) else 1))
        for row in found.values()
    ]


def body_of(items: Sequence[Item], programs: int) -> dict[str, Any]:
    """The result of all rows so far; ``programs``: how many there are."""
    large = [item.found.too_large for item in items]
    scored = [item.scored for item in items]
    known = [item.scored for item in of_known_overhead(items)]
    waiting = of_known_overhead(items, hosts_wait=True)
    return {
        "programs": {"there_are": programs, "predicted": len(by_program(i.row for i in items))},
        **groups(items),
        # No interval belongs to this way of waiting.
        "megatron_overhead_known_hosts_wait": by_half(errors, waiting),
        "intervals": intervals_of_fitted(items),
        "meshes_fitted": rankings(scored, fitted=True),
        "meshes_unseen": rankings(scored, fitted=False),
        "meshes_unseen_overhead_known": rankings(known, fitted=False),
        "meshes_unseen_overhead_known_hosts_wait": rankings(
            [item.scored for item in waiting], fitted=False
        ),
        # All of them have run.
        "said_not_to_fit": {"n": len(large), "said": sum(bool(each) for each in large)},
        "rows": [told(item) for item in items],
    }


def main() -> None:
    given = parser(__doc__, "measured/distributed")
    given.add_argument("--every", type=int, default=1, metavar="N", help="every Nth program alone")
    given.add_argument(
        "--complete", action="store_true", help="add what --out lacks, from its rows"
    )
    options = given.parse_args()
    record = Record(
        "prediction_captured", options, "numpy", device="recorded training on 2 to 128 A100s"
    )
    folder = needed(options.shared, "measured training runs")
    rows: list[Row] = [*read_fsdp(folder), *read_megatron(folder)]
    programs = by_program(of_quick(rows) if options.quick else rows)
    if options.complete:
        if options.out is None or not options.out.is_file():
            given.error("--complete needs --out, the file of a run")
        result = json.loads(options.out.read_text())
        # How often its interval holds is known to a run alone: rows have no ends of it.
        if OF_A_RUN not in result:
            given.error(f"{options.out} has no {OF_A_RUN}: run it again")
        body = {**body_of(stored(result["rows"], rows), len(programs)), **result}
        write_atomically(options.out, (json.dumps(body, indent=1) + "\n").encode())
        return
    items: list[Item] = []
    for found in all_predicted(programs[:: options.every]):
        items += found
        print(*(f"{item.scored.ratio:.3f} {told(item)['step']}" for item in found), sep="\n")
        record.write(body_of(items, len(programs)))
    for name, entry in body_of(items, len(programs)).items():
        if name != "rows":
            print(name, entry)


if __name__ == "__main__":
    main()
