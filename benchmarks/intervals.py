"""The intervals of predicted steps: from one half of the rows of result files, scored on the other.

    PYTHONPATH=. python benchmarks/intervals.py --table     # remakes
    prediction/step/interval_table.py PYTHONPATH=. python benchmarks/intervals.py --out FILE  # how
    often they hold the other half

Nothing is measured: the rows are those of ``CONSTANTS``, with what was predicted of them then.
Which half a row is in, its network, family or model says, never its time; where constants of the
model were fitted on one half, an interval is from that. Errors of a group (a family, a host, a
network) go together, so an interval is as wide as a group needs that it has not seen
(``prediction_distributed.intervals``). Where either half has fewer than ``FEWEST`` rows, it is from
the extremes of the first, ``WIDER`` times as wide in the logarithm, and scored by nothing. Where
rows are enough and groups too few for halves, it is from all of them, and each row is scored with
what the rows of other kinds and other groups give.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.command import RESULTS, Record, parser, sources  # noqa: E402
from benchmarks.prediction_distributed.intervals import ANY, Residual, intervals  # noqa: E402
from benchmarks.prediction_timm.families import family_of, side_of  # noqa: E402

from gobrrr.prediction.kernels import residual_table  # noqa: E402
from gobrrr.prediction.mesh.bands import WIDER, kind_of  # noqa: E402
from gobrrr.prediction.mesh.mesh import Mesh  # noqa: E402
from gobrrr.prediction.step import interval_table  # noqa: E402

# Fewer rows have no percentiles, and tell no share.
FEWEST = 10
# The share of further steps that is to lie within, from where to where it is called right.
RIGHT = 0.75, 0.85


class Row(NamedTuple):
    """A measured step.

    ``kind``: what shares are told by; ``group``: of rows whose errors go together; ``fit``: whether
    its interval is from it, otherwise it is scored on it, ``None``: there are no halves; ``ratio``:
    measured over predicted time; ``host``: assumed host time over the predicted time, where an
    interval reaches up to a slow host's.
    """

    constant: str
    kind: str
    name: str
    group: str
    fit: bool | None
    ratio: float
    host: float = 0.0


@dataclass(frozen=True)
class Constant:
    """One interval, or a table of them, and what it is from.

    Attributes:
        name: of it.
        files: names of the result files with its rows.
        words: its rows, for a reader.
        apart: words in the paths of figures that are of other rows alone.
        rows: reads them; ``None`` for a table that its own benchmark makes.
    """

    name: str
    files: tuple[str, ...]
    words: str
    apart: tuple[str, ...]
    rows: Callable[[Sequence[Any]], Iterator[Row]] | None = None


def _known_host(files: Sequence[Any]) -> Iterator[Row]:
    for row in files[0]["rows"]:
        if row["host_bound"] and row["known_s"]:
            yield _of_host("KNOWN_HOST", row, row["name"].split()[0], row["known_s"])


def _any_host(files: Sequence[Any]) -> Iterator[Row]:
    """Groups are hosts."""
    for row in files[0]["rows"]:
        if row["host_bound"]:
            yield _of_host("ANY_HOST", row, row["source"], row["predicted_s"])
    for row in files[1]["rows"]:
        if row["host_bound"]:
            ratio = row["measured_s"] / row["predicted_s"]
            yield Row("ANY_HOST", "GPT on A100s", row["step"], "GPT", row["fitted"], ratio)


def _of_host(constant: str, row: Any, group: str, predicted_s: float) -> Row:
    kind = f"H200's, {row['mode']}" if row["source"] == "h200" else "of published times"
    ratio = row["measured_s"] / predicted_s
    return Row(constant, kind, f"{row['name']}, {row['mode']}", group, row["fitted"], ratio)


def _recorded(files: Sequence[Any]) -> Iterator[Row]:
    """Of what is unseen only the AMD card's: most of the other step is not modelled."""
    of_ops = ((name, step, True) for name, step in files[0]["model"]["steps"].items())
    unseen = ((name, step, False) for name, step in files[0]["unseen"].items())
    for name, step, fit in (*of_ops, *unseen):
        device = name.partition("_")[0]
        if device in ("h100", "mi300x"):
            yield Row("RECORDED", device, name, name, fit, 1 / (1 + step["error"]))


