"""The summaries of result files, made again from their rows by the code that is here now.

``recomputed`` gives what a file's own summary should hold; ``differences`` says where it holds
something else. A file is a record and stays as it was written: where the way of summing up was
mended after it, ``MENDED`` says how, and whoever states a figure takes the new one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
from benchmarks.figures import figure_at

Result = dict[str, Any]

# Topic, key in the summary, why it is another than in files from before.
MENDED = (
    ("fixes", "inside_low_to_high", "both ends of an interval were widened by 3 % of the step"),
)
# Topics whose files keep rows with fewer digits than their summary was made from.
ROUNDED = ("prediction", "prediction_captured", "trace")
# What a file holds besides summaries: rows, what is measured once, settings.
MEASURED = {
    "by_size", "demo_s", "likwid", "many_ops", "module_calls", "rounds", "rows", "small_ops",
    "trace", "turns",
}  # fmt: skip
_ROWS_ELSEWHERE = "rows are measured times of others, not in the repository, and it keeps none"
# Files without the rows of what is stated from them. None is added: a new file has its rows.
WITHOUT_ROWS = {
    "fixes_amd-epyc_2026-11-21.json": "its programs lack what the summary asks of one since",
    "prediction_collectives_2026-11-26.json": _ROWS_ELSEWHERE,
    "prediction_distributed_2026-11-26.json": _ROWS_ELSEWHERE,
    "prediction_kernels_2026-11-26.json": _ROWS_ELSEWHERE,
    "prediction_rtx4090_2026-11-26.json": "of each network it keeps what the shipped model tells, "
    "not what the fits to one half do",
    "prediction_traces_fifth-run_2026-11-26.json": "it keeps no ops that were carried from one "
    "device to another",
}
# Files, none of them stated, whose rows have another shape than the benchmark's summary takes now.
OLDER_ROWS = {
    "compile_by_fix_one-process-a-side_amd-epyc_2026-11-23.json": "one count of graphs a program",
    "prediction_captured_2026-11-24.json": "steps without an interval",
    "prediction_captured_2026-11-25.json": "steps without an interval",
}
# Of both lists.
NO_FILE_AFTER = "2026-11-27"


def _of(module: str) -> Any:
    return importlib.import_module(f"benchmarks.{module}")


def _plain(module: str, rows: str = "rows", name: str = "summary") -> Callable[[Result], Result]:
    def again(result: Result) -> Result:
        return {"summary": getattr(_of(module), name)(result[rows])}

    return again


def _typed(module: str, row: str, name: str = "summary") -> Callable[[Result], Result]:
    """For rows that are a dataclass in the benchmark."""

    def again(result: Result) -> Result:
        made = _of(module)
        rows = [getattr(made, row)(**each) for each in result["rows"]]
        return {"summary": getattr(made, name)(rows)}

    return again


def _spikes(result: Result) -> Result:
    made = _of("spikes.run")
    rows = [made.Recovery(**each) for each in result["rows"]]
    return {"summary": made.result_of(rows, result["rounds"])["summary"]}


def _fixes(result: Result) -> Result:
    made = _of("fixes.summary")
    return {
        "summary": {
            name: made.summary(
                programs,
                *map(
                    result["summary"][name].get,
                    (
                        "fixes_and_constants_were_fitted_with_these_in_sight",
                        "known_to_those_who_write_fixes",
                    ),
                ),
            )
            for name, programs in result["sets"].items()
        }
    }


def _ranks(result: Result) -> Result:
    if "parts" in result:
        return {
            name: {part: _ranks(run) for part, run in result[name].items() if part != "commit"}
            for name in ("parts", "run_before")
        }
    which = "both"
    if "outcomes" not in result:
        which = "second"
    elif "second" not in result:
        which = "first"
    second = result.get("second", {}).get("outcomes", [])
    made: Result = _of("ranks.run").body(
        which, result.get("outcomes", []), result.get("controls", []), second
    )
    return made


def _gpu(result: Result) -> Result:
    return {"scores": _of("gpu.scores").scores(result["parts"])}


def _ceilings(result: Result) -> Result:
    made = _of("ceilings.run").SUMMARIES
    return {part: {"summary": made[part](result[part]["rounds"])} for part in made}


def _cpu(result: Result) -> Result:
    made = _of("prediction_cpu.run")
    rows = [made.Row(**each) for each in result["rows"]]
    taken = {name: made.Taken(**each) for name, each in result["predictions_take"].items()}
    return {"summary": made.summary(rows, taken)}


def _plan(result: Result) -> Result:
    made = _of("plan.run")
    rounds = [made.Taken(**each) for each in result["rounds"]]
    # Of the meshes that fit the file keeps the best five and their number.
    fitting = result["summary"]["fitting"]
    return {"summary": made.summary(rounds, fitting, len(result["left_out"]))}


def _trace(result: Result) -> Result:
    made = _of("trace.run")
    sides: Result = {
        name: {**result[name], **made.summary([{"work_s": s} for s in result[name]["all_work_s"]])}
        for name in ("gobrrr", "hta")
        if name in result
    }
    return {**sides, **(made.compared(*sides.values()) if len(sides) == 2 else {})}


def _recorded_steps(result: Result) -> Result:
    made = _of("prediction.run")
    halves: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for op in result["model"]["ops"]:
        gpu = halves.setdefault(
            op["trace"].partition("_")[0], {"fitted": ([], []), "reported": ([], [])}
        )
        errors, weights = gpu[op["half"]]
        errors.append(made.relative(op["predicted_us"], op["measured_us"]))
        weights.append(op["measured_us"] * op["count"])
    return {
        "model": {
            "per_op": {
                gpu: {half: made.spread(*rows) for half, rows in found.items()}
                for gpu, found in halves.items()
            }
        }
    }


def _captured(result: Result) -> Result:
    rows = result["rows"]
    items = _of("prediction_captured.items")
    made: Result = _of("prediction_captured.run").body_of(
        items.stored(rows, items.rows_of(rows)), result["programs"]["there_are"]
    )
    # A row does not keep its precision, nor the ends of the interval where the overhead is known.
    del made["programs"], made["rows"]
    for half in made["megatron_overhead_known"].values():
        half.pop("interval_holds", None)
    return made


def _memory_budget(result: Result) -> Result:
    """The curves, from the trials; the bytes of each stand in its point alone."""
    from gobrrr.diagnosis.fix_schema import Ratio
    from gobrrr.search.memory_curve import memory_curve

    made: Result = {}
    for name, program in result["programs"].items():
        if (curve := program["curve"]) is None:
            continue
        points = {point["fix"]: point for point in curve["points"]}
        tried = []
        for trial in program["trials"]:
            point = points.get(trial["fix"])  # None of a trial that failed.
            if point is None:
                continue
            whole = trial["fix"] == curve["reference"]
            fix = SimpleNamespace(
                name=trial["fix"],
                setting=None if whole else point["budget"],
                variant_of=curve["reference"],
            )
            measured = SimpleNamespace(
                verdict=trial["verdict"],
                speedup=Ratio(**trial["speedup"]),
                before_s=points[""]["step_s"],
                step_memory_bytes=point["memory_bytes"],
                step_memory_before_bytes=points[""]["memory_bytes"],
            )
            tried.append((fix, measured))
        made[name] = {"curve": msgspec.to_builtins(memory_curve(tried))}
    return {"programs": made}


def _kernels(result: Result) -> Result:
    """Where a roofline with two fitted numbers is nearer to unseen times, and intervals are off."""
    rows = [row for row in result["table"] if row.get("refitted_roofline_unseen")]
    better = [
        row
        for row in rows
        if row["refitted_roofline_unseen"]["median_error"] < row["unseen"]["median_error"]
    ]
    figures = _of("prediction_kernels.run").summary(
        result["table"], result["intervals"], result["left_out"]
    )
    outside = _of("intervals").outside
    figures |= {
        "kinds": len(rows),
        "refitted_roofline_is_nearer": len(better),
        "intervals_outside_75_to_85": outside(row["holds"] for row in result["intervals"]),
        "left_out_outside_75_to_85": outside(row["holds"] for row in result["left_out"]),
    }
    return {"summary": figures}


def _intervals(result: Result) -> Result:
    made = _of("intervals")
    rows = [made.Row(**each) for each in result["rows"]]
    told = {name: list(interval) for name, interval in made.table().items()}
    return {"intervals": told, "summary": made.summary(rows, told)}


def _strangers(result: Result) -> Result:
    rows = [dict(zip(result["columns"], row)) for row in result["rows"]]
    return {"summary": _of("strangers.run").summary(rows)}


def _mutations(result: Result) -> Result:
    return {"summary": _of("mutations.run").summary(result["rows"], result["mutants"])}


TOPICS: dict[str, Callable[[Result], Result]] = {
    "alone": _plain("alone.run"),
    "breadth": _plain("breadth.verdicts", "cases", "summarise"),
    "breadth_live": _plain("breadth.live", "cases", "summarise"),
    "causes": _plain("causes.score"),
    "ceilings": _ceilings,
    "compile_by_fix": _plain("compile_by_fix.run", "programs"),
    "coverage": _typed("coverage.run", "Coverage"),
    "fixes": _fixes,
    "fleet": _plain("fleet.run"),
    "gpu": _gpu,
    "hosts": _plain("hosts.run", "outcomes"),
    "intervals": _intervals,
    "memory_budget": _memory_budget,
    "plan": _plan,
    "prediction": _recorded_steps,
    "prediction_captured": _captured,
    "prediction_cpu": _cpu,
    "mutations": _mutations,
    "prediction_kernels": _kernels,
    "prediction_host": _typed("prediction_host.run", "Row"),
    "public_scripts": _plain("public_scripts.run"),
    "ranks": _ranks,
    "real_scripts": _plain("real_scripts.run", "runs"),
    "regimes": _plain("regimes.run"),
    "spikes": _spikes,
    "strangers": _strangers,
    "trace": _trace,
}


def recomputed(result: Any) -> Result:
    """What the rows of a result file give; empty where it has a summary that nothing remakes."""
    topic = result.get("topic") if isinstance(result, dict) else None
    return TOPICS[topic](result) if topic in TOPICS else {}


def rests_on_rows(path: str, again: Result) -> bool:
    """Whether what claims name by a path is measured, or among what was made again from rows."""

    def rests(one: str) -> bool:
        try:
            figure_at(again, one)
        except (LookupError, TypeError, ValueError):
            return one.partition(".")[0] in MEASURED
        return True

    return all(map(rests, path.split(" / ")))


def differences(result: Any, again: Result | None = None) -> Iterator[str]:
    """Where the summary of a file is not what its rows give: paths, with both figures."""
    if not isinstance(result, dict):
        return
    topic = result.get("topic")
    mended = {key for of, key, _ in MENDED if of == topic}
    # Rows with five digits, summaries with four; a mean over pairs, some of which then tie.
    near = (5e-3, 5e-4) if topic in ROUNDED else (1e-9, 1e-12)
    yield from _differences(result, recomputed(result) if again is None else again, mended, near)


def with_recomputed(result: Any, again: Result) -> Any:
    """The file with its summary made again from its rows, if they have all of their digits."""
    if not isinstance(result, dict) or result.get("topic") in ROUNDED:
        return result
    return _put(result, again)


def _put(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _put(old.get(key), value) for key, value in new.items()}}
    return new


def _differences(
    old: Any, new: Any, mended: set[str], near: tuple[float, float], path: tuple[str, ...] = ()
) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() & new.keys():
            if key not in mended:
                yield from _differences(old[key], new[key], mended, near, (*path, str(key)))
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        if len(old) != len(new):
            yield f"{'.'.join(path)} has {len(old)} entries, its rows give {len(new)}"
        for number, (one, other) in enumerate(zip(old, new)):
            yield from _differences(one, other, mended, near, (*path, str(number)))
    elif not _same(old, new, near):
        yield f"{'.'.join(path)} is {old}, its rows give {new}"


def _same(one: Any, other: Any, near: tuple[float, float]) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=near[0], abs_tol=near[1])
    return bool(one == other)
