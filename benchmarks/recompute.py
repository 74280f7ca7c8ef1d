"""The summaries of result files, made again from their rows by the code that is here now.

``recomputed`` gives what a file's own summary should hold; ``differences`` says where it holds
something else. A file is a record and stays as it was written: where the way of summing up was
mended after it, ``MENDED`` says how, and whoever states a figure takes the new one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

Result = dict[str, Any]

# Topic, key in the summary, why it is another than in files from before.
MENDED = (
    ("fixes", "inside_low_to_high", "both ends of an interval were widened by 3 % of the step"),
)


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
    if "parts" in result:  # of single cases, without a summary
        return {}
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


def _kernels(result: Result) -> Result:
    """Where a roofline with two fitted numbers is nearer to the unseen times than the model is."""
    rows = [row for row in result["table"] if row.get("refitted_roofline_unseen")]
    better = [
        row
        for row in rows
        if row["refitted_roofline_unseen"]["median_error"] < row["unseen"]["median_error"]
    ]
    return {"summary": {"kinds": len(rows), "refitted_roofline_is_nearer": len(better)}}


def _strangers(result: Result) -> Result:
    rows = [dict(zip(result["columns"], row)) for row in result["rows"]]
    return {"summary": _of("strangers.run").summary(rows)}


def _mutations(result: Result) -> Result:
    return {"summary": _of("mutations.run").summary(result["rows"], result["mutants"])}


TOPICS: dict[str, Callable[[Result], Result]] = {
    "alone": _plain("alone.run"),
    "causes": _plain("causes.score"),
    "compile_by_fix": _plain("compile_by_fix.run", "programs"),
    "coverage": _typed("coverage.run", "Coverage"),
    "fixes": _fixes,
    "fleet": _plain("fleet.run"),
    "hosts": _plain("hosts.run", "outcomes"),
    "mutations": _mutations,
    "prediction_kernels": _kernels,
    "prediction_host": _typed("prediction_host.run", "Row"),
    "public_scripts": _plain("public_scripts.run"),
    "ranks": _ranks,
    "real_scripts": _plain("real_scripts.run", "runs"),
    "regimes": _plain("regimes.run"),
    "spikes": _spikes,
    "strangers": _strangers,
}


def recomputed(result: Any) -> Result:
    """What the rows of a result file give; empty where it has a summary that nothing remakes."""
    topic = result.get("topic") if isinstance(result, dict) else None
    return TOPICS[topic](result) if topic in TOPICS else {}


def differences(result: Any) -> Iterator[str]:
    """Where the summary of a file is not what its rows give: paths, with both figures."""
    mended = {key for topic, key, _ in MENDED if topic == result.get("topic")}
    yield from _differences(result, recomputed(result), mended, ())


def with_recomputed(result: Any) -> Any:
    """The file with its summary made again from its rows."""
    return _put(result, recomputed(result)) if isinstance(result, dict) else result


def _put(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _put(old.get(key), value) for key, value in new.items()}}
    return new


def _differences(old: Any, new: Any, mended: set[str], path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() & new.keys():
            if key not in mended:
                yield from _differences(old[key], new[key], mended, (*path, str(key)))
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        if len(old) != len(new):
            yield f"{'.'.join(path)} has {len(old)} entries, its rows give {len(new)}"
        for number, (one, other) in enumerate(zip(old, new)):
            yield from _differences(one, other, mended, (*path, str(number)))
    elif not _same(old, new):
        yield f"{'.'.join(path)} is {old}, its rows give {new}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)
