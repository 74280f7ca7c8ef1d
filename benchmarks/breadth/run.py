"""The sweep: every architecture, every corner program, every odd input, each in its own process.

    PYTHONPATH=. python benchmarks/breadth/run.py --out FILE [--quick|--sample] [--only PATTERN ...]

Begun again with the same ``--out`` and commit it goes on where it was stopped. Everything is
predicted, so that a loaded machine changes the seconds and nothing else.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from benchmarks.breadth import asking, verdicts, watching
from benchmarks.breadth.architectures import all_architectures
from benchmarks.breadth.case import Case
from benchmarks.breadth.odd_inputs import all_odd_inputs
from benchmarks.breadth.odd_inputs.case import OddInput
from benchmarks.breadth.programs import all_programs
from benchmarks.command import Record, parser

from gobrrr.timeline.files import write_atomically

Row = dict[str, Any]
# --sample takes every so many of each kind, by the order of the lists; --quick takes one of each.
EVERY_ARCHITECTURE, EVERY_PROGRAM, EVERY_ODD_INPUT = 40, 12, 9


KINDS = ("architecture", "program", "odd input")


def kind_of(case: Case | OddInput) -> str:
    """One of ``KINDS``."""
    return "odd input" if isinstance(case, OddInput) else case.kind


def all_cases() -> list[Case | OddInput]:
    """Architectures, programs, odd inputs."""
    return [*all_architectures(), *all_programs(), *all_odd_inputs()]


def sample() -> list[Case | OddInput]:
    """The fixed part that the test suite runs."""
    return [
        *all_architectures()[::EVERY_ARCHITECTURE],
        *all_programs()[::EVERY_PROGRAM],
        *all_odd_inputs()[::EVERY_ODD_INPUT],
    ]


def quick_cases() -> list[Case | OddInput]:
    """The first of each kind."""
    return [all_architectures()[0], all_programs()[0], all_odd_inputs()[0]]


def import_what_children_need() -> None:
    """Once, before any child: only imports, so that each child asks gobrrr for the first time."""
    rooms = ("attribution", "devices", "diagnosis", "fixes", "live", "measure", "observe",
             "pipeline", "prediction", "ranks", "recordings", "reports", "roofline", "symbolic",
             "timeline", "work")  # fmt: skip
    for room in rooms:
        package = importlib.import_module(f"gobrrr.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"gobrrr.{room}."):
            importlib.import_module(module.name)
    for name in ("diffusers", "torch._inductor.compile_fx", "transformers.modeling_utils",
                 "transformers.models.auto.modeling_auto"):  # fmt: skip
        importlib.import_module(name)
    torch.set_num_threads(1)


def run_case(case: Case | OddInput, *, errors_to: str = os.devnull) -> Row:
    """One case's row, judged."""
    started = time.perf_counter()
    if isinstance(case, OddInput):
        stages = watching.watch(
            functools.partial(asking.ask_odd_input, case),
            ("asked",),
            limit_s=case.limit_s,
            errors_to=errors_to,
        )
        row: Row = {
            "name": case.name,
            "kind": "odd input",
            "expected": [kind.value for kind in case.expected],
        }
        if case.memory_bytes is not None:
            row["limit_bytes"] = case.memory_bytes
        judge: Callable[[Row], Row] = verdicts.judge_odd_input
    else:
        stages = watching.watch(
            functools.partial(asking.ask_about_program, case), asking.STAGES, errors_to=errors_to
        )
        row = {"name": case.name, "kind": case.kind, "expected": case.expected.value}
        if case.because is not None:
            row["because"] = case.because
        judge = verdicts.judge_program
    row["stages"] = {stage: _short(record) for stage, record in stages.items()}
    row["seconds"] = round(time.perf_counter() - started, 1)
    return judge(row)


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    return {name: value for name, value in record.items() if value not in ([], False, None)}


