"""Is what ``gobrrr fix`` compiles as fast as what a user compiles by hand?

    PYTHONPATH=. python benchmarks/compile_by_fix/run.py --out FILE

Ten programs whose forward is torch's own (``nn.Sequential``, ``nn.Linear``, ...), ten with their
own, and three that a script calls without an optimizer. Each runs in fresh processes that take
turns, timed by a clock of this benchmark: one as it is, three with the fix ``compile`` applied as
``FixResult.apply`` does (in a script: installed before it, its calls watched), and three with
``torch.compile`` by hand. A side's figure is the median of its processes, with an interval over
processes and rounds (``sides.py``); ``processes_differ_by`` is what processes of one side, which
run the same code, differ by. A process by fix and one by hand are started together, so that
neither side is always the one that finds the compiler's caches empty. Whether a graph was compiled
is read from Dynamo's own counters. About 40 s per program; a second call goes on where one was
ended.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# The file says one thread, whatever the shell has set: two of them wait for each other on a machine
# that others use, by more than what is compared here.
os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).resolve().parent

from benchmarks.command import Record, parser  # noqa: E402
from benchmarks.compile_by_fix.sides import PROCESSES, ROUNDS, in_turns, measured  # noqa: E402
from benchmarks.fixes.again import Process, start  # noqa: E402

VARIANTS = {"original": "original", "by fix": "fixes:compile", "by hand": "mode:default"}
GROUPS = ("OWN_MODULES", "OWN_FORWARDS", "IN_SCRIPTS")
IN_SCRIPT = "script:compile"
WITHIN = 0.10
# Steps of a script without which no trial of it can be.
FEWEST_STEPS = 3
# With --quick: it has to run, no more.
QUICK, QUICK_PROCESSES, QUICK_ROUNDS = ("activations",), 1, 2


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="these programs, anew; commas between")
    options.add_argument("--note", default="", help="what else ran on the machine, for the file")
    options.add_argument("--child", nargs=2, metavar=("NAME", "VARIANT"), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        _serve(*arguments.child)
        return 0
    record = Record("compile_by_fix", arguments)
    known: dict[str, Any] = {}
    if arguments.out is not None and arguments.out.exists():
        known = {p["name"]: p for p in json.loads(arguments.out.read_text())["programs"]}
    wanted = set(filter(None, arguments.only.split(","))) or set(QUICK if arguments.quick else ())
    programs = _programs()
    for group in GROUPS:
        for make in getattr(programs, group):
            name = make.__name__
            if name not in wanted if wanted else name in known:
                continue
            known[name] = {
                "name": name,
                "group": group.lower(),
                **_compared(name, group, arguments.quick),
            }
            _write(record, known, arguments.note)
            ratios = known[name]["ratios"]
            speedups = {k: round(r["median"], 2) for k, r in ratios.items()}
            print(name, speedups, known[name].get("by_fix_over_by_hand", {}), flush=True)
    made = _write(record, known, arguments.note)
    print(json.dumps(made["summary"], indent=1))
    problems = [
        f"{program['name']}, {variant}: {why}"
        for program in made["programs"]
        for variant, why in program["problems"].items()
    ]
    if problems:
        print(problems[0], file=sys.stderr)
    return int(bool(problems))


def _programs() -> Any:
    spec = importlib.util.spec_from_file_location("compiled_programs", HERE / "programs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _serve(name: str, variant: str) -> None:
    """One variant, as ``variants.serve`` runs it; on stderr how many graphs it compiled."""
    import atexit

    import torch
    from benchmarks.fixes.variants import serve

    from gobrrr import Workload
    from gobrrr.observe.compiler_counters import compiler_counters

    def make() -> Workload:
        torch.manual_seed(0)
        model, inputs, training = getattr(_programs(), name)()
        if not training:
            return Workload(model, inputs)
        return Workload(
            model, inputs, loss=lambda y: y.square().mean(),
            optimizer=torch.optim.SGD(model.parameters(), 1e-3, fused=True),
        )  # fmt: skip

    atexit.register(
        lambda: print(compiler_counters().get("compiled_graphs", 0.0), file=sys.stderr, flush=True)
    )
    if variant != IN_SCRIPT:
        serve(make, variant)
        return
    from gobrrr.fixes.compilation.compile import COMPILE_FIXES
    from gobrrr.live.steps import StepWatcher

    install, seen = COMPILE_FIXES[0].in_script, [0]
    assert install is not None

    def ended(source: str, restarted: bool) -> None:
        seen[0] += 1

    # As a trial finds out where its steps end; what is timed is the compiled module alone, for
    # what watches it costs the unchanged program as much.
    made, watcher = make(), StepWatcher(ended)
    with install():
        watcher.install()
        try:
            for _ in range(2 * FEWEST_STEPS):
                made.step()
        finally:
            watcher.remove()
    assert seen[0] >= FEWEST_STEPS, f"only {seen[0]} calls were seen as steps"
    serve(lambda: made, "original")


def _compared(name: str, group: str, quick: bool) -> dict[str, Any]:
    processes, rounds = (QUICK_PROCESSES, QUICK_ROUNDS) if quick else (PROCESSES, ROUNDS)
    wanted = ["original", *("by fix", "by hand") * processes]
    command = [str(Path(__file__)), "--child", name]
    variants = VARIANTS | ({"by fix": IN_SCRIPT} if group == "IN_SCRIPTS" else {})
    running: dict[str, list[Process]] = {}
    problems: dict[str, str] = {}
    # Two at a time: compilers take a processor each, and nothing is timed yet.
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda label: start([*command, variants[label]], {}), wanted))
    for label, process in zip(wanted, made, strict=True):
        if isinstance(process, str):
            problems[label] = process
        else:
            running.setdefault(label, []).append(process)
    try:
        timed = measured(in_turns(running, rounds))
        graphs = {label: [_graphs(p) for p in of_label] for label, of_label in running.items()}
    finally:
        for of_label in running.values():
            for process in of_label:
                process.child.kill()
                process.child.wait()
    return timed | {"problems": problems, "graphs": graphs}


def _graphs(process: Process) -> float | None:
    """Graphs compiled by a process, which is ended; ``None`` if it did not say."""
    _, said = process.child.communicate(timeout=30)
    try:
        return float(said.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None


def summary(programs: list[dict[str, Any]]) -> dict[str, Any]:
    """By group, how often what fix compiled is as fast as what was compiled by hand."""
    groups: dict[str, Any] = {}
    for group in map(str.lower, GROUPS):
        of_group = [p for p in programs if p["group"] == group]
        speeds = {
            p["name"]: p["by_fix_over_by_hand"] for p in of_group if "by_fix_over_by_hand" in p
        }
        groups[group] = {
            "programs": len(of_group),
            "within_10_percent": sum(abs(s["median"] - 1.0) <= WITHIN for s in speeds.values()),
            "by_fix_over_by_hand": speeds,
            "nothing_compiled_by_fix": [
                p["name"] for p in of_group if not all(p["graphs"].get("by fix", [None]))
            ],
        }
    return groups


def _write(record: Record, known: dict[str, Any], note: str) -> dict[str, Any]:
    made = record.whole(
        {
            "settings": {"threads": 1, "processes_a_side": PROCESSES},
            "note": note,
            "summary": summary(list(known.values())),
            "programs": list(known.values()),
        }
    )
    record.write(made)
    return made


if __name__ == "__main__":
    sys.exit(main())