def _compiled(files: Sequence[Any]) -> Iterator[Row]:
    for name, (predicted, measured) in files[0]["cases_ms"]["compiled"].items():
        family = family_of(name)
        yield Row("COMPILED", "RTX 4090", name, family, side_of(family) == 0, measured / predicted)


def _processor(files: Sequence[Any]) -> Iterator[Row]:
    """Of the six networks that no constant was fitted on: too few for halves."""
    for processor, result in zip(PROCESSORS, files):
        for row in result["rows"]:
            network, kind = row["network"], row["kind"]
            if network in result["summary"]["not_fitted_on"]["networks"]:
                name = f"{network}, {kind}"
                yield Row("PROCESSOR", processor, name, network, None, 1 / row["ratio"])


def _whole_steps(files: Sequence[Any]) -> Iterator[Row]:
    for row in files[0]["rows"]:
        text = next(each for each in row["step"].split() if "=" in each)
        sizes = {key: int(n) for key, n in (each.split("=") for each in text.split(","))}
        hosts = max(1, sizes.get("fsdp", 1) // GPUS_A_HOST)
        kind = kind_of(Mesh(**sizes, hosts=hosts))
        if kind and not row["fitted"]:
            host = row["host_s"] / row["predicted_s"]
            ratio = row["measured_s"] / row["predicted_s"]
            yield Row(f"WHOLE_STEPS.{kind}", "A100s", row["step"], "", False, ratio, host)


# Of the A100s of those steps.
GPUS_A_HOST = 8
# Each one's last run.
PROCESSORS = {
    "Zen 4": "prediction_cpu_amd-epyc_2026-11-24.json",
    "Zen 5": "prediction_cpu_amd-epyc_2026-11-26.json",
    "Xeon": "prediction_cpu_xeon_2026-11-25.json",
}
HOSTS, CAPTURED = (
    "prediction_host_2026-11-26.json", "prediction_captured_third-run_2026-11-26.json",
)  # fmt: skip
# Paths of figures of what no constant was fitted on, and no interval is from.
UNSEEN = ("unseen", "not_fitted_on", "left_out", "published", "device_bound")
CONSTANTS = (
    Constant(
        "KNOWN_HOST", (HOSTS,),
        "host-bound steps on an H200, of the programs that the host's constants were fitted on",
        UNSEEN, _known_host,
    ),
    Constant(
        "ANY_HOST", (HOSTS, CAPTURED),
        "host-bound steps on two hosts, of an H200 and of A100s", UNSEEN, _any_host,
    ),
    Constant(
        "RECORDED", ("prediction_traces_fifth-run_2026-11-26.json",),
        f"recorded steps on H100-SXM and MI300X, whose extremes are taken {WIDER:g} times as wide",
        (*UNSEEN, "reported"), _recorded,
    ),
    Constant(
        "COMPILED", ("prediction_rtx4090_2026-11-26.json",),
        "networks on an RTX 4090, one half of the families", ("fitted_on_one_half.0",), _compiled,
    ),
    Constant(
        "PROCESSOR", tuple(PROCESSORS.values()),
        f"steps of six networks that the model was not fitted on, on {', '.join(PROCESSORS)}",
        (), _processor,
    ),
    Constant(
        "WHOLE_STEPS", (CAPTURED,), "models of one half, each left out in turn", UNSEEN,
        _whole_steps,
    ),
    Constant(
        "residual_table", (Path(residual_table.SOURCE).name,), "one half of the shapes",
        (*UNSEEN, "linear_bf16", "intervals", "refitted_roofline", "kinds", "device"),
    ),
    Constant(
        "fixes.spread", ("fixes_amd-epyc_2026-11-21.json",), "the original programs",
        ("summary.new", "sets.new"),
    ),
    Constant(
        "collective_table", ("prediction_collectives_2026-11-26.json",), "one half of the sizes",
        UNSEEN,
    ),
)  # fmt: skip


def rows_of(constant: Constant) -> list[Row]:
    """Those of both halves; none of a table that its own benchmark makes."""
    return [] if constant.rows is None else [*constant.rows([*map(read, constant.files)])]


def read(name: str) -> Any:
    """A result file."""
    return json.loads((RESULTS / name).read_text())


def taken(rows: Sequence[Row]) -> tuple[float, float, int]:
    """The interval of a constant from its rows of the first half, and how many these are.

    What is predicted lies in its own interval.
    """
    fit = [row for row in rows if row.fit is not False]
    scored = [row for row in rows if not row.fit]
    ratios = [row.ratio for row in fit]
    if min(len(fit), len(scored)) < FEWEST:
        low, high = min(ratios) ** WIDER, max(ratios) ** WIDER
    else:
        every = intervals([Residual(row.ratio, row.group, "") for row in fit])[ANY]
        low, high = every.low, every.high
    return round(min(1.0, low), 3), round(max(1.0, high), 3), len(fit)


def table() -> dict[str, tuple[float, float, str]]:
    """Name -> the interval, and in words what it is from."""
    found = {}
    for constant in CONSTANTS:
        rows = rows_of(constant)
        if any(row.fit is not False for row in rows):
            low, high, n = taken(rows)
            found[constant.name] = low, high, f"{n} {constant.words}"
        elif rows:
            for kind, of in read(constant.files[0])["intervals"]["whole_steps"].items():
                words = f"{of['models']} {constant.words}"
                found[f"{constant.name}.{kind}"] = of["low"], of["high"], words
    # A host may be as fast as the one that is assumed.
    found["ANY_HOST"] = (found["KNOWN_HOST"][0], *found["ANY_HOST"][1:])
    return found


def write_module(path: Path) -> None:
    """The intervals as the module that the prediction reads."""
    lines = [
        '"""Made by benchmarks/intervals.py --table: do not edit."""', "",
        "# Measured over predicted time, from the least to the most, and what says so.",
        "INTERVALS: dict[str, tuple[float, float, str]] = {",
    ]  # fmt: skip
    for name, (low, high, words) in table().items():
        lines += [f'    "{name}": (', f"        {low},", f"        {high},", f'        "{words}",']
        lines += ["    ),"]
    lines += ["}", "# The result files of those rows, in benchmarks/results."]
    lines += ["FILES: dict[str, list[str]] = {"]
    for constant in CONSTANTS:
        if constant.rows is not None:
            names = [f'        "{name}",' for name in constant.files]
            lines += [f'    "{constant.name}": [', *names, "    ],"]
    path.write_text("\n".join([*lines, "}"]) + "\n")


def summary(rows: Sequence[Row], told: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """By constant and kind: how many of the scored rows lie in what is told, and which share.

    ``holds`` is ``None`` where too few rows say it; ``told``: as ``table`` gives it.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for constant, kind in dict.fromkeys((row.constant, row.kind) for row in rows):
        scored = [r for r in rows if (r.constant, r.kind) == (constant, kind) and not r.fit]
        if not scored:
            continue
        inside = sum(_holds(row, rows, told) for row in scored)
        kinds[f"{constant}, {kind}"] = {
            "n": len(scored),
            "inside": inside,
            "holds": round(inside / len(scored), 4) if len(scored) >= FEWEST else None,
        }
    shares = [each["holds"] for each in kinds.values() if each["holds"] is not None]
    return {"kinds": kinds, "with_a_share": len(shares), "outside_75_to_85": outside(shares)}


def outside(shares: Iterable[float]) -> int:
    """How many shares are not right for intervals of 80 %."""
    return sum(not RIGHT[0] <= share <= RIGHT[1] for share in shares)


def _holds(row: Row, rows: Sequence[Row], told: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a scored row lies in the interval of the others."""
    low, high, _ = told[row.constant]
    if row.fit is None:
        low, high, _ = taken([
            other for other in rows if other.constant == row.constant
            and other.kind != row.kind and other.group != row.group
        ])  # fmt: skip
    slow = told["ANY_HOST"][1] * row.host
    return low <= row.ratio <= max(high, slow)


def _sources(results: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Of each room the code that predicted all rows, ``None`` where they differ."""
    found = {}
    for room in sources():
        made = {result["sources"].get(room) for result in results}
        found[room] = made.pop() if len(made) == 1 else None
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--table", action="store_true", help="remake the module and end")
    options = made.parse_args()
    if options.table:
        write_module(Path(interval_table.__file__))
        return
    record = Record("intervals", options, device="the devices of the rows")
    rows = [row for constant in CONSTANTS for row in rows_of(constant)]
    told = table()
    found = summary(rows, told)
    print(json.dumps(found, indent=1))
    files = sorted({name for constant in CONSTANTS if constant.rows for name in constant.files})
    record.write({
        "from": files,
        "sources": _sources([read(name) for name in files]),
        "intervals": told,
        "summary": found,
        "rows": [row._asdict() for row in rows],
    })  # fmt: skip


if __name__ == "__main__":
    main()