def write(path: Path, opening: dict[str, Any], rows: Sequence[Row], *, complete: bool) -> None:
    """The whole file, one line a case."""
    summary = verdicts.summarise(rows)
    text = json.dumps({**opening, "complete": complete, "summary": summary}, indent=1)
    lines = ",\n".join(json.dumps(row) for row in rows)
    write_atomically(path, f'{text[:-2]},\n "cases": [\n{lines}\n]}}\n'.encode())


def _begun(path: Path, opening: dict[str, Any]) -> list[Row]:
    """What an earlier run of the same commit and versions has left unfinished."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    if before["complete"] or any(before[key] != opening[key] for key in ("commit", "versions")):
        return []
    rows: list[Row] = before["cases"]
    return rows


def merge(parts: Sequence[Path], out: Path) -> int:
    """Parts that ran beside each other, of one commit and one set of versions, as one file."""
    found = [json.loads(path.read_text()) for path in parts]
    first = found[0]
    for other in found:
        if not other["complete"]:
            raise SystemExit("a part is not complete")
        if any(other[key] != first[key] for key in ("commit", "versions", "device", "quick")):
            raise SystemExit("the parts are of different commits, versions or machines")
    rows = [row for part in found for row in part["cases"]]
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    rows.sort(key=lambda row: (kinds[row["kind"]], row["name"]))
    opening = {key: first[key] for key in first if key not in ("complete", "summary", "cases")}
    opening["load_before"] = max(part["load_before"] or 0.0 for part in found)
    write(out, opening, rows, complete=True)
    return int(any(row["misses"] for row in rows))


def describe(row: Row) -> str:
    """One line of progress."""
    asked = {
        stage: record["outcome"]
        for stage, record in row["stages"].items()
        if stage in (*asking.PREDICTIONS, "asked")
    }
    if "all" in row["not_counted"]:
        return f"not counted: {row['not_counted']['all']}"
    text = ", ".join(sorted(set(asked.values())))
    for stage, why in row["misses"].items():
        text += f"\n      MISS {stage}: {why}"
    return text


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    options.add_argument("--only", nargs="+", metavar="PATTERN", help="names, with * and ?")
    options.add_argument("--sample", action="store_true", help="two minutes of it")
    options.add_argument("--part", metavar="I/N", help="every Nth case, from the Ith (1 to N)")
    options.add_argument("--merge", nargs="+", type=Path, metavar="FILE", help="parts into --out")
    options.add_argument("--errors-to", default=os.devnull, help="where children's stderr goes")
    arguments = options.parse_args()
    if arguments.out is None:
        options.error("--out is needed: the sweep goes on from that file where it was stopped")
    if arguments.merge:
        return merge(arguments.merge, arguments.out)
    cases = sample() if arguments.sample else quick_cases() if arguments.quick else all_cases()
    arguments.quick |= arguments.sample
    cases = [case for case in cases if kind_of(case) in arguments.kind]
    if arguments.only:
        cases = [
            case
            for case in cases
            if any(fnmatch.fnmatch(case.name, pattern) for pattern in arguments.only)
        ]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        cases = cases[part - 1 :: parts]
    record = Record("breadth", arguments, "transformers", "diffusers", "torchao")
    opening = {**record.head, "predicted_for": asking.DEVICE, "limit_s": watching.LIMIT_S}
    rows = _begun(arguments.out, opening)
    done = {row["name"] for row in rows}
    import_what_children_need()
    for number, case in enumerate(cases, start=1):
        if case.name in done:
            continue
        row = run_case(case, errors_to=arguments.errors_to)
        rows.append(row)
        print(f"{number}/{len(cases)} {case.name} {row['seconds']} s: {describe(row)}", flush=True)
        write(arguments.out, opening, rows, complete=False)
    write(arguments.out, opening, rows, complete=True)
    summary = verdicts.summarise(rows)
    for name in ("architectures", "programs", "odd_inputs"):
        found = summary[name]
        print(f"{name}: {found['right']} of {found['counted']} right")
    print(f"died: {summary['died']}, over the time limit: {summary['timed_out']}")
    return int(any(row["misses"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
